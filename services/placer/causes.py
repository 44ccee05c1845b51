"""Why a plan ends placements: the jobs that get their GPUs. Pure."""

from collections import Counter
from collections.abc import Iterator

import msgspec

from schemas.events import PlanPublished, PreemptReason
from schemas.ids import JobId, NodeId
from schemas.plans import Beneficiary, Cause, Placement
from schemas.plans import Waiting as Reason
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
WITHHELD = ": GPUs of the node are withheld"

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
    on_hold = {left.job_id for left in plan.left_out if left.reason is Reason.ON_HOLD}
    for placed in ending:
        gang = given.get(placed.job_id)
        merges = placed.copies and gang is not None and gangs.merges(gang)
        reason = PreemptReason.MERGE if merges else PreemptReason.PLAN
        cause = _cause(state, placed, plan, takers, moved=gang is not None)
        yield placed, reason, msgspec.structs.replace(cause, on_hold=placed.job_id in on_hold)


def _takers(state: State, plan: PlanPublished) -> Takers:
    """GPUs that new placements of the plan, and measurements that wait for a GPU, take over.

    A new placement that starts at once, on GPUs that were free, takes none.
    """
    new = [one for one in plan.placements if _is_new(state, one)]
    free = {node_id: _free(state, node_id) for placement in new for node_id in placement.gang.nodes}
    waiting = [(one.job_id, one.gang) for one in new if not _starts(state, one, free)]
    measurements = (placed for placed in state.placements.values() if placed.profile)
    waiting += [(one.job_id, one.gang) for one in measurements if isinstance(one.phase, Waiting)]
    takers: Takers = {}
    for job_id, gang in waiting:
        for member in gang.members:
            takers.setdefault(member.node, Counter())[job_id] += member.gpus
    return takers


def _is_new(state: State, placement: Placement) -> bool:
    known = placement.placement_id in state.placements or placement.placement_id in state.ended
    return not known and placement.job_id in state.jobs


def _free(state: State, node_id: NodeId) -> int:
    """GPUs of a node that no placement had or waited for before the plan."""
    known = state.nodes.get(node_id)
    held, wanted = state.gpus_held(node_id), state.gpus_wanted(node_id)
    return known.node.gpus - max(sum(held.values()), sum(wanted.values())) if known is not None else 0


def _starts(state: State, placement: Placement, free: dict[NodeId, int]) -> bool:
    """Whether a new placement starts at once, on free GPUs, which it then takes out of `free`."""
    members = placement.gang.members
    if state.by_job.get(placement.job_id) or any(one.gpus > free[one.node] for one in members):
        return False
    for one in members:
        free[one.node] -= one.gpus
    return True


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


def taken_back(state: State, placed: Placed, ending: Ending) -> str:
    """Why a placement was taken back before it started, in words; a plan and its reasons are in the cause."""
    node_id = ending.cause.node if ending.cause is not None and ending.cause.plan_id is None else None
    known = state.nodes.get(node_id) if node_id is not None else None
    why = TAKEN_BACK[ending.why]
    if ending.why is PreemptReason.PLAN and known is not None and not placed.tally.leaders:  # it waited
        why = DRAINED if known.draining else WITHHELD
    return f"taken back before it started{why}"


def _draining(state: State, placed: Placed) -> NodeId | None:
    nodes = (node_id for node_id in placed.gang.nodes if node_id in state.nodes)
    return next((node_id for node_id in nodes if state.nodes[node_id].emptied), None)
