"""What a simulation submits, under which keys, and which jobs are refused: the same in both engines. Pure."""

from collections import Counter
from collections.abc import Callable

from schemas.results import RefusedJob
from schemas.scenarios import Arrival
from schemas.views import Problem
from services.admission.questions import Submit

OnAnswer = Callable[[object], None]
"""called with the answer to a submission: `Submitted`, or a problem"""


def ignored_answer(_: object) -> None: ...


class Submissions:
    """The submissions of one run. Each is asked for, and then answered, in order of arrival."""

    def __init__(self, on_answer: OnAnswer = ignored_answer) -> None:
        self.refused: list[RefusedJob] = []
        self._on_answer = on_answer
        self._answered = 0
        self._keys: Counter[str] = Counter()

    def of(self, arrival: Arrival) -> Submit:
        """The submission of a job. A namesake at the same time gets another key, to be another job."""
        key = f"{arrival.at_s}/{arrival.job.name}"
        self._keys[key] += 1
        namesakes = self._keys[key]
        return Submit(job=arrival.job, key=key if namesakes == 1 else f"{key}/{namesakes}")

    def answered(self, arrival: Arrival, answer: object) -> None:
        self._answered += 1
        if isinstance(answer, Problem):
            reason = f"{answer.field}: {answer.detail}" if answer.field else answer.detail
            job = RefusedJob(number=self._answered, name=arrival.job.name, at_s=arrival.at_s, reason=reason)
            self.refused.append(job)
        self._on_answer(answer)
