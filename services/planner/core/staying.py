"""The jobs that a first plan has to leave where they are. Pure.

A job that is not preemptible keeps its place from its start to its end, whatever the policy. For all others
there are two limits, a minimum and a budget:

- A job that started may be moved once it has run for `minimum_run_restarts` times the cost of its restart.
- The GPU-seconds that a first plan costs running jobs are paid back at `restart_share_max` of the cluster's
  GPU time. Until they are paid back, no running job may be moved. So in any stretch of time plans spend at
  most that share of the GPU time, plus what the first plan in the stretch spent. The cluster's GPUs are those
  of usable nodes, at any time; while there are none, the ones before count on.

Neither limit applies to copies of a job, since copies are merged in any case. Neither holds a job on a node
that is lost or drains, or a job on hold, and the budget does not pay for its move. The budget does not hold a
job on a node with more GPUs claimed than it has, as by measurements. A job on a closed node (see `leaving`)
stays there.

If one job of a rota stays, all do: it holds all GPUs of the rota, so that moving the others frees none.
"""

import math
from collections.abc import Callable

import msgspec

from schemas.events import PlanPublished
from schemas.ids import JobId, NodeId
from schemas.placement import Gang
from schemas.plans import Placement, PlanKind
from schemas.settings import Settings
from services.planner.core.restart_times import SWITCH_S
from services.planner.core.state import State, TrackedJob, is_on_hold, on_usable_nodes, stands_by, types_of
from shared.domain import gangs, in_turns
from shared.domain.sums import plain_sum


class Stays(msgspec.Struct, frozen=True):
    placements: dict[JobId, Placement] = {}
    """by job: where it stays"""
    until: float = math.inf
    """cluster time at which the first of the jobs that the limits hold may be moved"""


def staying(state: State, at: float, settings: Settings, closed: frozenset[NodeId] = frozenset()) -> Stays:
    """`closed`: nodes on which nothing more is placed, and what runs stays."""
    stays = _within_limits(state, at, settings)
    held = stays.placements
    if closed:
        held = held | _where(state, lambda placement: not closed.isdisjoint(placement.gang.nodes))
    rotas = {_holder(placement) for placement in held.values() if gangs.rota(placement.gang)}
    if rotas:
        held = held | _where(state, lambda placement: _holder(placement) in rotas)
    return Stays(held, stays.until)


def _where(state: State, holds: Callable[[Placement], bool]) -> dict[JobId, Placement]:
    """Jobs that can stay on their placements, and for whose placements `holds` is true."""
    return {
        job_id: placement
        for job_id, placement_id in state.claims.of_job.items()
        if (job := state.jobs.get(job_id)) is not None
        and holds(placement := state.claims.planned[placement_id])
        and may_stay(state, job, placement)
    }


def _holder(placement: Placement) -> str:
    return in_turns.holder(placement.placement_id, placement.gang)


def _within_limits(state: State, at: float, settings: Settings) -> Stays:
    paid_at = state.moves_from if settings.restart_share_max < 1 else at
    found, until = {}, math.inf
    longest_s = settings.minimum_run_restarts * state.restarts.at_most_s(settings.restart_prior_s)
    for job_id, placement_id in state.claims.of_job.items():
        job = state.jobs.get(job_id)
        if job is None or (paid_at <= at and _has_run_for(job, longest_s, at)):
            continue  # most jobs
        placement = state.claims.planned[placement_id]
        if not may_stay(state, job, placement) or _merges(job, placement):
            continue
        grown_at = _grown_at(state, job, at, settings)
        free_at = max(grown_at, paid_at) if _is_in_budget(state, job, placement) else grown_at
        if at < free_at:
            found[job_id] = placement
            until = min(until, free_at)
    return Stays(found, until)


def _has_run_for(job: TrackedJob, seconds: float, at: float) -> bool:
    """Whether the job has run for its minimum and may be moved."""
    return job.preemptible and job.running is not None and job.running_since + seconds <= at


def charge(state: State, plan: PlanPublished, settings: Settings) -> None:
    """Before a plan is folded: forbid further moves until what it costs running jobs is paid back."""
    if plan.kind is not PlanKind.FIRST or plan.token < state.token or settings.restart_share_max >= 1:
        return
    spent = _spent(state, plan, settings)
    gpus = _usable_gpus(state) if spent else 0
    if gpus:
        state.moves_from = max(state.moves_from, plan.at) + spent / (settings.restart_share_max * gpus)
        state.paying_gpus = gpus


def pay_on(state: State, at: float) -> None:
    """After a fact about a node: what plans cost is paid back by the GPUs that are usable from now on."""
    left_s = state.moves_from - at
    gpus = _usable_gpus(state) if left_s > 0 else 0
    if gpus and gpus != state.paying_gpus:
        state.moves_from = at + left_s * state.paying_gpus / gpus
        state.paying_gpus = gpus


def _usable_gpus(state: State) -> int:
    return sum(known.node.gpus for known in state.nodes.values() if known.usable)


def _spent(state: State, plan: PlanPublished, settings: Settings) -> float:
    """GPU-seconds that running jobs lose by the plan; those that stop in any case lose nothing by it."""
    kept = {placement.placement_id for placement in plan.placements}
    next_of = {each.job_id: each.gang for each in plan.placements}
    merged = {job_id for job_id, gang in next_of.items() if gangs.merges(gang)}
    return plain_sum(
        job.running.gpus * job.share * _move_s(state, job_id, job, next_of.get(job_id), settings)
        for job_id, job in state.jobs.items()
        if job.running is not None and _goes_on(state, job_id, job) and job.placement not in kept
        if not (gangs.merges(job.running) and job_id in merged)
    )


def _goes_on(state: State, job_id: JobId, job: TrackedJob) -> bool:
    """Whether the job would run on if plans left it alone: not on hold, its whole gang on usable nodes."""
    placement = state.claims.placement_of(job_id)
    if placement is None or placement.placement_id != job.placement or is_on_hold(state, job_id):
        return False
    return placement.placement_id not in state.claims.broken and on_usable_nodes(state, placement)


def _cost_s(state: State, job: TrackedJob, settings: Settings) -> float:
    return state.restarts.cost_s(job.workload, types_of(state, job.running), settings.restart_prior_s)


def _move_s(state: State, job_id: JobId, job: TrackedJob, to: Gang | None, settings: Settings) -> float:
    """Seconds that a move costs the job: a switch where its processes stand by, else a restart."""
    if to is not None and stands_by(state, job_id, to):
        before_s = SWITCH_S[settings.switching]
        return state.restarts.switch_cost_s(job.workload, types_of(state, to), before_s)
    return _cost_s(state, job, settings)


def may_stay(state: State, job: TrackedJob, placement: Placement) -> bool:
    """Whether the job holds its GPUs or starts on them, complete and on usable nodes, and is not on hold."""
    runs = job.running is not None and (
        job.running == placement.gang or gangs.retimes(job.running, placement.gang)
    )
    starts = job.running is None and job.ordered_at is not None
    if placement.placement_id in state.claims.broken or not (runs or starts):
        return False
    if is_on_hold(state, placement.job_id):
        return False
    if gangs.misfit(placement.gang, job.demand, job.batch_size):
        return False
    return on_usable_nodes(state, placement)


def _merges(job: TrackedJob, placement: Placement) -> bool:
    """Whether it is a gang of copies that a first plan may merge, to which neither limit applies."""
    return job.preemptible and gangs.merges(placement.gang)


def _grown_at(state: State, job: TrackedJob, at: float, settings: Settings) -> float:
    """When the job has run for its minimum. A job that is still starting counts as running from now on."""
    if not job.preemptible:
        return math.inf
    since = at if job.running is None else job.running_since
    return since + settings.minimum_run_restarts * _cost_s(state, job, settings)


def _is_in_budget(state: State, job: TrackedJob, placement: Placement) -> bool:
    claimed = state.claims.claimed
    nodes = (state.nodes[node_id].node for node_id in placement.gang.nodes)
    return job.running is not None and all(claimed.get(node.node_id, 0) <= node.gpus for node in nodes)
