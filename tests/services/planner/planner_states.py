"""States of a planner, from facts: nodes of eight GPUs, jobs that wait, and jobs that run."""

import msgspec

from schemas.ids import JobId, NodeId, PlanId
from schemas.placement import Gang
from schemas.plans import Placement, PlanKind
from services.planner.core.folds import fold
from services.planner.core.state import State
from tests.fact_builders import (
    NODE,
    in_queue,
    joined,
    placement,
    plan,
    start_ordered,
    started,
    worker_started,
)

MODES = ("forked", "lockstep", "relaxed")
DEMAND = (1, 2, 3, 4, 8)
START_S = 10.0
"""of a restart of 15 s, as settings assume it"""


def state_of(*jobs: JobId, nodes: int = 1, preemptible: bool = True) -> State:
    state = State()
    for number in range(1, nodes + 1):
        fold(state, joined(f"node-{number}", modes=MODES))
    for job_id in jobs:
        for fact in in_queue(job_id, demand=DEMAND, preemptible=preemptible):
            fold(state, fact)
    return state


def on(gpus: int = 1, node: str = NODE) -> Gang:
    return Gang.of({NodeId(node): gpus})


def comes_up(
    state: State, job_id: JobId, gang: Gang, place: str, *, at: float = 0.0, share: float = 1.0
) -> None:
    """By a plan of its own; its workers are up, and it does not train yet."""
    there = msgspec.structs.replace(placement(job_id, place=place), gang=gang, share=share)
    fold(state, plan(there, kind=PlanKind.FRAGMENT, plan_id=PlanId(f"plan-of-{place}")))
    nodes = tuple(state.nodes[node_id].node for node_id in gang.nodes)
    for one in gang.members:
        order = start_ordered(job_id, at=at, place=place)
        fold(state, msgspec.structs.replace(order, node_id=one.node, gang=gang, nodes=nodes))
        came = worker_started(job_id, at=at, place=place, node_id=one.node, gpu_indices=range(one.gpus))
        fold(state, came)


def runs(
    state: State, job_id: JobId, gang: Gang, place: str, *, at: float = START_S, share: float = 1.0
) -> None:
    """It trains from then on; its start took as long as is assumed of any."""
    comes_up(state, job_id, gang, place, at=at - START_S, share=share)
    fold(state, started(job_id, at=at, place=place, on=Gang(gang.members, gang.sync)))


def there(state: State, job_id: JobId) -> Placement:
    """Where the job is by the last plan."""
    found = state.claims.placement_of(job_id)
    assert found is not None
    return found
