"""The contract of policies, and the rules that every decision must keep.

A policy is found by name and built from its options (see `options`). It is asked in two steps, both
pure: `wants` names the configurations whose throughput it needs, `decide` chooses. It keeps nothing
between calls but the `memory` of its last decision, which comes back in the next view, after a restart
of the planner too. It runs in a process of its own and under a time limit; one that raises, overruns or
breaks a rule below costs a note in the plan, which `fifo` then makes.

A policy plans gangs in lockstep. One that plans other modes of synchronisation lists all that it plans as
`modes`, a collection of the types in `schemas.placement`: a job that another policy runs in a mode that is
not listed is shown as one without a place.
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
    """What may call for a plan."""

    ROUND = "round"
    """a round begins"""
    ARRIVAL = "arrival"
    """a job entered the queue"""
    FREED = "freed"
    """GPUs came free: a job ended or was preempted, a placement was refused, a profile is over"""
    NODE = "node"
    """a node joined, came back or is drained no more"""


ROUNDS: Mapping[Trigger, PlanKind] = {
    Trigger.ROUND: PlanKind.FIRST,
    Trigger.ARRIVAL: PlanKind.FRAGMENT,
    Trigger.FREED: PlanKind.FRAGMENT,
    Trigger.NODE: PlanKind.FRAGMENT,
}
"""whole plans at round boundaries; between them idle GPUs are filled at once"""

STAND_IN = "fifo"
"""the policy that plans in place of one that cannot"""

MEMORY_BYTES_MAX = 524_288
NOTES_MAX = 20
NOTE_LENGTH_MAX = 1_000


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """One job's gang. The present one keeps the job where it is."""

    job_id: JobId
    gang: Gang
    throughput: float
    layer: Layer
    share: float = 1.0
    """of the time of its GPUs: below 1 only in a rota, whose shares sum to 1 or less"""


class Left(msgspec.Struct, frozen=True, kw_only=True):
    """A job that is left out, with the dominant reason."""

    job_id: JobId
    reason: Waiting
    detail: str = ""


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    choices: tuple[Choice, ...]
    """a first plan: all that shall run; a fragment plan: what shall start besides"""
    left: tuple[Left, ...] = ()
    """in the order of the queue"""
    stage: Stage = Stage.QUEUE
    objective: float = 0.0
    bound: float = 0.0
    gap: float = 0.0
    solve_s: float = 0.0
    configurations: WholeNumber = 0
    memory: bytes = b""
    again_at: float | None = None
    """ask again at this cluster time at the latest, even if nothing happens"""
    notes: tuple[str, ...] = ()
    measures: Measures = Measures()
    standings: Mapping[JobId, Standing] = {}
    """how jobs of the view stood, by the measures"""
    horizon_s: float | None = None
    """no schedule ends all jobs of the view in fewer seconds; None: no such bound is known"""


class Policy(Protocol):
    @property
    def calls(self) -> Mapping[Trigger, PlanKind]:
        """Which kind of plan each trigger calls for; triggers left out call for none."""
        ...

    def wants(self, view: View) -> Configurations:
        """The configurations to be estimated: none is an answer."""
        ...

    def decide(self, view: View, wanted: Configurations, estimates: Estimated, solve: Solve) -> Decision:
        """The same arguments, the same decision."""
        ...


def sees_staying(policy: object) -> bool:
    """Whether it is shown jobs that a first plan may not move, and keeps them where they are itself.

    From any other policy such jobs and their GPUs are kept apart.
    """
    return bool(getattr(policy, "sees_staying", False))


def moves_for_waiting(policy: object) -> bool:
    """Whether it moves running jobs only so that waiting ones can start.

    Then a first plan that it calls for at an event is made only while somebody waits, and is a fragment
    plan where that serves everybody.
    """
    return bool(getattr(policy, "moves_for_waiting", False))


def asks_modes(policy: object) -> bool:
    """Whether it looks at what each job runs; else jobs that lack one of its modes are not shown to it."""
    return bool(getattr(policy, "asks_modes", False))


def modes_of(policy: Policy) -> frozenset[type[Mode]]:
    """Lockstep, unless the policy says more."""
    return frozenset(getattr(policy, "modes", (Lockstep,)))


PolicyFactory = Callable[..., Policy]
"""What an entry point of `hopyard.policies` names: takes its `Options`, or nothing if it has none."""


def fault(view: View, decision: Decision) -> str | None:
    """The first rule that the decision breaks, in words; None for a sound one.

    Capacity: no node gives more GPUs than it may, those of a rota once. The gangs of a rota have the same
    members, each its own place, and together no more than all the time. One gang a job, of a size in its
    demand, on nodes of the view, of types it can run on and that run its mode: gangs are whole. Numbers,
    words and memory fit a message: nobody could read another plan. What is asked for later is later.
    A job that stays has the gang it has, perhaps with other turns.
    """
    wrong = _unsayable(view, decision) or _misjudged(view, decision)
    if decision.choices:
        wrong = wrong or _impossible(view, decision)
    return wrong or _twice(decision) or _moved(view, decision)


def bounded(decision: Decision) -> Decision:
    """The decision, with the largest number that a message holds for any beyond it.

    Only what tells of the plan, not what is in it: no job is so long that its policy could not plan.
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


def _unsayable(view: View, decision: Decision) -> str | None:
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
    return None


def _misjudged(view: View, decision: Decision) -> str | None:
    if not decision.standings:
        return None
    if strangers := decision.standings.keys() - {job.job_id for job in view.jobs}:
        return f"a standing of job {min(strangers)}"
    if not all(-MOST <= one <= MOST for each in _different(decision.standings) for one in each.numbers):
        return "a standing with a number that no message holds"
    return None


def _different(standings: Mapping[JobId, Standing]) -> Collection[Standing]:
    """Many jobs may stand alike."""
    return {id(each): each for each in standings.values()}.values()


def _impossible(view: View, decision: Decision) -> str | None:
    jobs = {job.job_id: job for job in view.jobs}
    named = {one.node for choice in decision.choices for one in choice.gang.members}
    nodes = {node.node_id: node for node in view.nodes if node.node_id in named}
    if broken := _wrongly_chosen(decision, jobs) or _out_of_turn([one.gang for one in decision.choices]):
        return broken
    given: dict[NodeId, int] = {}
    rotas: set[str] = set()
    for choice in decision.choices:
        job, gang = jobs[choice.job_id], choice.gang
        stays = job.present is not None and job.present.gang is gang  # the view shows no misfit
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
    return _overspent(decision)


def _unfit(job: ViewJob, gang: Gang) -> str:
    lacks = job.lacks({type(gang.sync)})
    return f"runs no {lacks[0]} gangs" if lacks else gangs.misfit(gang, job.demand, job.batch_size)


def _out_of_turn(chosen: Collection[Gang]) -> str:
    if discord := in_turns.discord(chosen):
        return discord
    rota = in_turns.at_rest(chosen)
    return f"in rota {rota} nobody has a turn" if rota else ""


def _overspent(decision: Decision) -> str | None:
    """Whether some GPUs' time is given away that is not there."""
    spent: dict[str, float] = {}
    for choice in decision.choices:
        holder = in_turns.holder(choice.job_id, choice.gang)
        if not 0.0 <= choice.share <= 1.0 or (choice.share < 1.0 and holder == choice.job_id):
            return f"job {choice.job_id} has a share of {choice.share:g} of its GPUs"
        spent[holder] = spent.get(holder, 0.0) + choice.share
    broken = [holder for holder, share in spent.items() if share > 1.0 + ROUNDING]
    return f"shares of {spent[broken[0]]:g} in rota {broken[0]}" if broken else None


def _wrongly_chosen(decision: Decision, jobs: Collection[JobId]) -> str | None:
    """Whether some job is not in the view, or chosen for twice."""
    chosen = [choice.job_id for choice in decision.choices]
    if len(set(chosen)) == len(chosen) and all(job_id in jobs for job_id in chosen):
        return None
    times = Counter(chosen)
    wrong = [job_id for job_id, count in times.items() if count > 1 or job_id not in jobs]
    return f"{times[wrong[0]]} configurations for job {wrong[0]}"


def _moved(view: View, decision: Decision) -> str | None:
    """Whether some job is not where it is to stay."""
    gangs_of = {choice.job_id: choice.gang for choice in decision.choices}
    for job in view.jobs:
        if not job.stays or job.present is None:
            continue
        present, gang = job.present.gang, gangs_of.get(job.job_id)
        if gang != present and (gang is None or not gangs.retimes(present, gang)):
            return f"job {job.job_id} is moved, and may not be yet"
    return None


def _twice(decision: Decision) -> str | None:
    """Whether some job is left out that is placed, or left out before."""
    mentioned = {choice.job_id for choice in decision.choices}
    for left in decision.left:
        if left.job_id in mentioned:
            return f"job {left.job_id} is left out, and placed or left out besides"
        mentioned.add(left.job_id)
    return None
