"""Answers whether a policy could plan. Questions about one policy share one check. Volatile. Pure."""

from schemas.base import Message
from schemas.questions import JudgePolicy, PolicyVerdict, Refused
from services.planner.core.tasks import Judge, Judged
from shared.domain.core import Asked, Effects, Reply, Work, WorkFailed


class PolicyChecks:
    def __init__(self) -> None:
        self._asking: dict[str, list[int]] = {}
        """tickets, by policy"""

    def handle(self, message: Asked | Judged | WorkFailed) -> Effects:
        match message:
            case Asked(ticket, JudgePolicy(policy=policy)):
                return self._ask(policy, ticket)
            case Judged(policy=policy, unfit=unfit):
                return self._answer(policy, PolicyVerdict(unfit=unfit))
            case WorkFailed(Judge(policy=policy), reason):
                return self._answer(policy, Refused(reason=f"policy {policy} could not be checked: {reason}"))
            case Asked(ticket, question):
                reason = f"the planner does not answer {type(question).__name__}"
                return [Reply(ticket, Refused(reason=reason))]
            case _:
                raise TypeError(f"not about a check of a policy: {message}")

    def _ask(self, policy: str, ticket: int) -> Effects:
        asking = self._asking.setdefault(policy, [])
        asking.append(ticket)
        return [Work(Judge(policy=policy))] if len(asking) == 1 else []

    def _answer(self, policy: str, reply: Message) -> Effects:
        return [Reply(ticket, reply) for ticket in self._asking.pop(policy, [])]
