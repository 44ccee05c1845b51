"""The contract of policies, and the rules that every decision must keep.

A policy is found by name and built from its options (see `options`). It is asked in two steps, both
pure: `wants` names the configurations whose throughput it needs, `decide` chooses. It keeps nothing
between calls but the `memory` of its last decision, which comes back in the next view, after a restart
of the planner too. It runs in a process of its own and under a time limit. If it raises, overruns or
breaks a rule below, `fifo` makes the plan in its place, without jobs that run in modes other than lockstep:
they go on as they are. A note in the plan says why.

A policy plans gangs in lockstep unless its attribute `modes` lists the modes of synchronisation that it
plans, as types of `schemas.placement`. A job that runs in a mode that is not listed, since another policy
placed it, is shown without a place.
"""

import math
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from enum import StrEnum
from typing import Protocol

import msgspec

from schemas.ids import JobId, NodeId
from schemas.numbers import MOST, WholeNumber
from schemas.placement import ROUNDING, Gang, Lockstep, Mode
from schemas.plans import Layer, Measures, PlanKind, Stage, Standing, Waiting
from services.planner.policies.contract.configurations import Configurations
from services.planner.policies.contract.estimates import Estimated
from services.planner.policies.contract.view import View, ViewJob
from services.planner.solver.problem import Solve
from shared.domain import gangs, in_turns


class Trigger(StrEnum):
    """An event that may call for a plan."""

    ROUND = "round"
    """a round begins"""
    ARRIVAL = "arrival"
    """a job entered the queue"""
    FREED = "freed"
    """GPUs came free: a job ended or was preempted, a placement was refused, a profile is over; or the policy
    was chosen, or a refused job may be planned again"""
    NODE = "node"
    """a node joined, came back, is drained or is drained no more, or left while a plan was made for it; or a
    measurement takes GPUs from jobs"""


ROUNDS: Mapping[Trigger, PlanKind] = {
    Trigger.ROUND: PlanKind.FIRST,
    Trigger.ARRIVAL: PlanKind.FRAGMENT,
    Trigger.FREED: PlanKind.FRAGMENT,
    Trigger.NODE: PlanKind.FRAGMENT,
}
"""first plans when rounds begin; in between, fragment plans that fill idle GPUs at once"""

STAND_IN = "fifo"
"""the policy that plans in place of one that cannot"""

SOONEST_S = 1.0
"""the least time from a plan to the next one that `again_at` asks for"""
MEMORY_BYTES_MAX = 524_288
NOTES_MAX = 20
NOTE_LENGTH_MAX = 1_000
TEXT_LENGTH_MAX = 300
"""characters of a reason why a job is left out, and of what a measure means"""


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """The gang that a job gets. A choice of its present gang keeps the job where it is."""

    job_id: JobId
    gang: Gang
    throughput: float
    layer: Layer
    share: float = 1.0
    """the job's share of its GPUs' time; below 1 only in a rota, whose jobs' shares add up to 1 at most"""


class Left(msgspec.Struct, frozen=True, kw_only=True):
    """A job that the decision gives no GPUs, with the main reason."""

    job_id: JobId
    reason: Waiting
    detail: str = ""


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    choices: tuple[Choice, ...]
    """in a first plan: all jobs that shall run; in a fragment plan: only those that shall start"""
    left: tuple[Left, ...] = ()
    """the jobs that get no GPUs, in the order of the queue; any that are missing are added at its end"""
    stage: Stage = Stage.QUEUE
    objective: float = 0.0
    bound: float = 0.0
    gap: float = 0.0
    solve_s: float = 0.0
    configurations: WholeNumber = 0
    memory: bytes = b""
    again_at: float | None = None
    """the policy is asked again at this cluster time at the latest, even if nothing happens; not within
    `SOONEST_S` of the view"""
    notes: tuple[str, ...] = ()
    measures: Measures = Measures()
    standings: Mapping[JobId, Standing] = {}
    """by job of the view: its priority and gain, which `measures` explains"""
    horizon_s: float | None = None
    """no schedule ends all jobs of the view in fewer seconds; None: no such bound is known"""


class Policy(Protocol):
    @property
    def calls(self) -> Mapping[Trigger, PlanKind]:
        """Which kind of plan each trigger calls for; triggers left out call for none."""
        ...

    def wants(self, view: View) -> Configurations:
        """The configurations whose throughput shall be estimated; there may be none."""
        ...

    def decide(self, view: View, wanted: Configurations, estimates: Estimated, solve: Solve) -> Decision:
        """The decision, which depends on the arguments alone."""
        ...


def sees_staying(policy: object) -> bool:
    """Whether the policy is shown the jobs that a first plan may not move, and keeps them where they are.

    Any other policy sees neither these jobs nor their GPUs (`View.apart`).
    """
    return bool(getattr(policy, "sees_staying", False))


def moves_for_waiting(policy: object) -> bool:
    """Whether the policy moves running jobs only so that waiting ones can start.

    Then a first plan that it calls for at an event is made only while some job waits, and a fragment plan
    is made in its place if that serves every waiting job.
    """
    return bool(getattr(policy, "moves_for_waiting", False))


def asks_modes(policy: object) -> bool:
    """Whether the policy itself checks which modes each job can run in.

    Any other policy is shown only the jobs that can run in all of its modes.
    """
    return bool(getattr(policy, "asks_modes", False))


def modes_of(policy: Policy) -> frozenset[type[Mode]]:
    """The modes that the policy plans: those it lists, else lockstep alone."""
    return frozenset(getattr(policy, "modes", (Lockstep,)))


PolicyFactory = Callable[..., Policy]
"""What an entry point of `hopyard.policies` names. It is called with its `Options`, or with nothing if it has
none."""


def fault(view: View, decision: Decision) -> str | None:
    """The first rule that the decision breaks, in words; None for a sound one.

    - A job has one gang at most, of a size in its demand, on nodes of the view whose type the job can run
      on and which run the gang's mode.
    - The gangs on a node use no more than its idle GPUs; the GPUs of a rota count once.
    - The gangs of a rota have the same members and different positions in it, and their shares of its time
      add up to 1 at most.
    - A job that may not be moved (`ViewJob.stays`) has its present gang; only its turns may differ.
    - `left` lists jobs of the view that get no GPUs, each once; one that it lacks is added without a reason.
    - Numbers, notes and memory fit a message, and `again_at` is later than the view.
    """
    wrong = _too_large_for_a_message(view, decision) or _wrong_standing(view, decision)
    if decision.choices:
        wrong = wrong or _wrong_choice(view, decision)
    return wrong or _wrong_left(view, decision) or _moved_too_soon(view, decision)


def bounded(decision: Decision) -> Decision:
    """The decision, with numbers beyond what a message holds replaced by the largest that it holds.

    So a policy can plan however long its jobs are. Only the figures that describe the plan are replaced;
    its choices stay as they are.
    """
    standings = decision.standings
    if any(abs(one) > MOST for each in _different(standings) for one in each.numbers):
        standings = {job_id: _bounded(each) for job_id, each in standings.items()}
    return msgspec.structs.replace(
        decision,
        objective=_at_most(decision.objective),
        bound=_at_most(decision.bound),
        gap=_at_most(decision.gap),
        horizon_s=None if decision.horizon_s is None else _at_most(decision.horizon_s),
        standings=standings,
    )


def _bounded(standing: Standing) -> Standing:
    numbers = msgspec.structs.asdict(standing)
    return Standing(**{name: None if one is None else _at_most(one) for name, one in numbers.items()})


def _at_most(number: float) -> float:
    return math.copysign(MOST, number) if MOST < abs(number) < math.inf else number


def _too_large_for_a_message(view: View, decision: Decision) -> str | None:
    numbers = (decision.objective, decision.bound, decision.gap)
    amounts = [decision.solve_s, decision.horizon_s or 0.0]
    amounts += [choice.throughput for choice in decision.choices]
    if not (all(-MOST <= one <= MOST for one in numbers) and all(0.0 <= one <= MOST for one in amounts)):
        return "a number that no message holds"
    if decision.again_at is not None and not view.at < decision.again_at < math.inf:
        return f"asks for a plan at {decision.again_at:g}, made at {view.at:g}"
    if len(decision.memory) > MEMORY_BYTES_MAX:
        return f"a memory of {len(decision.memory)} bytes; at most {MEMORY_BYTES_MAX}"
    if len(decision.notes) > NOTES_MAX or any(len(note) > NOTE_LENGTH_MAX for note in decision.notes):
        return f"more than {NOTES_MAX} notes, or one of more than {NOTE_LENGTH_MAX} characters"
    texts = (decision.measures.priority, decision.measures.gain, *[left.detail for left in decision.left])
    if any(len(text) > TEXT_LENGTH_MAX for text in texts):
        return f"a reason or a measure of more than {TEXT_LENGTH_MAX} characters"
    return None


def _wrong_standing(view: View, decision: Decision) -> str | None:
    if not decision.standings:
        return None
    if strangers := decision.standings.keys() - {job.job_id for job in view.jobs}:
        return f"a standing of job {min(strangers)}, which is not in the view"
    if not all(-MOST <= one <= MOST for each in _different(decision.standings) for one in each.numbers):
        return "a standing with a number that no message holds"
    return None


def _different(standings: Mapping[JobId, Standing]) -> Collection[Standing]:
    """Each standing object once: many jobs may share one."""
    return {id(each): each for each in standings.values()}.values()


def _wrong_choice(view: View, decision: Decision) -> str | None:
    jobs = {job.job_id: job for job in view.jobs}
    named = {one.node for choice in decision.choices for one in choice.gang.members}
    nodes = {node.node_id: node for node in view.nodes if node.node_id in named}
    if broken := _unknown_or_repeated(decision, jobs) or _wrong_rota([one.gang for one in decision.choices]):
        return broken
    given: dict[NodeId, int] = {}
    rotas: set[str] = set()
    for choice in decision.choices:
        job, gang = jobs[choice.job_id], choice.gang
        stays = job.present is not None and job.present.gang is gang  # a present gang fits its job
        if not stays and (wrong := _unfit(job, gang)):
            return f"job {job.job_id}: {wrong}"
        mode, types, used = gang.mode, job.gpu_types, gangs.computing(gang).nodes
        holder = in_turns.holder(job.job_id, gang)
        for one in gang.members:
            node = nodes.get(one.node)
            if node is None or (node.gpu_type not in types and one.node in used):
                return f"job {job.job_id} on node {one.node}"
            if mode not in node.modes:
                return f"node {one.node} runs no {mode} gangs"
            if holder in rotas:
                continue
            given[one.node] = gpus = given.get(one.node, 0) + one.gpus
            if gpus > node.idle:
                return f"node {one.node} is over-allocated"
        rotas.add(holder)
    return _wrong_shares(decision)


def _unfit(job: ViewJob, gang: Gang) -> str:
    lacks = job.lacks({type(gang.sync)})
    return f"runs no {lacks[0]} gangs" if lacks else gangs.misfit(gang, job.demand, job.batch_size)


def _wrong_rota(chosen: Collection[Gang]) -> str:
    if discord := in_turns.discord(chosen):
        return discord
    rota = in_turns.at_rest(chosen)
    return f"in rota {rota} no job has a turn" if rota else ""


def _wrong_shares(decision: Decision) -> str | None:
    """The first share of GPU time outside 0 … 1, or the first rota whose shares exceed 1 together."""
    spent: dict[str, float] = {}
    for choice in decision.choices:
        holder = in_turns.holder(choice.job_id, choice.gang)
        if not 0.0 <= choice.share <= 1.0 or (choice.share < 1.0 and holder == choice.job_id):
            return f"job {choice.job_id} has a share of {choice.share:g} of its GPUs"
        spent[holder] = spent.get(holder, 0.0) + choice.share
    broken = [holder for holder, share in spent.items() if share > 1.0 + ROUNDING]
    return f"shares of {spent[broken[0]]:g} in rota {broken[0]}" if broken else None


def _unknown_or_repeated(decision: Decision, jobs: Collection[JobId]) -> str | None:
    """The first job that has two choices, or is not in the view."""
    chosen = [choice.job_id for choice in decision.choices]
    if len(set(chosen)) == len(chosen) and all(job_id in jobs for job_id in chosen):
        return None
    times = Counter(chosen)
    wrong = [job_id for job_id, count in times.items() if count > 1 or job_id not in jobs]
    if wrong[0] not in jobs:
        return f"a configuration for job {wrong[0]}, which is not in the view"
    return f"{times[wrong[0]]} configurations for job {wrong[0]}"


def _moved_too_soon(view: View, decision: Decision) -> str | None:
    """The first job that may not be moved yet, and does not keep its gang."""
    gangs_of = {choice.job_id: choice.gang for choice in decision.choices}
    for job in view.jobs:
        if not job.stays or job.present is None:
            continue
        present, gang = job.present.gang, gangs_of.get(job.job_id)
        if gang != present and (gang is None or not gangs.retimes(present, gang)):
            return f"job {job.job_id} is moved, and may not be moved yet"
    return None


def _wrong_left(view: View, decision: Decision) -> str | None:
    """The first job in `left` that is placed, is there twice, or is not in the view."""
    jobs = {job.job_id for job in view.jobs} if decision.left else set()
    mentioned = {choice.job_id for choice in decision.choices}
    for left in decision.left:
        if left.job_id in mentioned:
            return f"job {left.job_id} is left out and also placed, or left out twice"
        if left.job_id not in jobs:
            return f"job {left.job_id} is left out, and is not in the view"
        mentioned.add(left.job_id)
    return None
