"""The pace of gangs that share several GPUs, in a model: each GPU decides alone whose turn it is."""

import heapq
import itertools
import random
from collections.abc import Callable, Sequence

import pytest

from schemas.ids import PlacementId
from services.agent.process.turns.order import GpuMemory, TurnOrder
from shared.domain.rota import Turn, period

LATE_S = 0.002
"""by how much, at most, a rank is ready later than the first of its gang"""
AWAY_S = 2.5
"""how late the first rank of every gang once is, longer than its GPU waits for it"""
AWAY_IN = 9
"""the round before which it is"""
CYCLES = 60


class Gpus:
    """Gangs whose ranks compute in turn on the same GPUs, then exchange; each of them is on all GPUs."""

    def __init__(self, gangs: Sequence[Turn], seed: int) -> None:
        self._gangs = gangs
        self._random = random.Random(seed)
        self.orders = [TurnOrder() for _ in gangs[0].busy_s[0]]
        self.rounds = [1] * len(gangs)
        """the round of each gang"""
        self._computed = [0] * len(gangs)
        """the ranks that have computed in it"""
        self.due = [0] * len(gangs)
        """what the ranks have agreed on"""
        self.ends: list[list[float]] = [[] for _ in gangs]
        """when each round of each gang was computed"""
        self._queue: list[tuple[float, int, Callable[[float], None]]] = []
        self._number = itertools.count()

    def at(self, when: float, do: Callable[[float], None]) -> None:
        heapq.heappush(self._queue, (when, next(self._number), do))

    def run(self, until: float) -> None:
        while self._queue and self._queue[0][0] < until:
            when, _, do = heapq.heappop(self._queue)
            do(when)

    def join(self, gang: int, gpu: int, when: float) -> None:
        def joined(now: float) -> None:
            self.orders[gpu].join(PlacementId(str(gang)), self._gangs[gang].rounds, gang)
            self.ready(gang, gpu, now)

        self.at(when, joined)

    def ready(self, gang: int, gpu: int, now: float) -> None:
        key = PlacementId(str(gang))
        self.orders[gpu].request(key, self.rounds[gang], GpuMemory(), self.due[gang])
        self._go_on(gpu, now)

    def _go_on(self, gpu: int, now: float) -> None:
        order = self.orders[gpu]
        if grant := order.grant(now):
            gang, busy_s = int(grant.placement_id), self._gangs[int(grant.placement_id)].busy_s[0][gpu]
            says = order.due(grant.placement_id)
            self.at(now + busy_s, lambda end: self._done(gang, gpu, says, end))
        elif (wakeup := order.wakeup()) is not None:
            self.at(max(wakeup, now), lambda woken: self._go_on(gpu, woken))

    def _done(self, gang: int, gpu: int, says: int, now: float) -> None:
        self.orders[gpu].give_back(PlacementId(str(gang)), self.rounds[gang])
        self.due[gang] = max(self.due[gang], says)
        self._computed[gang] += 1
        if self._computed[gang] == len(self.orders):
            self.ends[gang].append(now)
            self.rounds[gang] += 1
            self._computed[gang] = 0
            for each in range(len(self.orders)):
                away = each == 0 and self.rounds[gang] == AWAY_IN + gang
                late_s = AWAY_S if away else LATE_S * self._random.random()
                self.at(now + self._gangs[gang].exchange_s + late_s, self._ready_at(gang, each))
        self._go_on(gpu, now)

    def _ready_at(self, gang: int, gpu: int) -> Callable[[float], None]:
        return lambda now: self.ready(gang, gpu, now)

    def cycles(self, since: float, until: float) -> list[float]:
        """Cycles of each gang between two times."""
        return [
            sum(since < end <= until for end in ends) / gang.rounds
            for ends, gang in zip(self.ends, self._gangs, strict=True)
        ]


def drawn(draw: random.Random) -> list[Turn]:
    gpus, gangs = draw.choice([1, 2, 3, 4]), []
    for _ in range(draw.choice([2, 3, 4])):
        busy_s = draw.uniform(0.05, 0.3)
        spread = draw.choice([0.0, 0.5])
        gangs.append(
            Turn(
                busy_s=[[busy_s * draw.uniform(1 - spread, 1 + spread) for _ in range(gpus)]],
                exchange_s=busy_s * draw.choice([0.02, 0.1, 0.3, 0.6, 1.0]),
                switch_s=0.0,
                rounds=draw.choice([1, 1, 1, 2, 3]),
            )
        )
    return gangs


@pytest.mark.parametrize("seed", range(60))
def test_gangs_keep_the_pace_of_their_rota_whenever_their_ranks_began_or_were_away(seed: int) -> None:
    """GPUs that stay with the order in which their ranks happened to begin reach 42 % of it at worst."""
    draw = random.Random(seed)
    gangs = drawn(draw)
    of_a_cycle = period(gangs)
    model = Gpus(gangs, seed)
    for gang, gpu in itertools.product(range(len(gangs)), range(len(model.orders))):
        model.join(gang, gpu, draw.uniform(0.0, 1.0))
    begin = 10.0 + (AWAY_IN + 10) * of_a_cycle
    end = begin + CYCLES * of_a_cycle
    model.run(end)
    assert min(model.cycles(begin, end)) > 0.94 * CYCLES


def test_two_gangs_that_began_the_other_way_round_take_three_turns_a_cycle_and_not_four() -> None:
    gangs = [Turn(busy_s=[[0.09, 0.09]], exchange_s=0.002, switch_s=0.0, rounds=rounds) for rounds in (1, 2)]
    model = Gpus(gangs, seed=1)
    for gang, gpu in itertools.product(range(2), range(2)):
        model.join(gang, gpu, 0.01 * (gang != gpu))
    model.run(80.0)
    assert min(model.cycles(30.0, 80.0)) == pytest.approx(50.0 / period(gangs), rel=0.03)
