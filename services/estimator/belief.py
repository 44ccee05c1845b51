"""Which observations are believed: those of gangs that were ordered to train. Pure.

An agent may send what it likes, also about nodes that are not its own, if it names them as its gang. So
placement, job, gang and GPU types have to be those of the placer's order, and the time no longer than since
then: what an agent makes up is about its own node and the gangs that it is a member of.
"""

from typing import NamedTuple

from msgspec.structs import replace

from schemas.base import Event
from schemas.events import (
    JobCompleted,
    JobFailed,
    JobPreempted,
    NodeJoined,
    NodeLost,
    StartOrdered,
    WorkerStopped,
)
from schemas.ids import Fingerprint, GpuType, JobId, NodeId, PlacementId
from schemas.placement import Gang
from schemas.samples import ThroughputObserved
from shared.domain import accuracy, gangs
from shared.domain.accuracy import Executions

ENDED_KEPT = 1_000
"""gangs that have ended, the last, whose observations are still believed: samples may come late"""


ENDS = frozenset({WorkerStopped, JobPreempted, JobCompleted, JobFailed, NodeLost, NodeJoined})
"""facts that end gangs"""


class Ordered(NamedTuple):
    """What observations of a gang have in common, and the time of the order to its leader."""

    job_id: JobId
    fingerprint: Fingerprint
    gang: Gang
    gpu_types: tuple[GpuType, ...]
    at: float


Ended = dict[PlacementId, dict[NodeId, Ordered]]
"""gangs that have ended, by placement and leader, those of the placement that ended first at the beginning"""


def note(known: Executions, ended: Ended, fact: Event, kept: float = ENDED_KEPT) -> None:
    """Enter the gangs that a fact ends into `ended`; `known`: before the fact."""
    if type(fact) not in ENDS:  # most facts
        return
    match fact:
        case WorkerStopped():
            ends = [(fact.placement_id, fact.node_id)]
        case JobPreempted() | JobCompleted() | JobFailed():
            ends = [(fact.placement_id, leader) for leader in known.running.get(fact.placement_id, {})]
        case NodeLost() | NodeJoined():
            ends = [(one, fact.node_id) for one in accuracy.left_behind(known, fact)]
        case _:
            raise AssertionError(fact)
    for placement_id, leader in ends:
        running = known.running.get(placement_id, {}).get(leader)
        if running is not None:
            ended[placement_id] = ended.pop(placement_id, {}) | {leader: _ordered(running.order)}
    while len(ended) > kept:
        del ended[next(iter(ended))]


def believed(
    known: Executions, ended: Ended, seen: ThroughputObserved, now: float
) -> ThroughputObserved | None:
    """A usable observation as far as it is believed; None: it is not."""
    leader = gangs.leader(seen.gang)
    running = known.running.get(seen.placement_id, {}).get(leader)
    ordered = _ordered(running.order) if running else ended.get(seen.placement_id, {}).get(leader)
    if ordered is None or (seen.job_id, seen.fingerprint, seen.gang) != ordered[:3]:
        return None
    if (seen.node_id, seen.gpu_type) not in zip(ordered.gang.nodes, ordered.gpu_types, strict=True):
        return None
    lasted_s = now - ordered.at
    if lasted_s <= 0:
        return None
    return seen if seen.seconds <= lasted_s else replace(seen, seconds=lasted_s)


def _ordered(order: StartOrdered) -> Ordered:
    types = tuple([node.gpu_type for node in order.nodes])
    return Ordered(order.job_id, order.spec.workload.fingerprint, order.gang, types, order.at)
