"""Algorithm 2: which jobs get GPUs, by a dynamic program over (turn in the queue, free GPUs). Pure.

    maximise    Σ φ over the jobs chosen, each at the prices of its turn

The paper's text keeps the set "with minimum cost", which is always the empty one; eq. 4 and 8 ask for the
largest payoff. A state is the free GPUs by node. Of equal states the one of larger value is kept (ties: the
one that leaves more jobs where they are, then the first found). Nodes of a level are interchangeable, except
those that are occupied (see `room.Occupants`), so a state's key counts the others by level.

A state is dropped if even the bound of the fractional knapsack over its free GPUs does not bring it to the
value of the best plan known; no better plan is lost by this. Of the other states the `beam` of largest value
go on. When the budget is spent, the best state takes the rest of the queue, each job at its place of best
payoff.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from schemas.plans import Stage
from services.planner.policies.hadar.bounds import Knapsack
from services.planner.policies.hadar.jobs import HadarJob
from services.planner.policies.hadar.offers import Finder, PricedPlace
from services.planner.policies.hadar.room import NEVER, FreeGpus, Levels, Occupants
from services.planner.solver.budget import Budget

OFFER_S = 6e-6
"""modelled seconds of looking at one place, as measured on a common server"""
SLACK = 1e-12
"""relative change of a sum if floats are added in another order"""


class Width(msgspec.Struct, frozen=True, kw_only=True):
    """How much of the program is searched; 0: all of it."""

    beam: int = 64
    """states that go on from a turn"""
    branches: int = 0
    """places of a job that are tried in one state"""


class Chosen(msgspec.Struct, frozen=True, kw_only=True):
    offers: Mapping[int, PricedPlace]
    """by turn in the queue"""
    value: float
    """Σ φ"""
    bound: float
    """no choice is worth more"""
    stage: Stage
    room: FreeGpus
    """the GPUs that stay free"""


Taken = tuple[int, PricedPlace, "Branch"] | None
"""a turn, the place taken in it, and the state before; None: no place is taken yet"""


class Branch:
    """A state of the program, and the places that led to it."""

    __slots__ = ("_room", "free", "key", "stays", "taken", "value")

    def __init__(self, room: FreeGpus, key: int = 0) -> None:
        """The first state, in which no place is taken."""
        self._room: FreeGpus | None = room
        self.free = room.total
        self.key = key
        self.value = 0.0
        self.stays = 0
        """jobs that stay where they are"""
        self.taken: Taken = None

    def taking(self, turn: int, offer: PricedPlace, key: int) -> "Branch":
        """The state after the job of this turn takes a place; `key`: that of the new state."""
        branch = object.__new__(Branch)
        branch._room, branch.free, branch.key = None, self.free - _gpus(offer), key
        branch.value, branch.stays = self.value + offer.payoff, self.stays + offer.stays
        branch.taken = turn, offer, self
        return branch

    def offers(self) -> dict[int, PricedPlace]:
        """The places taken, by turn, in ascending order."""
        found, branch = dict[int, PricedPlace](), self
        while branch.taken is not None:
            turn, offer, branch = branch.taken
            found[turn] = offer
        return dict(sorted(found.items()))

    @property
    def merit(self) -> tuple[float, int]:
        """What states are compared by: the larger is better."""
        return self.value, self.stays

    @property
    def room(self) -> FreeGpus:
        """The free GPUs; computed when asked for, since most states are dropped before."""
        if self._room is None:
            assert self.taken is not None
            _, offer, before = self.taken
            self._room = before.room.without(offer.place)
        return self._room


class Keys:
    """A state as one number: how many nodes are at each level, and the free GPUs of each occupied node."""

    def __init__(self, levels: Levels, occupants: Occupants) -> None:
        count_bits = len(levels.names).bit_length()
        gpus_bits = max(levels.size_of, default=0).bit_length()
        self._base, self._occupants = levels.base, occupants
        self._one = [1 << level * count_bits for level in range(len(levels.free_of))]
        begin = len(levels.free_of) * count_bits
        self._own = [begin + node * gpus_bits for node in range(len(levels.names))]

    def of(self, room: FreeGpus) -> int:
        return sum(self._digit(node, gpus) for node, gpus in enumerate(room.by_node))

    def after(self, key: int, room: FreeGpus, offer: PricedPlace) -> int:
        for node, gpus in offer.place:
            free = room.by_node[node]
            key += self._digit(node, free - gpus) - self._digit(node, free)
        return key

    def vacate(self, branch: Branch, nodes: Sequence[int]) -> None:
        """Count these nodes, which were occupied until now, by level in the key of a state."""
        for node in nodes:
            free = branch.room.by_node[node]
            branch.key += self._one[self._base[node] + free] - (free << self._own[node])

    def _digit(self, node: int, free: int) -> int:
        if self._occupants.next_turn[node] < NEVER:
            return free << self._own[node]
        return self._one[self._base[node] + free]


class Turn(NamedTuple):
    """A turn in the queue, which is that of one job."""

    number: int
    job: HadarJob
    occupants: Occupants
    keys: Keys


def chosen(
    queue: Sequence[HadarJob],
    room: FreeGpus,
    finder: Finder,
    knapsack: Knapsack,
    *,
    width: Width,
    budget: Budget,
) -> Chosen:
    """The best choice that the dynamic program finds. `knapsack`: that of the queue."""
    bound, best = float(knapsack.bounds()[room.total]), by_payoff(queue, Branch(room), finder)
    occupants = Occupants(len(room.by_node), queue)
    keys = Keys(room.levels, occupants)
    layer = [Branch(room, keys.of(room))]
    _charge(budget, finder)
    for turn, job in enumerate(queue):
        if budget.left_s <= 0:
            rest = by_payoff(queue, layer[0], finder, turn)
            return _answer(max(best, rest, key=lambda branch: branch.merit), bound, Stage.GREEDY)
        vacated = occupants.passed(job)
        for branch in layer:
            keys.vacate(branch, vacated)
        knapsack.drop(turn)
        grown = _grown(layer, Turn(turn, job, occupants, keys), finder, width.branches)
        best = max(best, *grown, key=lambda branch: branch.merit)
        layer = _kept(grown, knapsack.bounds().tolist(), best.value, width.beam)
        _charge(budget, finder)
        if not layer:
            break
    return _answer(best, bound, Stage.INCUMBENT)


def by_payoff(
    queue: Sequence[HadarJob], branch: Branch, finder: Finder, first: int = 0, *, at_any_price: bool = False
) -> Branch:
    """The state once each job from turn `first` on has taken its place of best payoff.

    A job whose best payoff is not above 0 takes none, unless `at_any_price`.
    """
    occupants = Occupants(len(branch.room.by_node), queue)
    for turn, job in enumerate(queue):
        occupants.passed(job)
        if turn < first or branch.free < job.gpus:
            continue
        offers = finder.offers(job, finder.routes(job), branch.room, occupants)
        if offers and (offers[0].payoff > 0 or at_any_price):
            branch = branch.taking(turn, offers[0], 0)
    return branch


def _grown(layer: Sequence[Branch], now: Turn, finder: Finder, branches: int) -> list[Branch]:
    """The states after a turn: each state before it without the job, or with it at one of its places."""
    found: dict[int, Branch] = {}
    for branch in layer:
        found.setdefault(branch.key, branch)  # the better one comes first
    routes, keys = finder.routes(now.job), now.keys
    for branch in layer:
        for offer in finder.offers(now.job, routes, branch.room, now.occupants)[: branches or None]:
            if offer.payoff <= 0:
                break
            key = keys.after(branch.key, branch.room, offer)
            known = found.get(key)
            merit = branch.value + offer.payoff, branch.stays + offer.stays
            if known is None or merit > known.merit:
                found[key] = branch.taking(now.number, offer, key)
    return list(found.values())


def _kept(grown: Sequence[Branch], bounds: Sequence[float], best: float, beam: int) -> list[Branch]:
    """The states that go on. `bounds`: of the rest of the queue, by free GPUs; `best`: the value to beat."""
    least = best * (1.0 - SLACK)
    able = [branch for branch in grown if branch.value + bounds[branch.free] >= least]
    able.sort(key=lambda branch: branch.merit, reverse=True)
    return able[: beam or None]


def _charge(budget: Budget, finder: Finder) -> None:
    budget.charge(finder.offered * OFFER_S)
    finder.offered = 0


def _answer(branch: Branch, bound: float, stage: Stage) -> Chosen:
    return Chosen(
        offers=branch.offers(),
        value=branch.value,
        bound=max(bound, branch.value),
        stage=stage,
        room=branch.room,
    )


def _gpus(offer: PricedPlace) -> int:
    return sum([gpus for _, gpus in offer.place])
