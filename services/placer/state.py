"""What the placer knows: nodes, jobs, and the life of every placement."""

from enum import StrEnum

import msgspec

from schemas.cluster import Node
from schemas.events import PreemptReason
from schemas.ids import JobId, NodeId, PlacementId, PlanId
from schemas.jobs import JobSpec
from schemas.plans import Configuration

ENDED_REMEMBERED = 2_000
"""placements; a plan that still keeps one of them was made seconds after its end"""


class WorkerState(StrEnum):
    """One placement on one of its nodes. ordered → up → stopping → (gone: the entry is removed)."""

    ORDERED = "ordered"
    UP = "up"
    STOPPING = "stopping"


class Placed(msgspec.Struct, kw_only=True):
    """A placement from the plan that made it to its last worker's end."""

    placement_id: PlacementId
    job_id: JobId
    plan_id: PlanId
    configuration: Configuration
    profile: bool = False
    """a measurement on one GPU, not training"""
    round: int = 0
    wanted: bool = True
    """false: whatever is left of it shall end"""
    ordered_at: float | None = None
    """None: waits for its GPUs, or for the job's last placement to end"""
    workers: dict[NodeId, WorkerState] = {}
    started: bool = False
    """every worker was up at once, the job trains"""
    over: bool = False
    """the job ended or failed by itself: no preemption to tell"""
    why: PreemptReason = PreemptReason.PLAN

    @property
    def leader(self) -> NodeId:
        return next(iter(self.configuration))

    @property
    def gpus(self) -> int:
        return sum(self.configuration.values())

    @property
    def all_up(self) -> bool:
        up = [node_id for node_id, state in self.workers.items() if state is WorkerState.UP]
        return len(up) == len(self.configuration)


class KnownNode(msgspec.Struct, kw_only=True):
    node: Node
    life: str
    alive: bool = True
    stale: dict[PlacementId, int] = {}
    """GPUs that workers may still hold whom the node took along when it was lost"""


class OpenJob(msgspec.Struct, kw_only=True):
    spec: JobSpec
    samples_done: float = 0.0
    """in its last checkpoint"""
    over: bool = False
    """it completed or failed, and the monitor has yet to say so"""


class State(msgspec.Struct, kw_only=True):
    token: int = 0
    """the newest fencing token seen in a plan"""
    nodes: dict[NodeId, KnownNode] = {}
    jobs: dict[JobId, OpenJob] = {}
    """unfinished jobs"""
    placements: dict[PlacementId, Placed] = {}
    """oldest first"""
    ended: dict[PlacementId, None] = {}
    """placements that never start again, oldest first"""

    def of_job(self, job_id: JobId) -> list[Placed]:
        return [placed for placed in self.placements.values() if placed.job_id == job_id]

    def end(self, placement_id: PlacementId) -> None:
        """Forget the placement, but for its id."""
        del self.placements[placement_id]
        self.ended[placement_id] = None
        while len(self.ended) > ENDED_REMEMBERED:
            del self.ended[next(iter(self.ended))]

    def gpus_held(self) -> dict[NodeId, int]:
        """GPUs by node that workers have, are ordered to take, or may still have."""
        held = {node_id: sum(known.stale.values()) for node_id, known in self.nodes.items()}
        for placed in self.placements.values():
            for node_id in placed.workers:
                held[node_id] = held.get(node_id, 0) + placed.configuration[node_id]
        return held
