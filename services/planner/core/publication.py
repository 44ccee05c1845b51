"""From a decision to the plan that is published. Pure."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain

import msgspec

from schemas.codec import encode
from schemas.events import PlanPublished
from schemas.ids import GpuType, JobId, PlacementId, PlanId
from schemas.placement import Gang
from schemas.plans import Layer, LeftOut, Placement, PlanKind, Waiting
from services.planner.core.state import State, is_on_hold, is_put_off
from services.planner.core.staying import may_stay
from services.planner.policies.contract.decision import Choice, Decision, Left
from services.planner.policies.contract.view import Present, View
from shared.domain import gangs, in_turns

PLAN_BYTES_MAX = 1_000_000
"""bytes of an encoded plan; what a message may have beyond that is for its headers"""
SMALL = 1_000
"""a plan with fewer members of gangs, jobs left out and kilobytes of memory is never too large"""
NAMED_AT_MOST = 3
"""how many jobs `LeftOut.held_by` names"""
REFUSED = "the placer refused it several times in a row; it is tried again later"
NODE_GONE = "a node that was chosen for it left, or changed its GPUs, while the plan was made"


class Frame(msgspec.Struct, frozen=True, kw_only=True):
    """What a plan holds beside its decision."""

    view: View
    policy: str
    token: int
    made_from: int
    at: float
    notes: tuple[str, ...]
    node_facts: int = -1
    """`State.node_facts` when the view was made"""
    on_hold: tuple[JobId, ...] = ()
    """jobs that were not in the view because they were on hold"""


class GpusByType:
    """GPUs by type of the gangs of jobs, computed once for each gang until nodes change.

    A cache: it is in no snapshot and changes no plan.
    """

    def __init__(self) -> None:
        self._node_facts = -1
        self._known: dict[JobId, tuple[Gang, dict[GpuType, int]]] = {}

    def of(
        self, state: State, places: Iterable[tuple[JobId, Gang]]
    ) -> Iterator[tuple[JobId, dict[GpuType, int]]]:
        if self._node_facts != state.node_facts or len(self._known) > 2 * len(state.jobs) + 100:
            self._node_facts, self._known = state.node_facts, {}
        for job_id, gang in places:
            known = self._known.get(job_id)
            if known is None or known[0] is not gang:
                known = self._known[job_id] = gang, _by_type(state, gang)
            yield job_id, known[1]


def _by_type(state: State, gang: Gang) -> dict[GpuType, int]:
    found: dict[GpuType, int] = {}
    for one in gang.members:
        known = state.nodes.get(one.node)
        if known is not None:
            found[known.whole.gpu_type] = found.get(known.whole.gpu_type, 0) + one.gpus
    return found


def published(
    state: State, frame: Frame, decision: Decision, by_type: GpusByType | None = None
) -> PlanPublished:
    """The plan, without choices whose jobs or nodes went away while it was made.

    Ids hold the leader's token and the number of plans before this one, so that neither a restart nor
    another leader gives the same id. They have no dots, because they are parts of subjects.
    """
    by_type = by_type or GpusByType()
    view = frame.view
    serial = f"{frame.token}-{state.plans}"
    held = _held(view, decision)
    wanted = _wanted(state, held, decision)
    choices = _still_possible(state, frame, wanted)
    left = (*decision.left, *_dropped(state, wanted, choices), *_held_back(state, frame))
    used = _gpus((choice.job_id, choice.gang) for choice in choices)
    idle = view.idle_gpus + _gpus((job_id, present.gang) for job_id, present in view.apart.items())
    assert used <= idle, f"{used} GPUs given of {idle}"
    mentioned = {choice.job_id for choice in choices} | {job.job_id for job in left}
    assert len(mentioned) == len(choices) + len(left), "a plan mentions a job once: placed, or left out"
    plan = PlanPublished(
        at=frame.at,
        plan_id=PlanId(f"plan-{view.round}-{serial}"),
        kind=view.kind,
        round=view.round,
        policy=frame.policy,
        token=frame.token,
        made_from=frame.made_from,
        placements=tuple([_placement(state, choice, serial, held) for choice in choices]),
        left_out=_left_out(state, frame, choices, left, by_type),
        idle_gpus=idle - used,
        stage=decision.stage,
        objective=decision.objective,
        bound=decision.bound,
        gap=decision.gap,
        decision_s=max(frame.at - view.at, 0.0),
        solve_s=decision.solve_s,
        configurations=decision.configurations,
        notes=(*frame.notes, *decision.notes),
        memory=decision.memory,
        measures=decision.measures,
        standings=dict(decision.standings),
        horizon_s=decision.horizon_s,
    )
    return _fitting(plan)


def _fitting(plan: PlanPublished) -> PlanPublished:
    """The plan, without its explanations where it would be too large for a message with them."""
    size = sum([len(one.gang.members) for one in plan.placements], start=len(plan.left_out))
    if size + len(plan.memory) / 1_000 < SMALL:
        return plan
    for what, without in OMISSIONS.items():
        if len(encode(plan)) <= PLAN_BYTES_MAX:
            break
        note = f"too large for a message, so it is without {what}"
        plan = msgspec.structs.replace(without(plan), notes=(*plan.notes, note))
    return plan


OMISSIONS: Mapping[str, Callable[[PlanPublished], PlanPublished]] = {
    "standings": lambda plan: msgspec.structs.replace(plan, standings={}),
    "reasons": lambda plan: msgspec.structs.replace(
        plan,
        left_out=tuple([LeftOut(job_id=one.job_id, reason=one.reason, held_by=()) for one in plan.left_out]),
    ),
    "the policy's memory": lambda plan: msgspec.structs.replace(plan, memory=b""),
}
"""what a plan that is too large is published without, in this order"""


def _gpus(gangs_of: Iterable[tuple[JobId, Gang]]) -> int:
    return sum(in_turns.held(gangs_of).values())


def _held(view: View, decision: Decision) -> dict[JobId, Present]:
    """Jobs that stay where they are: those that have to, and those of which the decision says nothing."""
    known = _mentioned(decision)
    return view.apart | {
        job.job_id: job.present for job in view.jobs if job.present and (job.stays or job.job_id not in known)
    }


def _mentioned(decision: Decision) -> set[JobId]:
    return {choice.job_id for choice in decision.choices} | {left.job_id for left in decision.left}


def _wanted(state: State, held: Mapping[JobId, Present], decision: Decision) -> tuple[Choice, ...]:
    """The policy's choices, and the places of jobs that stay and that it was not shown."""
    known = _mentioned(decision)
    unknown = [
        Choice(
            job_id=job_id,
            gang=present.gang,
            throughput=present.throughput,
            layer=present.layer,
            share=present.share,
        )
        for job_id, present in held.items()
        if job_id not in known
    ]
    return tuple(_by_now(state, held, choice) for choice in (*decision.choices, *unknown))


def _by_now(state: State, held: Mapping[JobId, Present], choice: Choice) -> Choice:
    """The choice with the copies that still train: some may have ended while the plan was made."""
    present, now = held.get(choice.job_id), state.claims.placement_of(choice.job_id)
    if (
        present is None
        or now is None
        or not gangs.merges(now.gang)
        or now.placement_id != present.placement_id
    ):
        return choice
    return Choice(job_id=choice.job_id, gang=now.gang, throughput=now.throughput, layer=now.layer)


def chose_changed_nodes(state: State, view: View, decision: Decision) -> bool:
    """Whether an unfinished job cannot have what the decision gives it: nodes left, or changed their GPUs."""
    choices = [choice for choice in decision.choices if choice.job_id in state.jobs]
    return len(_on_unchanged_nodes(state, view, choices)) < len(choices)


def takes_a_place(state: State, view: View, decision: Decision) -> bool:
    """Whether a first plan would stop or move a job that is not preemptible and can stay where it is by now.

    In the view its node may have been drained, or one of its copies lost.
    """
    if view.kind is not PlanKind.FIRST:
        return False
    shown = {job.job_id: job for job in view.jobs}
    chosen = {choice.job_id: choice.gang for choice in decision.choices}
    return any(
        not job.preemptible
        and job_id in shown
        and not shown[job_id].stays
        and (placement := state.claims.placement_of(job_id)) is not None
        and may_stay(state, job, placement)
        and not ((gang := chosen.get(job_id)) and gangs.keeps(placement.gang, gang))
        for job_id, job in state.jobs.items()
    )


def _still_possible(state: State, frame: Frame, wanted: Sequence[Choice]) -> Sequence[Choice]:
    """The choices whose nodes are usable still, with the GPUs of the view.

    Those whose jobs have ended, or were put on hold, are left out.
    """
    choices = [
        choice for choice in wanted if choice.job_id in state.jobs and not is_on_hold(state, choice.job_id)
    ]
    if frame.node_facts == state.node_facts:
        return choices
    return _on_unchanged_nodes(state, frame.view, choices)


def _on_unchanged_nodes(state: State, view: View, choices: Sequence[Choice]) -> Sequence[Choice]:
    """The choices without those on a node that is not usable any more or has GPUs of another type.

    A node with too few GPUs by now takes no new job; jobs that are there stay until a plan knows it.
    """
    gone = {
        node.node_id
        for node in view.nodes
        if not (known := state.nodes[node.node_id]).usable or known.node.gpu_type != node.gpu_type
    }
    wanted = in_turns.held((choice.job_id, choice.gang) for choice in choices)
    full = {node_id for node_id, gpus in wanted.items() if gpus > state.nodes[node_id].node.gpus}
    return [
        choice
        for choice in choices
        if gone.isdisjoint(choice.gang.nodes)
        and (full.isdisjoint(choice.gang.nodes) or _is_there(state, choice))
    ]


def _is_there(state: State, choice: Choice) -> bool:
    """Whether the job has the chosen GPUs already."""
    present = state.claims.placement_of(choice.job_id)
    return (
        present is not None
        and present.placement_id not in state.claims.broken
        and present.gang.members == choice.gang.members
    )


def _dropped(state: State, wanted: Sequence[Choice], kept: Sequence[Choice]) -> list[Left]:
    """The choices that are not kept, as jobs left out: a plan mentions every job it was made from."""
    if len(kept) == len(wanted):
        return []
    jobs = {choice.job_id for choice in kept}
    return [
        Left(job_id=choice.job_id, reason=Waiting.ON_HOLD)
        if choice.job_id in state.on_hold
        else Left(job_id=choice.job_id, reason=Waiting.NO_CONFIGURATION, detail=NODE_GONE)
        for choice in wanted
        if choice.job_id not in jobs
    ]


def _held_back(state: State, frame: Frame) -> list[Left]:
    """Jobs that a first plan left out: on hold, or refused by the placer several times in a row."""
    view = frame.view
    if view.kind is not PlanKind.FIRST:
        return []
    shown = {job.job_id for job in view.jobs} | set(view.apart)
    refused = [
        Left(job_id=job_id, reason=Waiting.NO_CONFIGURATION, detail=REFUSED)
        for job_id in state.waiting
        if is_put_off(state, job_id, view.at) and job_id not in shown and job_id not in frame.on_hold
    ]
    return refused + [
        Left(job_id=job_id, reason=Waiting.ON_HOLD) for job_id in frame.on_hold if job_id not in shown
    ]


def _placement(state: State, choice: Choice, serial: str, held: Collection[JobId]) -> Placement:
    """The choice as a placement: the present one, if nothing changes.

    A gang of copies is kept only if the job has to stay; else a plan merges it and starts a new one.
    """
    present = state.claims.placement_of(choice.job_id)
    kept = None if present is None else _kept(state, present.gang, choice, held)
    if present is not None and kept == present.gang and _terms(present) == _terms(choice):
        return present
    return Placement(
        placement_id=present.placement_id if present and kept else PlacementId(f"{choice.job_id}-{serial}"),
        job_id=choice.job_id,
        gang=kept or choice.gang,
        throughput=choice.throughput,
        layer=choice.layer,
        share=choice.share,
    )


def _kept(state: State, present: Gang, choice: Choice, held: Collection[JobId]) -> Gang | None:
    """The gang with which the job runs on, perhaps in other turns; None: it is started again."""
    if not gangs.retimes(present, choice.gang):
        same = gangs.keeps(present, choice.gang) or (choice.job_id in held and present == choice.gang)
        return present if same else None
    if gangs.tasks(present) == gangs.tasks(choice.gang) or not _runs_commands(state, present):
        return choice.gang
    return in_turns.with_turns(present, choice.gang) if choice.job_id in held else None


def _runs_commands(state: State, gang: Gang) -> bool:
    """Whether the gang is of processes, whose tasks are fixed when they start."""
    return any(state.nodes[node_id].runs_commands for node_id in gang.nodes)


def _terms(of: Placement | Choice) -> tuple[float, Layer, float]:
    """Throughput, layer and share: what a plan says of a place beside its gang."""
    return of.throughput, of.layer, of.share


def _left_out(
    state: State, frame: Frame, choices: Sequence[Choice], left: tuple[Left, ...], by_type: GpusByType
) -> tuple[LeftOut, ...]:
    if not left:
        return ()
    jobs = state.jobs
    waiting = [(job, known.gpu_types) for job in left if (known := jobs.get(job.job_id)) is not None]
    lists = {types for _, types in waiting}
    places = _places(state, frame.view.kind, choices)
    holders = _holders(by_type.of(state, places), lists)
    most = {types: _most(holders, types) for types in lists}
    return tuple(
        [
            LeftOut(
                job_id=job.job_id,
                reason=job.reason,
                detail=job.detail,
                held_by=() if job.reason is Waiting.ON_HOLD else most[types],
            )
            for job, types in waiting
        ]
    )


def _holders(
    held: Iterable[tuple[JobId, Mapping[GpuType, int]]], lists: Collection[tuple[GpuType, ...]]
) -> dict[GpuType, dict[JobId, int]]:
    """GPUs by type and job once the plan is carried out, for the types in `lists`."""
    holders: dict[GpuType, dict[JobId, int]] = {gpu_type: {} for gpu_type in chain.from_iterable(lists)}
    for job_id, own in held:
        for gpu_type, gpus in own.items():
            of_type = holders.get(gpu_type)
            if of_type is not None:
                of_type[job_id] = of_type.get(job_id, 0) + gpus
    return holders


def _places(state: State, kind: PlanKind, choices: Sequence[Choice]) -> list[tuple[JobId, Gang]]:
    chosen = [(choice.job_id, choice.gang) for choice in choices]
    if kind is not PlanKind.FRAGMENT:
        return chosen
    return chosen + [(placement.job_id, placement.gang) for placement in state.claims.planned.values()]


def _most(holders: dict[GpuType, dict[JobId, int]], types: tuple[GpuType, ...]) -> tuple[JobId, ...]:
    """The jobs that have most GPUs of some types, in descending order, ties by id."""
    total: dict[JobId, int] = {}
    for gpu_type in types:
        own = holders[gpu_type]
        several = {job_id: total[job_id] + own[job_id] for job_id in total.keys() & own.keys()}
        total |= own
        total |= several
    first = sorted([(-gpus, job_id) for job_id, gpus in total.items()])
    return tuple([job_id for _, job_id in first[:NAMED_AT_MOST]])
