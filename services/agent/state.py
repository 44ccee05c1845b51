"""What the agent knows from facts: the life it is in, the workers on its node, and who owns which GPU.

A worker is on the node from StartOrdered to WorkerStopped, and from the first of the two it owns its GPUs:

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
    """ordered: it owns its GPUs, its processes come up"""
    UP = "up"
    """waits for its gang, measures, or follows the gang's leader without having to meet it"""
    TRAINING = "training"
    """its gang is whole, and it was ordered to train"""
    STOPPING = "stopping"


W = WorkerState

MOVES: dict[type[Event], tuple[frozenset[WorkerState], WorkerState]] = {
    WorkerStarted: (frozenset({W.STARTING}), W.UP),
    GangFormed: (frozenset({W.UP}), W.TRAINING),
    StopOrdered: (frozenset({W.STARTING, W.UP, W.TRAINING}), W.STOPPING),
}
"""fact → (states it may find the worker in, state it leaves it in)"""


class Worker(msgspec.Struct, kw_only=True):
    order: StartOrdered
    gpu_indices: tuple[int, ...]
    state: WorkerState = WorkerState.STARTING
    meeting: str = ""
    """`host:port`, once it was ordered to train"""
    samples_restored: float | None = None
    """as it reported; None: not yet, or what was ordered"""

    @property
    def holder(self) -> str:
        """Who holds its GPUs; workers of one rota hold theirs together."""
        return in_turns.holder(self.order.placement_id, self.order.gang)

    @property
    def profiles(self) -> bool:
        return self.order.profile_iterations > 0

    @property
    def leads(self) -> bool:
        """Whether its samples count."""
        return not self.profiles and self.order.node_id in gangs.leaders(self.order.gang)

    @property
    def samples_from(self) -> float:
        """In the checkpoint that it began with."""
        return self.order.samples_done if self.samples_restored is None else self.samples_restored


class State(msgspec.Struct, kw_only=True):
    life: str = ""
    """the newest that joined"""
    leaving: bool = False
    """that life takes its leave: what runs stops, nothing starts"""
    workers: dict[PlacementId, Worker] = {}
    ended: dict[PlacementId, None] = {}
    """the oldest first"""
    withheld: dict[int, str] = {}
    """GPUs that no worker gets, by index, and why"""

    @property
    def held(self) -> set[int]:
        """Indices of GPUs that workers own."""
        return {index for worker in self.workers.values() for index in worker.gpu_indices}

    def indices_for(self, order: StartOrdered, gpus: int) -> tuple[int, ...]:
        """The GPUs that it gets, of a node's `gpus`: those of its rota, or free ones; empty: it cannot."""
        holder = in_turns.holder(order.placement_id, order.gang)
        for worker in self.workers.values():
            if worker.holder == holder:
                return worker.gpu_indices
        wanted, free = order.gang.on(order.node_id), self.free(gpus)
        return tuple(free[:wanted]) if wanted <= len(free) else ()

    def free(self, gpus: int) -> list[int]:
        """Indices that nobody owns and that are not withheld, of a node's `gpus`, the lowest first."""
        owned = self.held
        holders = {worker.holder: worker.gpu_indices for worker in self.workers.values()}
        assert len(owned) == sum(map(len, holders.values())), "one holder each"
        return [index for index in range(gpus) if index not in owned and index not in self.withheld]
