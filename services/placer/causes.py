"""Why a plan ends placements: the jobs that get their GPUs. Pure."""

from collections import Counter
from collections.abc import Iterator

from schemas.events import PlanPublished, PreemptReason
from schemas.ids import JobId, NodeId
from schemas.plans import Beneficiary, Cause
from services.placer.phases import Ending, Waiting
from services.placer.state import Placed, State
from shared.domain import gangs

NAMED_AT_MOST = 3
"""largest number of beneficiaries that a cause names"""

TAKEN_BACK = {
    PreemptReason.PLAN: "",
    PreemptReason.NODE_LOST: ": a node was lost",
    PreemptReason.AGENT_RESTARTED: ": an agent restarted",
    PreemptReason.INTERRUPTED: ": its processes were interrupted",
    PreemptReason.FAILED: ": its processes failed",
    PreemptReason.NODE_LEFT: ": the time of a node was over",
    PreemptReason.MERGE: "",
}

DRAINED = ": the node is drained"

Takers = dict[NodeId, Counter[JobId]]
"""by node: GPUs that each job takes over there"""


def causes(state: State, plan: PlanPublished) -> Iterator[tuple[Placed, PreemptReason, Cause]]:
    """The placements that a first plan ends, each with the cause. Copies that get new shares are merged."""
    kept = {placement.placement_id for placement in plan.placements}
    ending = [
        placed
        for placed in state.placements.values()
        if placed.wanted and not placed.profile and placed.placement_id not in kept
    ]
    if not ending:
        return
    takers, given = _takers(state, plan), {each.job_id: each.gang for each in plan.placements}
    for placed in ending:
        gang = given.get(placed.job_id)
        merges = placed.copies and gang is not None and gangs.merges(gang)
        reason = PreemptReason.MERGE if merges else PreemptReason.PLAN
        yield placed, reason, _cause(state, placed, plan, takers, moved=gang is not None)


def _takers(state: State, plan: PlanPublished) -> Takers:
    """GPUs that new placements of the plan, and measurements that wait for a GPU, take over."""
    takers: Takers = {}
    for placement in plan.placements:
        if placement.placement_id not in state.placements:
            for one in placement.gang.members:
                takers.setdefault(one.node, Counter())[placement.job_id] += one.gpus
    for placed in state.placements.values():
        if placed.profile and isinstance(placed.phase, Waiting):
            for one in placed.gang.members:
                takers.setdefault(one.node, Counter())[placed.job_id] += one.gpus
    return takers


def _cause(state: State, placed: Placed, plan: PlanPublished, takers: Takers, *, moved: bool) -> Cause:
    got: Counter[JobId] = Counter()
    for one in placed.gang.members:
        got.update(takers.get(one.node, {}))
    del got[placed.job_id]
    order = sorted(got, key=lambda job_id: (-got[job_id], job_id))
    return Cause(
        plan_id=plan.plan_id,
        moved=moved,
        to=tuple(
            Beneficiary(job_id=job_id, gpus=got[job_id], standing=plan.standings.get(job_id))
            for job_id in order[:NAMED_AT_MOST]
        ),
        others=max(len(order) - NAMED_AT_MOST, 0),
        measures=plan.measures,
        standing=plan.standings.get(placed.job_id),
        node=_draining(state, placed),
    )


def taken_back(state: State, ending: Ending) -> str:
    """Why a placement was taken back before it started, in words; a plan and its reasons are in the cause."""
    node_id = ending.cause.node if ending.cause is not None and ending.cause.plan_id is None else None
    drains = ending.why is PreemptReason.PLAN and node_id in state.nodes and state.nodes[node_id].draining
    return f"taken back before it started{DRAINED if drains else TAKEN_BACK[ending.why]}"


def _draining(state: State, placed: Placed) -> NodeId | None:
    nodes = (node_id for node_id in placed.gang.nodes if node_id in state.nodes)
    return next((node_id for node_id in nodes if state.nodes[node_id].emptied), None)
