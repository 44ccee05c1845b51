"""What the agent knows from facts: its life, the workers on its node, and which worker owns which GPU.

A worker is on the node, and owns its GPUs, from StartOrdered to WorkerStopped:

    StartOrdered → starting → up → training → stopping → gone (WorkerStopped)
"""

from enum import StrEnum

import msgspec

from schemas.base import Event
from schemas.events import GangFormed, StartOrdered, StopOrdered, WorkerStarted
from schemas.ids import PlacementId
from shared.domain import gangs, in_turns


class WorkerState(StrEnum):
    STARTING = "starting"
    """its start was ordered, and its processes are coming up"""
    UP = "up"
    """it waits for its gang, or measures, or trains without an order of its own under the gang's leader"""
    TRAINING = "training"
    """all workers of its gang are up, and it was ordered to train"""
    STOPPING = "stopping"


W = WorkerState

MOVES: dict[type[Event], tuple[frozenset[WorkerState], WorkerState]] = {
    WorkerStarted: (frozenset({W.STARTING}), W.UP),
    GangFormed: (frozenset({W.UP}), W.TRAINING),
    StopOrdered: (frozenset({W.STARTING, W.UP, W.TRAINING}), W.STOPPING),
}
"""fact → (the states that it changes, the state after it)"""


class Worker(msgspec.Struct, kw_only=True):
    order: StartOrdered
    gpu_indices: tuple[int, ...]
    state: WorkerState = WorkerState.STARTING
    meeting: str = ""
    """`host:port` at which the gang's processes meet, from the order to train"""
    samples_restored: float | None = None
    """samples in the checkpoint that it found; None: not up yet, or the number in its order"""

    @property
    def holder(self) -> str:
        """The holder of its GPUs: its placement, or its rota for all placements of the rota."""
        return in_turns.holder(self.order.placement_id, self.order.gang)

    @property
    def profiles(self) -> bool:
        return self.order.profile_iterations > 0

    @property
    def leads(self) -> bool:
        """Whether its node leads the gang, or a part of it, so that the samples that it reports count."""
        return not self.profiles and self.order.node_id in gangs.leaders(self.order.gang)

    @property
    def samples_from(self) -> float:
        """Samples in the checkpoint with which it began."""
        return self.order.samples_done if self.samples_restored is None else self.samples_restored


class State(msgspec.Struct, kw_only=True):
    life: str = ""
    """the newest life that has joined"""
    gpus: int = 0
    """GPUs of the node, as that life has it"""
    leaving: bool = False
    """the node goes away soon: its workers stop, and none starts"""
    workers: dict[PlacementId, Worker] = {}
    ended: dict[PlacementId, None] = {}
    """placements that ended here, the oldest first (the values mean nothing)"""
    withheld: dict[int, str] = {}
    """GPUs that no worker gets, by index, and why"""
    drained_for: frozenset[int] = frozenset()
    """broken GPUs for which the node was drained, also by an earlier life"""

    @property
    def held(self) -> set[int]:
        """Indices of GPUs that workers own."""
        return {index for worker in self.workers.values() for index in worker.gpu_indices}

    def indices_for(self, order: StartOrdered) -> tuple[int, ...]:
        """The GPUs for an order: those of its rota, or free ones; empty: too few, or its rota's are gone."""
        holder = in_turns.holder(order.placement_id, order.gang)
        for worker in self.workers.values():
            if worker.holder == holder:
                return worker.gpu_indices if max(worker.gpu_indices) < self.gpus else ()
        wanted, free = order.gang.on(order.node_id), self.free()
        return tuple(free[:wanted]) if wanted <= len(free) else ()

    def free(self, *, without: PlacementId | None = None) -> list[int]:
        """Indices of the node's GPUs that no worker owns and that are not withheld, ascending.

        `without`: a placement whose worker is about to end.
        """
        holders = {worker.holder: worker.gpu_indices for worker in self.workers.values()}
        assert len(self.held) == sum(map(len, holders.values())), "one holder each"
        staying = [worker for key, worker in self.workers.items() if key != without]
        owned = {index for worker in staying for index in worker.gpu_indices}
        return [index for index in range(self.gpus) if index not in owned and index not in self.withheld]
