"""The planner's outside work: asks the estimator, runs policies; an operating error becomes a note."""

import msgspec

from schemas.questions import Estimates
from schemas.settings import Settings
from services.planner.core.tasks import (
    Judge,
    Judged,
    Known,
    Look,
    Prepare,
    Prepared,
    Resolve,
    Resolved,
    Unfit,
)
from services.planner.core.without_estimates import keep_running
from services.planner.policies.classical.fifo import Fifo
from services.planner.policies.contract.configurations import Configurations
from services.planner.policies.contract.decision import STAND_IN, Decision, fault
from services.planner.policies.contract.estimates import (
    Estimated,
    Inquiry,
    Remembered,
    estimated,
    inquiry,
    question,
    unknown,
)
from services.planner.policies.contract.view import View
from services.planner.work.metrics import Fallbacks
from services.planner.work.policy_process import Answer, Request
from services.planner.work.steps import Decide, PolicyFailed, Want, shown, with_all_left
from shared.domain.stand_in import replaced
from shared.runtime.bus.contract import Unavailable
from shared.runtime.offload import Crashed, HelperProcess
from shared.runtime.service import Ports

GRACE_REAL_S = 2.0
"""seconds that a policy may take to decide, beside its solve"""


class Workers:
    """Does `Look`, `Judge`, `Prepare` and `Resolve`."""

    def __init__(
        self, settings: Settings, ports: Ports, policies: HelperProcess, *, grace_real_s: float = GRACE_REAL_S
    ) -> None:
        self._settings = settings
        self._grace_real_s = grace_real_s
        self._ports = ports
        self._policies = policies
        self._remembered = Remembered()
        self._stand_in = Fifo()
        self.fallbacks = Fallbacks()

    async def look(self, task: Look) -> Known | Unfit:
        answer = await self._run(task, self._settings.policy_load_real_s)
        if isinstance(answer, Known | Unfit):
            return answer
        passing = isinstance(answer, PolicyFailed) and answer.crashed
        return Unfit(policy=task.policy, reason=_reason(answer), passing=passing)

    async def judge(self, task: Judge) -> Judged:
        seen = await self.look(Look(policy=task.policy))
        return Judged(policy=task.policy, unfit=seen.reason if isinstance(seen, Unfit) else "")

    async def prepare(self, task: Prepare) -> Prepared:
        wanted, policy, notes = await self._wanted(task)
        estimates, failure = await self._estimates(wanted, task.view)
        more = (f"planned by estimates of earlier plans: {failure}",) if failure is not None else ()
        return Prepared(
            number=task.number,
            policy=policy,
            wanted=wanted,
            estimates=estimates,
            unanswered=failure is not None,
            notes=(*notes, *more),
        )

    async def resolve(self, task: Resolve) -> Resolved:
        decision = await self._decision(task)
        if task.view.effort.modelled:
            await self._ports.clock.sleep(self._ports.clock.cluster_s(decision.solve_s))
        return Resolved(number=task.number, decision=decision)

    # ---- policies

    async def _wanted(self, task: Prepare) -> tuple[Configurations, str, tuple[str, ...]]:
        want = Want(policy=task.policy, view=task.view, stands_in=task.stands_in)
        answer = await self._run(want, self._settings.policy_wants_real_s)
        if isinstance(answer, Configurations):
            return answer, task.policy, ()
        self.fallbacks.stood_in += 1
        seen = shown(self._stand_in, task.view, stands_in=True)
        return self._stand_in.wants(seen), STAND_IN, (_replaced(answer),)

    async def _decision(self, task: Resolve) -> Decision:
        step = Decide(
            policy=task.policy,
            view=task.view,
            wanted=task.wanted,
            estimates=task.estimates,
            stands_in=task.stands_in,
        )
        answer = await self._run(step, task.view.effort.budget_s + self._grace_real_s)
        notes: tuple[str, ...] = ()
        if isinstance(answer, PolicyFailed) and answer.crashed:
            self.fallbacks.unsolved += 1
            notes = (f"{answer.reason}; planned without solving",)
            answer = await self._run(_without_solving(step), self._grace_real_s)
        if not isinstance(answer, Decision):
            self.fallbacks.stood_in += 1
            notes = (_replaced(answer),)
            answer = self._stand_in_decides(task.view)
        return msgspec.structs.replace(answer, notes=(*notes, *answer.notes))

    def _stand_in_decides(self, view: View) -> Decision:
        seen = shown(self._stand_in, view, stands_in=True)
        wanted = self._stand_in.wants(seen)
        about = inquiry(wanted, seen)
        decision = self._stand_in.decide(seen, wanted, self._remembered.recall(about).at(about.which))
        if broken := fault(seen, decision):
            note = f"{STAND_IN} made an invalid decision: {broken}; running jobs were kept, none started"
            return keep_running(view, note)
        return msgspec.structs.replace(with_all_left(seen, decision), memory=view.memory)

    async def _run(self, request: Request, deadline_s: float) -> Answer:
        try:
            answer: Answer = await self._policies.call(request, deadline_s)
        except Crashed as error:
            return PolicyFailed(reason=f"{request.policy} was stopped: {error}", crashed=True)
        return answer

    # ---- estimates

    async def _estimates(self, wanted: Configurations, view: View) -> tuple[Estimated, Exception | None]:
        """The estimates, and why the estimator did not give them if they are those of earlier plans."""
        if not len(wanted):
            return unknown(0), None
        about = inquiry(wanted, view)
        try:
            fresh = await self._ask(about)
        except (Unavailable, TimeoutError, ValueError) as error:
            recalled = self._remembered.recall(about)
            return recalled.at(about.which), error
        self._remembered.learn(about, fresh)
        return fresh.at(about.which), None

    async def _ask(self, about: Inquiry) -> Estimated:
        timeout_s = self._settings.estimate_timeout_real_s
        reply = await self._ports.bus.ask(question(about), timeout_s)
        if not isinstance(reply, Estimates):
            raise Unavailable(getattr(reply, "reason", "the estimator refused"))
        return estimated(reply, len(about.asked))


def _without_solving(step: Decide) -> Decide:
    effort = msgspec.structs.replace(step.view.effort, greedy=True)
    return msgspec.structs.replace(step, view=msgspec.structs.replace(step.view, effort=effort))


def _replaced(answer: Answer) -> str:
    return replaced(_reason(answer), STAND_IN)


def _reason(answer: Answer) -> str:
    return answer.reason if isinstance(answer, PolicyFailed) else "the policy's answer is of the wrong kind"
