"""Which policy plans: the chosen one, else the configured one, else the stand-in. Volatile. Pure.

A fact only names a policy. Outside work (`Look`) finds out whether that policy is installed and can plan:
once in a life of the planner, and again each time the policy is chosen. Where the look itself fails, as on a
machine without memory, the policy is looked at again a while later, and counts as unfit until then.
"""

import math
from collections.abc import Iterator

from services.planner.core.tasks import Known, Look, Unfit
from services.planner.policies.contract.decision import ROUNDS, STAND_IN
from shared.domain.stand_in import unfit

STANDS_IN = Known(policy=STAND_IN, calls=dict(ROUNDS), sees_staying=True)
"""the stand-in is part of the planner, so nothing needs to be asked about it"""


LOOK_AGAIN_REAL_S = 60.0
"""the wait after a look that failed; it doubles with each that fails after that"""
LOOK_AGAIN_REAL_S_MAX = 3600.0
MANY = 10
"""failures from which on the wait is the longest"""


class Candidates:
    """The chosen, the configured and the stand-in policy, and what is known of each."""

    def __init__(self, configured: str, speed: float) -> None:
        """`speed`: cluster seconds in a real one."""
        self._configured = configured
        self._speed = speed
        self._failures: dict[str, int] = {}
        """looks in a row that failed, by policy"""
        self._again: dict[str, float] = {}
        """when to look at a policy again, by policy"""
        self._answers: dict[str, Known | Unfit] = {}
        self._asked: set[str] = set()
        self._unreported: list[str] = []
        self._firsts: dict[str, Known | None] = {}
        """by chosen policy: the policy that plans; emptied whenever an answer comes"""
        self._looked: set[str] = set()
        """chosen policies whose questions are all asked; emptied whenever an answer comes"""

    def resume(self) -> None:
        """After a replay: its questions were never sent, so ask them again."""
        self._asked.clear()
        self._reconsider()

    def forget(self, policy: str) -> None:
        """Ask about a policy again: it was chosen again, and may have been repaired since."""
        self._answers.pop(policy, None)
        self._forget_failures(policy)
        self._reconsider()

    def learn(self, answer: Known | Unfit, now: float) -> None:
        known, name = self._answers.get(answer.policy), answer.policy
        self._asked.discard(name)
        self._answers[name] = answer
        if isinstance(answer, Unfit) and answer != known:
            self._unreported.append(name)
        if isinstance(answer, Unfit) and answer.passing:
            failures = self._failures.get(name, 0)
            wait_s = min(LOOK_AGAIN_REAL_S * 2.0 ** min(failures, MANY), LOOK_AGAIN_REAL_S_MAX)
            self._failures[name], self._again[name] = failures + 1, now + wait_s * self._speed
        else:
            self._forget_failures(name)
        self._reconsider()

    def _forget_failures(self, policy: str) -> None:
        self._failures.pop(policy, None)
        self._again.pop(policy, None)

    def due(self, chosen: str) -> float:
        """When to look at a policy again; infinite: at none."""
        times = [self._again[name] for name in self._names(chosen) if name in self._again]
        return min(times, default=math.inf)

    def looks(self, chosen: str, now: float) -> list[Look]:
        """Questions that are still to be asked, each once."""
        if chosen in self._looked and now < self.due(chosen):
            return []
        self._looked.add(chosen)
        names = [name for name in self._names(chosen) if self._is_to_be_asked(name, now)]
        self._asked.update(names)
        for name in names:
            self._again.pop(name, None)
        return [Look(policy=name) for name in names]

    def _is_to_be_asked(self, name: str, now: float) -> bool:
        again = now >= self._again.get(name, math.inf)
        return name not in self._asked and (again or name not in self._answers)

    def first(self, chosen: str) -> Known | None:
        """The policy that plans; None until that is known."""
        if chosen not in self._firsts:
            self._firsts[chosen] = self._first_fit(chosen)
        return self._firsts[chosen]

    def stands_in(self, policy: Known, chosen: str) -> bool:
        """Whether the policy plans in place of the chosen one."""
        return policy.policy != (chosen or self._configured)

    def _first_fit(self, chosen: str) -> Known | None:
        for name in self._names(chosen):
            match self._answers.get(name):
                case Known() as known:
                    return known
                case None:
                    return None
                case Unfit():
                    pass
        return STANDS_IN

    def notes(self, chosen: str) -> tuple[str, ...]:
        """Notes for the next plan: the policies found unfit since the last plan, and why."""
        unreported, self._unreported = self._unreported, []
        return tuple(note for name, note in self._unfit(chosen).items() if name in unreported)

    def troubles(self, chosen: str) -> tuple[str, ...]:
        """Policies that should plan and cannot, and why."""
        return tuple(self._unfit(chosen).values())

    def _unfit(self, chosen: str) -> dict[str, str]:
        """By name of an unfit policy: why it does not plan, and which one does."""
        first = self.first(chosen)
        if first is None:
            return {}
        answers = [self._answers.get(name) for name in self._names(chosen)]
        return {
            one.policy: unfit(one.policy, one.reason, by=first.policy)
            for one in answers
            if isinstance(one, Unfit)
        }

    def _reconsider(self) -> None:
        self._firsts.clear()
        self._looked.clear()

    def _names(self, chosen: str) -> Iterator[str]:
        yield from dict.fromkeys((chosen or self._configured, self._configured))
