"""Closes nodes that go away at a known time: when nothing more is placed on them. Pure.

The agent of such a node stops its jobs `leave_before_end_s` before the node's end. A start pays only if a
restart, and the time that a job runs before it may be moved, fit in before that. Once they do not fit for the
unfinished job whose restarts cost most, the node is closed. A job on a closed node stays until the agent
stops it, since its restart is due then anyway; the node's other GPUs stay idle. Stopped jobs save and go back
to the queue. This holds for all policies: a view shows them no idle GPUs on a closed node.
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
    """Seconds that a start on the type needs to pay, for the unfinished job that needs most."""
    before_s = settings.restart_prior_s
    workloads = {job.workload for job in state.jobs.values()}
    cost_s = max(
        (state.restarts.cost_s(workload, (gpu_type,), before_s) for workload in workloads), default=before_s
    )
    return cost_s * (1.0 + settings.minimum_run_restarts)
