"""Which policy plans: the chosen one, else the configured one, else the stand-in. Volatile. Pure.

A fact only names a policy. Outside work (`Look`) finds out whether that policy is installed and can plan:
once in a life of the planner, and again each time the policy is chosen.
"""

from collections.abc import Iterator

from services.planner.core.tasks import Known, Look, Unfit
from services.planner.policies.contract.decision import ROUNDS, STAND_IN

STANDS_IN = Known(policy=STAND_IN, calls=dict(ROUNDS), sees_staying=True)
"""the stand-in is part of the planner, so nothing needs to be asked about it"""


class Candidates:
    """The chosen, the configured and the stand-in policy, and what is known of each."""

    def __init__(self, configured: str) -> None:
        self._configured = configured
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
        self._reconsider()

    def learn(self, answer: Known | Unfit) -> None:
        self._asked.discard(answer.policy)
        self._answers[answer.policy] = answer
        if isinstance(answer, Unfit):
            self._unreported.append(answer.policy)
        self._reconsider()

    def looks(self, chosen: str) -> list[Look]:
        """Questions that are still to be asked, each once."""
        if chosen in self._looked:
            return []
        self._looked.add(chosen)
        names = [
            name for name in self._names(chosen) if name not in self._answers and name not in self._asked
        ]
        self._asked.update(names)
        return [Look(policy=name) for name in names]

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
            one.policy: f"{first.policy} plans in place of {one.policy}: {one.reason}"
            for one in answers
            if isinstance(one, Unfit)
        }

    def _reconsider(self) -> None:
        self._firsts.clear()
        self._looked.clear()

    def _names(self, chosen: str) -> Iterator[str]:
        yield from dict.fromkeys((chosen or self._configured, self._configured))
