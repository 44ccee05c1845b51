"""The planner's decisions: when to plan, from what, and what comes of it.

It plans only while it leads, and one plan at a time, in steps: view → `Prepare` (what the policy wants
to know, estimated) → `Resolve` (the policy decides) → `PlanPublished`, which counts once it comes back
through the stream. What is in the making is volatile: a restart begins it anew.

A first plan opens the round when the profiler has, or after a grace without it. Fragment plans follow a
change (see `triggers`), when GPUs are idle and jobs wait: `fragment_settle_s` after it, so that what
happens together is planned together; at once for a job that no other one follows. Nothing changed, no
plan. A first plan that outlasts its round is published all the same, and the present round is planned
next; a fragment plan that does is dropped, since it would end with its round.

The later word on the policy wins: `PolicyChosen` over the settings; and a planner that comes to lead
with another policy in its settings than the planner before it announces that as a `PolicyChosen`.
"""

from collections.abc import Callable, Mapping

import msgspec

from schemas.base import Event
from schemas.events import PlanPublished, PolicyChosen
from schemas.plans import PlanKind
from schemas.settings import Settings
from services.planner.planning import kept
from services.planner.policies.contract import Decision, Policy, Trigger
from services.planner.publication import Frame, published
from services.planner.registry import UnknownPolicy
from services.planner.sight import idle_gpus, more_come, view_of, waiting
from services.planner.state import State, fold
from services.planner.tasks import Leadership, Prepare, Prepared, Resolve, Resolved
from services.planner.timetable import Timetable
from services.planner.triggers import is_a_plans_own, trigger_of
from services.planner.view import Effort, View
from shared.domain.cluster import round_at
from shared.domain.core import Effects, Input, Publish, Work, WorkFailed

NO_ESTIMATES = "no estimates at all: what runs was kept"


class Making(msgspec.Struct, frozen=True, kw_only=True):
    """A plan on its way."""

    number: int
    policy: str
    view: View
    made_from: int
    notes: tuple[str, ...]


class Planner:
    def __init__(
        self, settings: Settings, *, find: Callable[[str], Policy], effort: Effort, grace_s: float
    ) -> None:
        """`find` raises UnknownPolicy; `grace_s`: how long a round waits for the profiler."""
        self.state = State()
        self._settings = settings
        self._find = find
        self._effort = effort
        self._timetable = Timetable(settings, grace_s)
        self._token: int | None = None
        self._making: Making | None = None
        self._number = 0
        self._announced: str | None = None
        self._timer: float | None = None
        self._notes: tuple[str, ...] = ()

    # ---- the contract of a core

    def handle(self, message: Input, now: float) -> Effects:
        effects: Effects = []
        match message:
            case Event():
                self._learn(message, now)
            case Leadership():
                effects = self._lead(message, now)
            case Prepared():
                effects = self._resolve(message, now)
            case Resolved():
                effects = self._publish(message.number, message.decision, now)
            case WorkFailed(task=Prepare() | Resolve() as task, reason=reason):
                self._give_up(task.number, reason, now)
            case _:
                pass
        return effects + self._act(now)

    def next_wakeup(self) -> float | None:
        return self._timer

    def wake(self, now: float) -> Effects:
        return self._act(now)

    def resume(self, now: float) -> Effects:
        """Nothing to tell again: a plan that was in the making is made anew once this planner leads."""
        self._timetable.expect(PlanKind.FRAGMENT, now)
        return []

    # ---- facts

    def _learn(self, fact: Event, now: float) -> None:
        if isinstance(fact, PolicyChosen) and not self._learn_policy(fact):
            return
        fold(self.state, fact)
        if isinstance(fact, PlanPublished):
            self._see_plan(fact)
        trigger = trigger_of(fact)
        if trigger is not None:
            self._call(trigger, fact, now)

    def _see_plan(self, plan: PlanPublished) -> None:
        """Ours is out; or another planner leads, and the lease will tell so."""
        if self._token is not None and plan.token >= self._token:
            self._making = None
        if self._token is not None and plan.token > self._token:
            self._token = None

    def _learn_policy(self, fact: PolicyChosen) -> bool:
        """Whether there is such a policy; if not, the next plan says so."""
        if fact.policy == self._announced:
            self._announced = None
        if self._exists(fact.policy):
            return True
        self.state.notes.append(f"there is no policy {fact.policy}; {self._policy()} goes on")
        return False

    def _call(self, trigger: Trigger, fact: Event, now: float) -> None:
        kind = self._calls().get(trigger)
        if kind is None or (kind == PlanKind.FIRST and is_a_plans_own(fact)):
            return
        if trigger is Trigger.ARRIVAL and not more_come(self.state):
            self._timetable.expect(kind, now)
        else:
            self._timetable.settle(kind, now)

    def _calls(self) -> Mapping[Trigger, PlanKind]:
        return self._find(self._policy()).calls

    def _policy(self) -> str:
        chosen = self.state.policy
        return chosen if chosen and self._exists(chosen) else self._settings.policy

    def _exists(self, policy: str) -> bool:
        try:
            self._find(policy)
        except UnknownPolicy:
            return False
        return True

    # ---- leading

    def _lead(self, news: Leadership, now: float) -> Effects:
        if news.token != self._token:
            self._making = None
        self._token = news.token
        if news.token is None or not news.announce or self._policy() == self._settings.policy:
            return []
        self._announced = self._settings.policy
        return [Publish(PolicyChosen(at=now, policy=self._settings.policy))]

    # ---- when

    def _act(self, now: float) -> Effects:
        """Begin a plan if one is due; else set the timer for the next that may be."""
        self._timer = None
        if self._token is None or self._making is not None or self._announced is not None:
            return []
        due_at, kind = self._next(now)
        while due_at <= now:
            if kind == PlanKind.FIRST or self._has_room():
                return self._begin(kind, now)
            self._timetable.skip(kind)
            due_at, kind = self._next(now)
        self._timer = due_at
        return []

    def _next(self, now: float) -> tuple[float, PlanKind]:
        opening = self._timetable.boundary(now)
        if Trigger.ROUND in self._calls():
            state = self.state
            opening = self._timetable.opening(now, planned=state.planned_round, opened=state.opened_round)
        return self._timetable.next(now, opening)

    def _has_room(self) -> bool:
        """Whether some waiting job could start on the idle GPUs."""
        idle = idle_gpus(self.state)
        return any(self.state.jobs[job_id].demand[0] <= idle for job_id in waiting(self.state))

    # ---- the steps of a plan

    def _begin(self, kind: PlanKind, now: float) -> Effects:
        self._timetable.begun(kind)
        policy = self._policy()
        view = view_of(
            self.state,
            kind=kind,
            at=now,
            round_s=self._settings.round_s,
            policy=policy,
            effort=self._effort,
        )
        self._number += 1
        self._making = Making(
            number=self._number,
            policy=policy,
            view=view,
            made_from=self.state.seq,
            notes=(*self.state.notes, *self._notes),
        )
        self._notes = ()
        return [Work(Prepare(number=self._number, policy=policy, view=view))]

    def _resolve(self, answer: Prepared, now: float) -> Effects:
        making = self._making
        if making is None or making.number != answer.number:
            return []
        self._making = msgspec.structs.replace(making, notes=(*making.notes, *answer.notes))
        if len(answer.wanted) and not answer.estimates.known():
            return self._publish(answer.number, kept(making.view, NO_ESTIMATES), now)
        task = Resolve(
            number=answer.number,
            policy=answer.policy,
            view=making.view,
            wanted=answer.wanted,
            estimates=answer.estimates,
        )
        return [Work(task)]

    def _publish(self, number: int, decision: Decision, now: float) -> Effects:
        making = self._making
        if making is None or making.number != number or self._token is None:
            return []
        if self._outlived(making, now):
            self._making = None
            return []
        if decision.again_at is not None:
            kind = self._calls().get(Trigger.FREED, PlanKind.FRAGMENT)
            self._timetable.expect(kind, decision.again_at)
        frame = Frame(
            view=making.view,
            policy=making.policy,
            token=self._token,
            made_from=making.made_from,
            at=now,
            notes=making.notes,
        )
        return [Publish(published(self.state, frame, decision))]

    def _outlived(self, making: Making, now: float) -> bool:
        past = round_at(now, self._settings.round_s) > making.view.round
        return past and making.view.kind == PlanKind.FRAGMENT

    def _give_up(self, number: int, reason: str, now: float) -> None:
        """Outside work failed as a whole: try again a little later, and say so then."""
        making = self._making
        if making is None or making.number != number:
            return
        self._making = None
        self._notes = (reason,)
        self._timetable.hold(now)
        self._timetable.settle(making.view.kind, now)
