"""The planner's outside work: asks the estimator, runs policies; an operating error becomes a note."""

from typing import Protocol

import msgspec

from schemas.questions import Estimates
from schemas.settings import Settings
from services.planner.aside import Answer, Aside, Crashed
from services.planner.configurations import Configurations
from services.planner.dump import Dump
from services.planner.estimates import Estimated, Inquiry, Remembered, estimated, inquiry, question, unknown
from services.planner.gauges import Spared
from services.planner.planning import Decide, Failed, Want, decided_by, wanted_by
from services.planner.policies.contract import Decision
from services.planner.policies.fifo import Fifo
from services.planner.registry import Registry
from services.planner.solver import solving_from_now
from services.planner.tasks import Prepare, Prepared, Resolve, Resolved
from services.planner.view import View
from shared.runtime.bus import Unavailable
from shared.runtime.service import Ports

STAND_IN = "fifo"
WANT_DEADLINE_REAL_S = 5.0
GRACE_REAL_S = 2.0
"""what a policy may take beside its solve"""


class Runner(Protocol):
    """Where policies run."""

    async def call(self, request: Want | Decide, deadline_s: float) -> Answer:
        """Raises Crashed."""
        ...


class Inline:
    """In the caller's own process, to the end: for simulation, where seconds must not decide."""

    def __init__(self, settings: Settings) -> None:
        self._registry = Registry(settings)
        self._dump = Dump(settings.dump_problems)

    async def call(self, request: Want | Decide, deadline_s: float) -> Answer:  # noqa: ARG002
        if isinstance(request, Want):
            return wanted_by(self._registry, request)
        answer = decided_by(
            self._registry, request, self._dump.watching(request, solving_from_now(request.view.effort))
        )
        self._dump.write()
        return answer


class Desk:
    """Does `Prepare` and `Resolve`."""

    def __init__(self, settings: Settings, ports: Ports, runner: Runner) -> None:
        self._settings = settings
        self._ports = ports
        self._runner = runner
        self._remembered = Remembered()
        self._stand_in = Fifo(settings)
        self.spared = Spared()

    async def prepare(self, task: Prepare) -> Prepared:
        wanted, policy, notes = await self._wanted(task)
        estimates, more = await self._estimates(wanted, task.view)
        return Prepared(
            number=task.number, policy=policy, wanted=wanted, estimates=estimates, notes=(*notes, *more)
        )

    async def resolve(self, task: Resolve) -> Resolved:
        decision = await self._decision(task)
        if task.view.effort.modelled:
            await self._ports.clock.sleep(self._ports.clock.cluster_s(decision.solve_s))
        return Resolved(number=task.number, decision=decision)

    # ---- policies

    async def _wanted(self, task: Prepare) -> tuple[Configurations, str, tuple[str, ...]]:
        answer = await self._run(Want(policy=task.policy, view=task.view), WANT_DEADLINE_REAL_S)
        if isinstance(answer, Configurations):
            return answer, task.policy, ()
        self.spared.stood_in += 1
        return self._stand_in.wants(task.view), STAND_IN, (_replaced(answer),)

    async def _decision(self, task: Resolve) -> Decision:
        step = Decide(policy=task.policy, view=task.view, wanted=task.wanted, estimates=task.estimates)
        answer = await self._run(step, task.view.effort.budget_s + GRACE_REAL_S)
        notes: tuple[str, ...] = ()
        if isinstance(answer, Failed) and answer.crashed:
            self.spared.unsolved += 1
            notes = (f"{answer.reason}; planned without solving",)
            answer = await self._run(_without_solving(step), GRACE_REAL_S)
        if not isinstance(answer, Decision):
            self.spared.stood_in += 1
            notes = (_replaced(answer),)
            answer = self._stand_in_decides(task.view)
        return msgspec.structs.replace(answer, notes=(*notes, *answer.notes))

    def _stand_in_decides(self, view: View) -> Decision:
        wanted = self._stand_in.wants(view)
        about = inquiry(wanted, view)
        decision = self._stand_in.decide(view, wanted, self._remembered.recall(about).at(about.which))
        return msgspec.structs.replace(decision, memory=view.memory)

    async def _run(self, request: Want | Decide, deadline_s: float) -> Answer:
        try:
            return await self._runner.call(request, deadline_s)
        except Crashed as error:
            return Failed(reason=f"{request.policy} was stopped: {error}", crashed=True)

    # ---- estimates

    async def _estimates(self, wanted: Configurations, view: View) -> tuple[Estimated, tuple[str, ...]]:
        if not len(wanted):
            return unknown(0), ()
        about = inquiry(wanted, view)
        try:
            fresh = await self._ask(about)
        except (Unavailable, TimeoutError, ValueError) as error:
            recalled = self._remembered.recall(about)
            return recalled.at(about.which), (f"estimates of earlier plans: {error}",)
        self._remembered.learn(about, fresh)
        return fresh.at(about.which), ()

    async def _ask(self, about: Inquiry) -> Estimated:
        timeout_s = self._settings.estimate_timeout_real_s
        reply = await self._ports.bus.ask(question(about), timeout_s)
        if not isinstance(reply, Estimates):
            raise Unavailable(getattr(reply, "reason", "the estimator refused"))
        return estimated(reply, len(about.asked))


def build_runner(settings: Settings, ports: Ports) -> Inline | Aside:
    return Inline(settings) if ports.simulated else Aside(settings)


def _without_solving(step: Decide) -> Decide:
    effort = msgspec.structs.replace(step.view.effort, greedy=True)
    return msgspec.structs.replace(step, view=msgspec.structs.replace(step.view, effort=effort))


def _replaced(answer: Answer) -> str:
    reason = answer.reason if isinstance(answer, Failed) else "the policy's answer is of the wrong kind"
    return f"{reason}; planned by {STAND_IN}"
