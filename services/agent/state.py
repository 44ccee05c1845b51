"""What facts taught the agent: the life it is in, the workers on its node, and who owns which GPU.

A worker is on the node from StartOrdered to WorkerStopped, and from the first of the two it owns its GPUs:

    StartOrdered → starting → up → training → stopping → gone (WorkerStopped)
"""

from enum import StrEnum

import msgspec

from schemas.base import Event
from schemas.events import (
    GangFormed,
    NodeJoined,
    StartOrdered,
    StopOrdered,
    WorkerEvent,
    WorkerStarted,
    WorkerStopped,
)
from schemas.ids import PlacementId

ENDED_REMEMBERED = 1_000
"""placements that are known to have ended here; the oldest is forgotten first"""


class WorkerState(StrEnum):
    STARTING = "starting"
    """ordered: it owns its GPUs, its processes come up"""
    UP = "up"
    """waits for its gang, measures, or follows the gang's leader"""
    TRAINING = "training"
    """leads a gang that is whole"""
    STOPPING = "stopping"


W = WorkerState

MOVES: dict[type[Event], tuple[frozenset[WorkerState], WorkerState]] = {
    WorkerStarted: (frozenset({W.STARTING}), W.UP),
    GangFormed: (frozenset({W.UP}), W.TRAINING),
    StopOrdered: (frozenset({W.STARTING, W.UP, W.TRAINING}), W.STOPPING),
}
"""fact → (states it may find the worker in, state it leaves it in); any other fact changes nothing"""


class Worker(msgspec.Struct, kw_only=True):
    order: StartOrdered
    gpu_indices: tuple[int, ...]
    state: WorkerState = WorkerState.STARTING

    @property
    def profiles(self) -> bool:
        return self.order.profile_iterations > 0

    @property
    def leads(self) -> bool:
        """Whether its samples count."""
        return not self.profiles and self.order.gang[0][0].node_id == self.order.node_id


class State(msgspec.Struct, kw_only=True):
    life: str = ""
    """the newest that joined"""
    workers: dict[PlacementId, Worker] = {}
    ended: dict[PlacementId, None] = {}
    """the oldest first"""

    def free(self, gpus: int) -> list[int]:
        """Indices nobody owns, of a node's `gpus`, the lowest first."""
        owned = {index for worker in self.workers.values() for index in worker.gpu_indices}
        return [index for index in range(gpus) if index not in owned]


def gpus_wanted(order: StartOrdered) -> int:
    """GPUs on the node the order is addressed to."""
    return sum(gpus for node, gpus in order.gang if node.node_id == order.node_id)


def fold(state: State, fact: Event, gpus: int) -> bool:
    """Change `state` by one fact; `gpus`: how many the node has. False: the fact changed nothing."""
    match fact:
        case NodeJoined():
            return _begin_life(state, fact)
        case StartOrdered():
            return _claim(state, fact, gpus)
        case WorkerStopped():
            return _end(state, fact.placement_id)
        case WorkerEvent():
            return _move(state, fact)
        case _:
            return False


def _begin_life(state: State, joined: NodeJoined) -> bool:
    if joined.life == state.life:
        return False
    state.life = joined.life
    for placement_id in [key for key in state.workers if key not in joined.workers]:
        _end(state, placement_id)
    return True


def _claim(state: State, order: StartOrdered, gpus: int) -> bool:
    if order.placement_id in state.workers or order.placement_id in state.ended:
        return False
    wanted, free = gpus_wanted(order), state.free(gpus)
    if not 1 <= wanted <= len(free):
        return False
    state.workers[order.placement_id] = Worker(order=order, gpu_indices=tuple(free[:wanted]))
    return True


def _move(state: State, fact: WorkerEvent) -> bool:
    worker, move = state.workers.get(fact.placement_id), MOVES.get(type(fact))
    if worker is None or move is None or worker.state not in move[0]:
        return False
    worker.state = move[1]
    return True


def _end(state: State, placement_id: PlacementId) -> bool:
    """Free the GPUs, and remember that the placement never starts here again."""
    state.workers.pop(placement_id, None)
    news = placement_id not in state.ended
    state.ended[placement_id] = None
    while len(state.ended) > ENDED_REMEMBERED:
        del state.ended[next(iter(state.ended))]
    return news
