"""From GPU counts to nodes, for the jobs of one type, by Sia's rules (SOSP '23, section 3.4). Pure.

- A job whose type and count stay the same stays where it is.
- Larger jobs first; among equals, as they come.
- A job of a node or more takes wholly free nodes; if there are too few, it fills nodes one by one.
- What is less than a node is not split over two.
- Where there is no room, smaller jobs are evicted, from the node that takes the fewest GPUs, and placed
  again after the one that they gave way to.

With the paper's counts (1, 2, 4, … and whole nodes, on nodes alike) that always succeeds. With others
some GPUs may be left that no job fits, and a job goes without.
"""

from collections.abc import Iterable, Sequence

import msgspec

Place = dict[int, int]
"""GPUs by the position of a node; empty: nowhere"""


class Grant(msgspec.Struct, frozen=True, kw_only=True):
    """The GPUs of a type that one job was given."""

    gpus: int
    present: Place = {}
    """where it runs, if that is the type and the count it was given"""
    pinned: bool = False
    """nobody evicts it"""


def placed(claims: Sequence[Grant], idle: Sequence[int], node_gpus: int) -> list[Place]:
    """The nodes of each claim. `idle` GPUs by node; `node_gpus`: of the type's largest node, idle or not.

    What is less than a node goes where it leaves least.
    """
    floor = _Floor(claims, idle, node_gpus)
    floor.keep()
    waiting = floor.in_order(index for index, place in enumerate(floor.places) if not place)
    while waiting:  # ends: who is evicted is smaller than the one it gives way to
        evicted = floor.settle(waiting.pop(0))
        waiting = floor.in_order([*waiting, *evicted])
    return floor.places


def in_turns(claims: Sequence[Grant], idle: Sequence[int], node_gpus: int) -> list[Place]:
    """As the authors' simulator places, which moves jobs within a type for nothing: all anew.

    Larger jobs first, each from the node after those of the one before: wholly free nodes for its whole
    nodes, as one turn finds them, then whatever is idle. Only pinned jobs stay where they are.
    """
    left = list(idle)
    places = [claim.present if claim.pinned else {} for claim in claims]
    for place in places:
        _shift(left, place, -1)
    node = 0
    for index in sorted(range(len(claims)), key=lambda index: -claims[index].gpus):
        gpus = claims[index].gpus
        if not places[index] and gpus <= sum(left):
            places[index], node = _from_node(node, gpus, left, node_gpus)
            _shift(left, places[index], -1)
    return places


def _from_node(node: int, gpus: int, left: Sequence[int], node_gpus: int) -> tuple[Place, int]:
    """A place for so many GPUs, and the node after it. `left`: idle GPUs by node, enough of them."""
    place: Place = {}
    for _ in left:
        if gpus < node_gpus:
            break
        if left[node] == node_gpus:
            place[node] = node_gpus
            gpus -= node_gpus
        node = (node + 1) % len(left)
    while gpus:
        taken = min(gpus, left[node] - place.get(node, 0))
        if taken:
            place[node] = place.get(node, 0) + taken
            gpus -= taken
        node = (node + 1) % len(left)
    return place, node


def _shift(idle: list[int], place: Place, sign: int) -> None:
    for node, gpus in place.items():
        idle[node] += sign * gpus


class _Floor:
    """The nodes of a type while jobs are put on them."""

    def __init__(self, claims: Sequence[Grant], idle: Sequence[int], node_gpus: int) -> None:
        self.places: list[Place] = [{} for _ in claims]
        self._claims = claims
        self._idle = list(idle)
        self._on: list[list[int]] = [[] for _ in idle]
        """jobs by node"""
        self._node_gpus = max(node_gpus, 1)

    def in_order(self, indices: Iterable[int]) -> list[int]:
        return sorted(indices, key=lambda index: (-self._claims[index].gpus, index))

    def keep(self) -> None:
        """Keep jobs where they are, as far as there is room; pinned ones come first."""
        for index in sorted(range(len(self._claims)), key=lambda index: not self._claims[index].pinned):
            present = self._claims[index].present
            if present and all(gpus <= self._idle[node] for node, gpus in present.items()):
                self._take(index, present)

    def settle(self, index: int) -> list[int]:
        """Place a job, if there is room; the jobs that were evicted for it."""
        gpus = self._claims[index].gpus
        whole = gpus // self._node_gpus
        evicted = self._cleared(whole, gpus)
        place = dict.fromkeys(self._empty()[:whole], self._node_gpus)
        rest = gpus - sum(place.values())
        if 0 < rest < self._node_gpus:
            evicted += self._make_room(rest, place)
        place |= self._part(rest, place) or (self._filled(rest, place) if whole else {})
        if sum(place.values()) == gpus:
            self._take(index, place)
        return evicted

    # ---- looking

    def _empty(self) -> list[int]:
        """Nodes that are wholly free."""
        return [node for node, idle in enumerate(self._idle) if idle == self._node_gpus]

    def _part(self, gpus: int, taken: Place) -> Place:
        """Less than a node, on one."""
        fits = [node for node in range(len(self._idle)) if self._idle[node] >= gpus > 0 and node not in taken]
        if not fits:
            return {}
        return {min(fits, key=lambda node: self._idle[node]): gpus}

    def _filled(self, gpus: int, taken: Place) -> Place:
        place: Place = {}
        for node in range(len(self._idle)):
            if gpus and self._idle[node] and node not in taken:
                place[node] = min(gpus, self._idle[node])
                gpus -= place[node]
        return place

    # ---- evicting

    def _cleared(self, nodes: int, below: int) -> list[int]:
        """Clear nodes until so many are wholly free, the emptiest first; the jobs that were evicted."""
        evicted: list[int] = []
        for _ in range(nodes - len(self._empty())):
            clearable = [
                node for node in range(len(self._idle)) if self._reach(node, below) == self._node_gpus
            ]
            if not clearable:
                break
            node = max(clearable, key=lambda node: self._idle[node])
            evicted += self._evict(node, self._node_gpus, below)
        return evicted

    def _make_room(self, gpus: int, taken: Place) -> list[int]:
        """Evict from one node until so many GPUs are idle there; nothing, where they are already."""
        if self._part(gpus, taken):
            return []
        nodes = (
            node for node in range(len(self._idle)) if node not in taken and self._reach(node, gpus) >= gpus
        )
        node = max(nodes, key=lambda node: self._idle[node], default=None)
        return [] if node is None else self._evict(node, gpus, gpus)

    def _smaller(self, node: int, below: int) -> list[int]:
        """The jobs on a node that have to give way to one of `below` GPUs, the smallest first."""
        limit = min(below, self._node_gpus)
        found = [index for index in self._on[node] if self._claims[index].gpus < limit]
        return self.in_order(index for index in found if not self._claims[index].pinned)[::-1]

    def _reach(self, node: int, below: int) -> int:
        """Idle GPUs of a node, were all evicted that have to give way."""
        return self._idle[node] + sum(self.places[index][node] for index in self._smaller(node, below))

    def _evict(self, node: int, gpus: int, below: int) -> list[int]:
        evicted = []
        for index in self._smaller(node, below):
            if self._idle[node] >= gpus:
                break
            self._give_back(index)
            evicted.append(index)
        return evicted

    # ---- taking

    def _take(self, index: int, place: Place) -> None:
        self.places[index] = place
        for node, gpus in place.items():
            self._idle[node] -= gpus
            self._on[node].append(index)

    def _give_back(self, index: int) -> None:
        for node, gpus in self.places[index].items():
            self._idle[node] += gpus
            self._on[node].remove(index)
        self.places[index] = {}
