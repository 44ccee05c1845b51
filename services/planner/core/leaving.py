"""Closes nodes that go away at a known time: when nothing more is placed on them. Pure.

A start on such a node must pay before its agent takes its leave, `leave_before_end_s` before the end: what a
restart costs, and the minimum that a job runs before it may be moved, must fit in between. Once they would
not, for the costliest of the unfinished jobs, the node is closed: what runs on it stays there to the last,
since its restart is due then anyway, and its other GPUs are nobody's. When the agent takes its leave the jobs
save and wait anew. This holds whatever the policy: to all of them a closed node has no idle GPUs.
"""

from schemas.ids import GpuType, NodeId
from schemas.settings import Settings
from services.planner.core.state import State

NONE: frozenset[NodeId] = frozenset()


def closed(state: State, at: float, settings: Settings) -> frozenset[NodeId]:
    """The usable nodes on which no start pays any more."""
    left_s = {
        node_id: known.node.until - settings.leave_before_end_s - at
        for node_id, known in state.nodes.items()
        if known.node.until is not None and known.usable
    }
    if not left_s:
        return NONE
    types = {state.nodes[node_id].node.gpu_type for node_id in left_s}
    needed_s = {gpu_type: _needed_s(state, gpu_type, settings) for gpu_type in types}
    return frozenset(
        node_id for node_id, left in left_s.items() if left < needed_s[state.nodes[node_id].node.gpu_type]
    )


def _needed_s(state: State, gpu_type: GpuType, settings: Settings) -> float:
    """What a start on the type must have before it, of the job for which that is most."""
    before_s = settings.restart_prior_s
    workloads = {job.workload for job in state.jobs.values()}
    cost_s = max(
        (state.restarts.cost_s(workload, (gpu_type,), before_s) for workload in workloads), default=before_s
    )
    return cost_s * (1.0 + settings.minimum_run_restarts)
