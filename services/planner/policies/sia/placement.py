"""Places the jobs of one GPU type on its nodes, by Sia's rules (SOSP '23, section 3.4). Pure.

- A job whose type and count stay the same stays where it is.
- Larger jobs are placed first; among equals, in the order given.
- A job of a node or more takes wholly free nodes; if there are too few, it fills nodes one by one.
- A part of less than a node is not split over two nodes.
- Where there is no room, smaller jobs are evicted from the node with the most idle GPUs, and placed again
  after the job that they gave way to.

With the paper's counts (1, 2, 4, … and whole nodes, on equal nodes) every job is placed. With other counts a
job may find no place although enough GPUs are idle.
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
    """no other job may evict it"""


def placed(grants: Sequence[Grant], idle: Sequence[int], node_gpus: int) -> list[Place]:
    """The place of each grant. `idle`: GPUs by node; `node_gpus`: of the type's largest node, idle or not.

    A part of less than a node goes where it leaves the fewest GPUs idle.
    """
    placing = _TypePlacing(grants, idle, node_gpus)
    placing.keep()
    waiting = placing.in_order(index for index, place in enumerate(placing.places) if not place)
    while waiting:  # ends: an evicted job is smaller than the one it gives way to
        evicted = placing.settle(waiting.pop(0))
        waiting = placing.in_order([*waiting, *evicted])
    return placing.places


def in_turns(grants: Sequence[Grant], idle: Sequence[int], node_gpus: int) -> list[Place]:
    """The places by the authors' simulator, which places all jobs from scratch.

    Moves within a type are free there. Larger jobs come first. Each begins at the node after those of the job
    before: it goes round the nodes once and takes wholly free ones for its whole nodes, then takes whatever
    is idle. Only pinned jobs stay.
    """
    left = list(idle)
    places = [grant.present if grant.pinned else {} for grant in grants]
    for place in places:
        _shift(left, place, -1)
    node = 0
    for index in sorted(range(len(grants)), key=lambda index: -grants[index].gpus):
        gpus = grants[index].gpus
        if not places[index] and gpus <= sum(left):
            places[index], node = _from_node(node, gpus, left, node_gpus)
            _shift(left, places[index], -1)
    return places


def _from_node(node: int, gpus: int, left: Sequence[int], node_gpus: int) -> tuple[Place, int]:
    """A place for `gpus` GPUs, and the node after it. `left`: idle GPUs by node, which are enough."""
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


class _TypePlacing:
    """The nodes of a type, and which jobs are on them, while jobs are placed."""

    def __init__(self, grants: Sequence[Grant], idle: Sequence[int], node_gpus: int) -> None:
        self.places: list[Place] = [{} for _ in grants]
        self._grants = grants
        self._idle = list(idle)
        self._on: list[list[int]] = [[] for _ in idle]
        """jobs by node"""
        self._node_gpus = max(node_gpus, 1)

    def in_order(self, indices: Iterable[int]) -> list[int]:
        return sorted(indices, key=lambda index: (-self._grants[index].gpus, index))

    def keep(self) -> None:
        """Keep jobs where they are, as far as there is room; pinned ones come first."""
        for index in sorted(range(len(self._grants)), key=lambda index: not self._grants[index].pinned):
            present = self._grants[index].present
            if present and all(gpus <= self._idle[node] for node, gpus in present.items()):
                self._take(index, present)

    def settle(self, index: int) -> list[int]:
        """Place a job, if there is room; returns the jobs that were evicted for it."""
        gpus = self._grants[index].gpus
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
        """A place for less than a node on one node not in `taken`; empty: none has room."""
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
        """Clear nodes, the emptiest first, until `nodes` are wholly free; returns the evicted jobs.

        `below`: GPUs of the job that they are cleared for.
        """
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
        """Evict jobs from one node until `gpus` GPUs are idle there, unless a node has room; returns them."""
        if self._part(gpus, taken):
            return []
        nodes = (
            node for node in range(len(self._idle)) if node not in taken and self._reach(node, gpus) >= gpus
        )
        node = max(nodes, key=lambda node: self._idle[node], default=None)
        return [] if node is None else self._evict(node, gpus, gpus)

    def _smaller(self, node: int, below: int) -> list[int]:
        """The jobs on a node that have to give way to a job of `below` GPUs, the smallest first."""
        limit = min(below, self._node_gpus)
        found = [index for index in self._on[node] if self._grants[index].gpus < limit]
        return self.in_order(index for index in found if not self._grants[index].pinned)[::-1]

    def _reach(self, node: int, below: int) -> int:
        """Idle GPUs of a node if all jobs were evicted that have to give way."""
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
