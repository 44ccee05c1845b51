"""The planner's decisions: when to plan, from which view, and which plan to publish.

It plans only while it leads, one plan at a time, in steps: view → `Prepare` (the policy says which estimates
it wants, and the estimator gives them) → `Resolve` (the policy decides) → `PlanPublished`, which counts once
the stream brings it back. A plan in the making is volatile: a restart begins it again.

A first plan is made at the start of a round: once the profiler has opened the round, or after a grace period
without the profiler. After a change (see `triggers`) a fragment plan is made if GPUs are idle and jobs wait.
A policy may call for a first plan after a change instead; if it moves running jobs only so that waiting ones
can start, a first plan is made only when a fragment plan cannot serve all that wait. Either is made
`fragment_settle_s` after the change, so that one plan answers what happens together; but at once when a job
arrives and no other job is on its way to the queue. Without a change there is no plan. A first plan that is
ready after its round has ended is published all the same, and the present round is planned next; such a
fragment plan is dropped, since it would end with its round.

The latest choice of a policy wins: a `PolicyChosen` over the settings. A planner that begins to lead with
another policy in its settings than the previous leader announces it by a `PolicyChosen`. A fact only names a
policy; outside work finds out whether it can plan (`candidates`), and until then plans wait and triggers are
kept. Admission asks the same of a policy before it is chosen (`policy_checks`).
"""

import math
from collections.abc import Mapping

import msgspec

from schemas.base import Event
from schemas.events import (
    JobHeld,
    JobPreempted,
    JobQueued,
    JobReleased,
    JobTypeEstimated,
    PlacementRefused,
    PlanPublished,
    PolicyChosen,
    ProfilingPlanned,
)
from schemas.ids import JobId
from schemas.plans import PlanKind
from schemas.settings import Settings
from services.planner.core.candidates import Candidates
from services.planner.core.folds import FOLDS, fold
from services.planner.core.policy_checks import PolicyChecks
from services.planner.core.publication import (
    Frame,
    GpusByType,
    chose_changed_nodes,
    published,
    takes_a_place,
)
from services.planner.core.restart_times import SWITCH_S
from services.planner.core.schedule import Call, Schedule
from services.planner.core.state import State, is_any_coming, is_on_hold, is_put_off
from services.planner.core.staying import Stays, charge, staying
from services.planner.core.tasks import (
    Judge,
    Judged,
    Known,
    Leadership,
    Look,
    Prepare,
    Prepared,
    Resolve,
    Resolved,
    Unfit,
)
from services.planner.core.triggers import CALLS_FOR_NOTHING, is_a_plans_own, trigger_of
from services.planner.core.viewing import Memo, closed_nodes, idle_gpus, left_on_hold, view_of, waiting
from services.planner.core.without_estimates import keep_running
from services.planner.policies.contract.decision import NOTES_MAX, SOONEST_S, Decision, Trigger
from services.planner.policies.contract.view import View
from services.planner.solver.effort import Effort
from shared.domain.cluster import round_at, round_by
from shared.domain.core import Asked, Effects, Input, Publish, Work, WorkFailed

AFTER_A_RESTART = (Trigger.FREED, Trigger.ARRIVAL, Trigger.NODE)
"""what may have happened that no plan has answered yet"""
MANY = 20
"""plans without an answer of the estimator from which on the wait for the next is the longest"""
NO_ESTIMATES = "no estimates at all: running jobs were kept, none started"


class Making(msgspec.Struct, frozen=True, kw_only=True):
    """A plan that is being made."""

    number: int
    call: Call
    policy: Known
    stands_in: bool
    """whether the policy plans in place of the chosen one"""
    view: View
    stays_until: float
    """cluster time at which the first of the jobs that it has to leave in place may be moved"""
    made_from: int
    """stream sequence of the last fact in the view"""
    node_facts: int
    """`State.node_facts` when the view was made"""
    on_hold: tuple[JobId, ...]
    """see `Frame`"""
    notes: tuple[str, ...]
    unanswered: bool = False
    """whether the estimator did not answer"""


class Planner:
    def __init__(self, settings: Settings, *, effort: Effort, grace_s: float) -> None:
        """`grace_s`: how long a round waits for the profiler."""
        self.state = State()
        self._settings = settings
        self._candidates = Candidates(settings.policy, settings.speed)
        self._checks = PolicyChecks()
        self._gathered: dict[tuple[Trigger, bool], float] = {}
        """triggers that came before the policy was known, each with whether a plan caused it: when a plan is
        due for it"""
        self._effort = effort
        self._schedule = Schedule(settings, grace_s)
        self._memo = Memo()
        self._by_type = GpusByType()
        self._token: int | None = None
        self._making: Making | None = None
        self._number = 0
        self._announced: str | None = None
        self._timer: float | None = None
        self._notes: tuple[str, ...] = ()
        """notes of plans that were not published, for the next one"""
        self._unanswered = 0
        """plans in a row for which the estimator did not answer"""

    # ---- the contract of a core

    def handle(self, message: Input, now: float) -> Effects:
        effects: Effects = []
        match message:
            case Event() if type(message) in FOLDS:
                self._learn(message, now)
                if type(message) in CALLS_FOR_NOTHING and (self._timer is None or message.at < self._timer):
                    return []  # the next plan is due when it was due before
            case Leadership():
                effects = self._lead(message, now)
            case Prepared():
                effects = self._resolve(message, now)
            case Resolved():
                effects = self._publish(message.number, message.decision, now)
            case Known() | Unfit():
                self._learn_fitness(message, now)
            case Asked() | Judged() | WorkFailed(task=Judge()):
                effects = self._checks.handle(message)
            case WorkFailed(task=Look(policy=policy), reason=reason):
                self._learn_fitness(Unfit(policy=policy, reason=reason, passing=True), now)
            case WorkFailed(task=Prepare() | Resolve() as task, reason=reason):
                self._give_up(task.number, reason, now)
            case _:
                pass
        return effects + self._looks(now) + self._act(now)

    def next_wakeup(self) -> float | None:
        timer = math.inf if self._timer is None else self._timer
        due = min(timer, self._candidates.due(self.state.policy))
        return None if due == math.inf else due

    def wake(self, now: float) -> Effects:
        return self._looks(now) + self._act(now)

    def _looks(self, now: float) -> Effects:
        return [Work(look) for look in self._candidates.looks(self.state.policy, now)]

    def resume(self, now: float) -> Effects:
        """Publish nothing: once this planner leads, it plans as if all had just happened.

        A snapshot tells neither which plans were due nor whether one was in the making.
        """
        self._candidates.resume()
        if self.state.jobs:
            for trigger in AFTER_A_RESTART:
                self._call(trigger, now, own=False)
        return self._looks(now)

    def troubles(self) -> tuple[str, ...]:
        """Settings that are not in effect."""
        return self._candidates.troubles(self.state.policy)

    # ---- facts

    def _learn(self, fact: Event, now: float) -> None:
        if isinstance(fact, PlanPublished):
            charge(self.state, fact, self._settings)
        fold(self.state, fact)
        match fact:
            case PolicyChosen():
                self._learn_choice(fact)
                if self.state.jobs:
                    self._call(Trigger.FREED, self._schedule.settled(now), own=False)
            case PlanPublished():
                self._see_plan(fact)
            case _:
                pass
        trigger = Trigger.NODE if self._takes_gpus(fact) else trigger_of(fact)
        if trigger is not None and not self._changes_nothing(fact):
            lone = trigger is Trigger.ARRIVAL and not is_any_coming(self.state)
            at = now if lone else self._schedule.settled(now)
            own = is_a_plans_own(fact) and not self._is_released(fact)
            self._call(trigger, max(at, self._put_off_until(fact)), own=own)

    def _changes_nothing(self, fact: Event) -> bool:
        """Whether a plan would be the same without the fact: its job is on hold, or has the same GPUs."""
        match fact:
            case JobQueued() | JobTypeEstimated():
                return is_on_hold(self.state, fact.job_id)
            case JobHeld():
                return fact.job_id not in self.state.claims.of_job
            case JobReleased():
                return fact.job_id not in self.state.waiting
            case _:
                return False

    def _is_released(self, fact: Event) -> bool:
        """Whether a plan stopped a job that was on hold, and the job was released in the meantime."""
        if not isinstance(fact, JobPreempted) or fact.cause is None:
            return False
        return fact.cause.on_hold and not is_on_hold(self.state, fact.job_id)

    def _takes_gpus(self, fact: Event) -> bool:
        """Whether a round opens with measurements on GPUs that are not idle, and that jobs can leave.

        Measurements that are added within a round take GPUs from no job.
        """
        if not isinstance(fact, ProfilingPlanned):
            return False
        nodes, claims = self.state.nodes, self.state.claims
        there = {run.node_id for run in fact.runs if run.node_id in nodes}
        full = {one for one in there if claims.claimed.get(one, 0) > nodes[one].node.gpus}
        return any(
            not full.isdisjoint(claims.planned[placement_id].gang.nodes)
            for job_id, placement_id in (claims.of_job.items() if full else ())
            if job_id in self.state.jobs and self.state.jobs[job_id].preemptible
        )

    def _put_off_until(self, fact: Event) -> float:
        """The time until which a refused job is not planned; 0 for a fact that is no refusal."""
        job = self.state.jobs.get(fact.job_id) if isinstance(fact, PlacementRefused) else None
        return 0.0 if job is None else job.put_off_until

    def _see_plan(self, plan: PlanPublished) -> None:
        """End the making of our own plan; stop leading where the plan has a newer leader's token."""
        if self._token is not None and plan.token >= self._token:
            self._making = None
        if self._token is not None and plan.token > self._token:
            self._token = None

    def _learn_choice(self, fact: PolicyChosen) -> None:
        if fact.policy == self._announced:
            self._announced = None
        self._candidates.forget(fact.policy)

    def _learn_fitness(self, answer: Known | Unfit, now: float) -> None:
        self._candidates.learn(answer, now)
        if self._policy() is not None:
            gathered, self._gathered = self._gathered, {}
            for (trigger, own), at in gathered.items():
                self._call(trigger, at, own=own)

    def _call(self, trigger: Trigger, at: float, *, own: bool) -> None:
        """Have a plan made at `at`, of the kind the policy calls for. `own`: a plan caused the trigger."""
        policy = self._policy()
        if policy is None:
            self._gathered[trigger, own] = min(at, self._gathered.get((trigger, own), at))
            return
        kind = policy.calls.get(trigger)
        if kind is not None and not (own and kind == PlanKind.FIRST):
            self._schedule.expect(_call_for(kind, policy), at)

    def _policy(self) -> Known | None:
        """The policy that plans; None until that is known."""
        return self._candidates.first(self.state.policy)

    # ---- leading

    def _lead(self, lead: Leadership, now: float) -> Effects:
        if lead.token != self._token:
            self._making = None
        self._token = lead.token
        configured = self._settings.policy
        if lead.token is None or not lead.announce or (self.state.policy or configured) == configured:
            return []
        self._announced = configured
        return [Publish(PolicyChosen(at=now, policy=configured))]

    # ---- when

    def _act(self, now: float) -> Effects:
        """Begin a plan if one is due; else set the timer for the next that may be."""
        self._timer = None
        policy = self._policy()
        if policy is None or self._token is None or self._making is not None or self._announced is not None:
            return []
        due_at, call = self._next(policy.calls, now)
        while due_at <= now:
            kind = self._kind(call, policy, now)
            if kind is not None:
                return self._begin(kind, Call.FIRST if kind is PlanKind.FIRST else call, policy, now)
            self._schedule.skip(call)
            self._expect_put_off(now)
            due_at, call = self._next(policy.calls, now)
        self._timer = due_at
        return []

    def _next(self, calls: Mapping[Trigger, PlanKind], now: float) -> tuple[float, Call]:
        opening = None
        if Trigger.ROUND in calls:
            state, round_s = self.state, self._settings.round_s
            planned = round_by(state.planned_round, state.planned_at, round_s)
            opened = round_by(state.opened_round, state.opened_at, round_s)
            opening = self._schedule.opening(now, planned=planned, opened=opened)
        return self._schedule.next(now, opening)

    def _kind(self, call: Call, policy: Known, now: float) -> PlanKind | None:
        """Which kind of plan to make; None: no plan, since it would change nothing."""
        if call is Call.FIRST:
            return PlanKind.FIRST
        if call is Call.HELP and any(is_on_hold(self.state, one) for one in self.state.claims.of_job):
            return PlanKind.FIRST
        jobs = [self.state.jobs[job_id] for job_id in waiting(self.state)]
        least = [job.demand[0] for job in jobs if job.put_off_until <= now]
        if not least:
            return None
        if policy.fills_any_room:
            least = [1] * len(least)
        idle = idle_gpus(self.state, self._memo, closed_nodes(self.state, now, self._settings, self._memo))
        if call is Call.FRAGMENT:
            return PlanKind.FRAGMENT if min(least) <= idle else None
        return PlanKind.FRAGMENT if sum(least) <= idle else PlanKind.FIRST

    # ---- the steps of a plan

    def _begin(self, kind: PlanKind, call: Call, policy: Known, now: float) -> Effects:
        assert self._token is not None, "only the leader plans"
        assert self._making is None, "one plan at a time"
        self._schedule.begun(call)
        self._expect_put_off(now)
        shut = closed_nodes(self.state, now, self._settings, self._memo)
        stays = staying(self.state, now, self._settings, shut) if kind is PlanKind.FIRST else Stays()
        view = view_of(
            self.state,
            kind=kind,
            at=now,
            round_s=self._settings.round_s,
            restart_s=self._settings.restart_prior_s,
            switch_s=SWITCH_S[self._settings.switching],
            policy=policy.policy,
            effort=self._effort,
            memo=self._memo,
            staying=stays.placements,
            shown=policy.sees_staying,
            closed=shut,
        )
        self._number += 1
        stands_in = self._candidates.stands_in(policy, self.state.policy)
        self._making = Making(
            number=self._number,
            call=call,
            policy=policy,
            stands_in=stands_in,
            view=view,
            stays_until=stays.until,
            made_from=self.state.seq,
            node_facts=self.state.node_facts,
            on_hold=left_on_hold(self.state),
            notes=(*self._candidates.notes(self.state.policy), *self._notes),
        )
        self._notes = ()
        return [Work(Prepare(number=self._number, policy=policy.policy, view=view, stands_in=stands_in))]

    def _resolve(self, answer: Prepared, now: float) -> Effects:
        making = self._making
        if making is None or making.number != answer.number:
            return []
        self._making = making = msgspec.structs.replace(
            making, notes=(*making.notes, *answer.notes), unanswered=answer.unanswered
        )
        if len(answer.wanted) and not answer.estimates.known():
            return self._publish(answer.number, keep_running(making.view, NO_ESTIMATES), now)
        task = Resolve(
            number=answer.number,
            policy=answer.policy,
            view=making.view,
            wanted=answer.wanted,
            estimates=answer.estimates,
            stands_in=making.stands_in or answer.policy != making.policy.policy,
        )
        return [Work(task)]

    def _plan_again(self, now: float) -> None:
        """Have a plan made in place of one for which the estimator did not answer.

        The next one is made later each time, a round later at most.
        """
        wait_s = self._settings.fragment_settle_s * 2.0 ** min(self._unanswered, MANY)
        self._unanswered += 1
        for trigger in AFTER_A_RESTART:
            self._call(trigger, now + min(wait_s, self._settings.round_s), own=False)

    def _publish(self, number: int, decision: Decision, now: float) -> Effects:
        making = self._making
        if making is None or making.number != number or self._token is None:
            return []
        nodes_changed = making.node_facts != self.state.node_facts
        if self._outlived(making, now):
            return self._drop(making, making.call, now)
        if making.call is Call.HELP and decision.left:  # running jobs may have to move for those left out
            return self._drop(making, Call.FIRST, now)
        if nodes_changed and takes_a_place(self.state, making.view, decision):
            return self._drop(making, Call.FIRST, now)
        if not making.unanswered:
            self._unanswered = 0
        elif decision.left:
            self._plan_again(now)
        self._expect_again(making, decision)
        if nodes_changed and chose_changed_nodes(self.state, making.view, decision):
            self._call(Trigger.NODE, self._schedule.settled(now), own=False)
        frame = Frame(
            view=making.view,
            policy=making.policy.policy,
            token=self._token,
            made_from=making.made_from,
            at=now,
            notes=_newest(*making.notes),
            node_facts=making.node_facts,
            on_hold=making.on_hold,
        )
        return [Publish(published(self.state, frame, decision, self._by_type))]

    def _drop(self, making: Making, call: Call, now: float) -> Effects:
        """Publish no plan, and have another one made at once."""
        self._making = None
        self._notes = _newest(*making.notes)
        self._schedule.expect(call, now)
        return []

    def _expect_again(self, making: Making, decision: Decision) -> None:
        """Have a plan made when the policy asks for one, or when a job that had to stay may be moved."""
        call = _call_for(making.policy.calls.get(Trigger.FREED, PlanKind.FRAGMENT), making.policy)
        if decision.again_at is not None:
            self._schedule.expect(call, max(decision.again_at, making.view.at + SOONEST_S))
        if call is not Call.FRAGMENT and decision.left and making.stays_until < math.inf:
            self._schedule.expect(call, making.stays_until)

    def _expect_put_off(self, now: float) -> None:
        """Have a plan made when the first of the jobs that are not planned after refusals may be planned."""
        state = self.state
        times = [
            state.jobs[job_id].put_off_until for job_id in state.waiting if is_put_off(state, job_id, now)
        ]
        if times:
            self._call(Trigger.FREED, min(times), own=False)

    def _outlived(self, making: Making, now: float) -> bool:
        """Whether it is a fragment plan whose round has ended."""
        past = round_at(now, self._settings.round_s) > making.view.round
        return past and making.view.kind == PlanKind.FRAGMENT

    def _give_up(self, number: int, reason: str, now: float) -> None:
        """Outside work failed: make the plan a little later, with the reason as a note."""
        making = self._making
        if making is None or making.number != number:
            return
        self._making = None
        self._notes = _newest(*making.notes, reason)
        self._schedule.hold(now)
        self._schedule.expect(making.call, self._schedule.settled(now))


def _newest(*notes: str) -> tuple[str, ...]:
    """The notes, each once, without the oldest where there are many."""
    return tuple(dict.fromkeys(notes))[-NOTES_MAX:]


def _call_for(kind: PlanKind, policy: Known) -> Call:
    if kind is PlanKind.FIRST and policy.moves_for_waiting:
        return Call.HELP
    return Call(kind.value)
