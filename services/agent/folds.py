"""How each fact changes the agent's state: a function for each fact, and their table at the end.

A fold returns whether its fact changed the state. A fact that comes twice, or too late, changes nothing.
"""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from schemas.base import Event
from schemas.events import (
    GangFormed,
    GpusWithheld,
    NodeDrained,
    NodeJoined,
    StartOrdered,
    StopOrdered,
    TurnsOrdered,
    WorkerStarted,
    WorkerStopped,
)
from schemas.ids import PlacementId
from services.agent.state import MOVES, State, Worker, WorkerState
from shared.domain import gangs

ENDED_REMEMBERED = 1_000
"""ended placements that are remembered, the newest"""


def fold(state: State, fact: Event) -> bool:
    """Change `state` by one fact of `FOLDS`; returns whether it changed."""
    return FOLDS[type(fact)](state, fact)


def gpus_wanted(order: StartOrdered) -> int:
    """GPUs that the gang gets on the node that the order is addressed to."""
    return order.gang.on(order.node_id)


def _joined(state: State, joined: NodeJoined) -> bool:
    if joined.life == state.life:
        return False
    state.life, state.gpus, state.leaving = joined.life, joined.node.gpus, False
    state.withheld = dict(joined.withheld)
    state.drained_for &= joined.withheld.keys()
    for placement_id in [key for key in state.workers if key not in joined.workers]:
        _end(state, placement_id)
    return True


def _withheld(state: State, fact: GpusWithheld) -> bool:
    state.withheld = dict(fact.gpus)
    return True


def _drained(state: State, drained: NodeDrained) -> bool:
    """The node leaves, or has broken GPUs: only its agent says so. An operator's concerns the planner."""
    state.drained_for |= frozenset(drained.broken)
    if state.leaving or drained.life != state.life:
        return False
    state.leaving = True
    for worker in state.workers.values():
        worker.state = WorkerState.STOPPING
    return True


def _start_ordered(state: State, order: StartOrdered) -> bool:
    if order.placement_id in state.workers or order.placement_id in state.ended:
        return False
    indices = () if state.leaving else state.indices_for(order)
    if not indices:
        return False
    state.workers[order.placement_id] = Worker(order=order, gpu_indices=indices)
    return True


def _turns_ordered(state: State, fact: TurnsOrdered) -> bool:
    worker = state.workers.get(fact.placement_id)
    if worker is None or not gangs.retimes(worker.order.gang, fact.gang):
        return False
    worker.order = msgspec.structs.replace(worker.order, gang=fact.gang)
    return worker.state is not WorkerState.STOPPING


def _moved(state: State, fact: WorkerStarted | GangFormed | StopOrdered) -> bool:
    worker, (before, after) = state.workers.get(fact.placement_id), MOVES[type(fact)]
    if worker is None or worker.state not in before:
        return False
    worker.state = after
    match fact:
        case WorkerStarted(samples_restored=samples):
            worker.samples_restored = samples
        case GangFormed(meeting=meeting):
            worker.meeting = meeting
        case _:
            pass
    return True


def _stopped(state: State, fact: WorkerStopped) -> bool:
    return _end(state, fact.placement_id)


def _end(state: State, placement_id: PlacementId) -> bool:
    """Free the GPUs, and remember that the placement never starts here again."""
    state.workers.pop(placement_id, None)
    first = placement_id not in state.ended
    state.ended[placement_id] = None
    while len(state.ended) > ENDED_REMEMBERED:
        del state.ended[next(iter(state.ended))]
    return first


FOLDS: Mapping[type[Event], Callable[[State, Any], bool]] = {
    NodeJoined: _joined,
    GpusWithheld: _withheld,
    NodeDrained: _drained,
    StartOrdered: _start_ordered,
    WorkerStarted: _moved,
    GangFormed: _moved,
    TurnsOrdered: _turns_ordered,
    StopOrdered: _moved,
    WorkerStopped: _stopped,
}

QUIET: frozenset[type[Event]] = frozenset({WorkerStarted, WorkerStopped})
"""facts that the agent publishes itself, and to which it never reacts"""
