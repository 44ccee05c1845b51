"""From a decision to the plan that is published. Pure."""

from collections import Counter

import msgspec

from schemas.events import PlanPublished
from schemas.ids import GpuType, JobId, PlacementId, PlanId
from schemas.plans import LeftOut, Placement, PlanKind, Waiting
from services.planner.core.state import State
from services.planner.policies.contract.decision import Choice, Decision, Left
from services.planner.policies.contract.view import View
from shared.domain import gangs

NAMED_AT_MOST = 3
"""how many jobs `LeftOut.to` names"""
NODE_GONE = "a node that was chosen for it left while the plan was made"


class Frame(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a plan beside the decision."""

    view: View
    policy: str
    token: int
    made_from: int
    at: float
    notes: tuple[str, ...]


def published(state: State, frame: Frame, decision: Decision) -> PlanPublished:
    """The plan, without the choices that stopped making sense while it was made.

    Ids hold the leader's token and the number of plans before this one, so neither a restart nor
    another leader gives them again. They have no dots, because subjects are made of them.
    """
    view = frame.view
    serial = f"{frame.token}-{state.plans}"
    choices = [choice for choice in decision.choices if _holds(state, choice)]
    left = (*decision.left, *_dropped(decision, choices))
    used = sum(choice.gang.gpus for choice in choices)
    assert used <= view.idle_gpus, f"{used} GPUs given of {view.idle_gpus}"
    mentioned = [choice.job_id for choice in choices] + [job.job_id for job in left]
    assert len(set(mentioned)) == len(mentioned), "a plan mentions a job once: placed, or left out"
    return PlanPublished(
        at=frame.at,
        plan_id=PlanId(f"plan-{view.round}-{serial}"),
        kind=view.kind,
        round=view.round,
        policy=frame.policy,
        token=frame.token,
        made_from=frame.made_from,
        placements=tuple(_placement(state, choice, serial) for choice in choices),
        left_out=_left_out(state, frame, choices, left),
        idle_gpus=view.idle_gpus - used,
        stage=decision.stage,
        objective=decision.objective,
        bound=decision.bound,
        gap=decision.gap,
        decision_s=frame.at - view.at,
        solve_s=decision.solve_s,
        configurations=decision.configurations,
        notes=(*frame.notes, *decision.notes),
        memory=decision.memory,
        measures=decision.measures,
        standings=dict(decision.standings),
    )


def _holds(state: State, choice: Choice) -> bool:
    """The job is still there, and so are the nodes."""
    nodes = (state.nodes.get(node_id) for node_id in choice.gang.nodes)
    return choice.job_id in state.jobs and all(node is not None and node.usable for node in nodes)


def _dropped(decision: Decision, kept: list[Choice]) -> list[Left]:
    """The choices that are not kept, as jobs left out: a plan mentions every job it was made from."""
    jobs = {choice.job_id for choice in kept}
    return [
        Left(job_id=choice.job_id, reason=Waiting.NO_CONFIGURATION, detail=NODE_GONE)
        for choice in decision.choices
        if choice.job_id not in jobs
    ]


def _placement(state: State, choice: Choice, serial: str) -> Placement:
    present = state.claims.placement_of(choice.job_id)
    stays = present is not None and gangs.keeps(present.gang, choice.gang)
    return Placement(
        placement_id=present.placement_id if stays and present else PlacementId(f"{choice.job_id}-{serial}"),
        job_id=choice.job_id,
        gang=choice.gang,
        throughput=choice.throughput,
        layer=choice.layer,
    )


def _left_out(
    state: State, frame: Frame, choices: list[Choice], left: tuple[Left, ...]
) -> tuple[LeftOut, ...]:
    if not left:
        return ()
    holders = _holders(state, frame.view.kind, choices)
    known: dict[tuple[GpuType, ...], tuple[JobId, ...]] = {}
    result = []
    for job in left:
        record = state.jobs.get(job.job_id)
        if record is None:
            continue
        types = tuple(record.single_gpu)
        if types not in known:
            known[types] = _most(holders, types)
        result.append(LeftOut(job_id=job.job_id, reason=job.reason, detail=job.detail, to=known[types]))
    return tuple(result)


def _holders(state: State, kind: PlanKind, choices: list[Choice]) -> dict[GpuType, Counter[JobId]]:
    """GPUs by job, by type, once the plan is carried out."""
    places = [(choice.job_id, choice.gang) for choice in choices]
    if kind == PlanKind.FRAGMENT:
        running = state.claims.planned.values()
        places += [(placement.job_id, placement.gang) for placement in running]
    holders: dict[GpuType, Counter[JobId]] = {}
    for job_id, gang in places:
        for one in gang.members:
            node = state.nodes.get(one.node)
            if node is not None:
                holders.setdefault(node.node.gpu_type, Counter())[job_id] += one.gpus
    return holders


def _most(holders: dict[GpuType, Counter[JobId]], types: tuple[GpuType, ...]) -> tuple[JobId, ...]:
    """The jobs with most GPUs of some types, most first, then by id."""
    total: Counter[JobId] = sum((holders.get(kind, Counter()) for kind in types), Counter())
    order = sorted(total.items(), key=lambda item: (-item[1], item[0]))
    return tuple(job_id for job_id, _ in order[:NAMED_AT_MOST])
