"""Sums up messages of rank 0 into observations, each as long as all before it together. Pure."""

from collections import deque
from itertools import chain

from schemas.events import StartOrdered
from schemas.ids import NodeId
from schemas.measurements import Stretch
from services.agent.process.gang.messages import ObservedMessage
from services.agent.tasks import Observed

ITERATIONS_MAX = 32
"""newest iterations of each rank whose times an observation holds"""
REST_MIN = 0.1
"""share of a full stretch below which the rest at the end is no observation"""


class Stretches:
    """`every_s`: seconds that the first stretch lasts."""

    def __init__(self, order: StartOrdered, every_s: float) -> None:
        self._order = order
        self._stretch_s = every_s
        self._before_s = 0.0
        self._ran_s = self._samples = 0.0
        """seconds run and samples done, since the stretch began"""
        self._data_s: dict[int, deque[float]] = {}
        self._wait_s: dict[int, deque[float]] = {}

    def add(self, message: ObservedMessage) -> Observed | None:
        """The observation, if the stretch is now long enough."""
        self._ran_s += message.seconds
        self._samples += message.iterations * message.batch
        ranks = self._order.gang.gpus
        _extend(self._data_s, message.data_s[:ranks])
        _extend(self._wait_s, message.wait_s[:ranks])
        return self._cut() if self._ran_s >= self._stretch_s else None

    def rest(self) -> Observed | None:
        """The observation of the stretch that the gang's end cuts short; None: it is too short."""
        return self._cut() if self._ran_s >= REST_MIN * self._stretch_s else None

    def _cut(self) -> Observed | None:
        seconds, samples = self._ran_s, self._samples
        if samples <= 0.0:
            return None
        stretch = Stretch(
            throughput=samples / seconds,
            data_s=self._by_node(self._data_s),
            wait_s=self._by_node(self._wait_s),
        )
        self._before_s += seconds
        self._stretch_s = max(self._stretch_s, self._before_s)
        self._ran_s = self._samples = 0.0
        self._data_s, self._wait_s = {}, {}
        return Observed(self._order.placement_id, seconds, stretch)

    def _by_node(self, by_rank: dict[int, deque[float]]) -> dict[NodeId, tuple[float, ...]]:
        """Times by node: those of its ranks, one rank after the other."""
        found, first = {}, 0
        for member in self._order.gang.members:
            ranks = range(first, first + member.gpus)
            found[member.node] = tuple(chain.from_iterable(by_rank.get(rank, ()) for rank in ranks))
            first += member.gpus
        return found


def _extend(by_rank: dict[int, deque[float]], more: tuple[tuple[float, ...], ...]) -> None:
    for rank, times in enumerate(more):
        by_rank.setdefault(rank, deque(maxlen=ITERATIONS_MAX)).extend(times)
