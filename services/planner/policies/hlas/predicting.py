"""How many rounds a job will run further (HLAS-P, section V-A): predictors, and how they are used. Pure.

A predictor is a function from `JobSoFar` to rounds, or to None if it cannot predict; an entry point of
`hopyard.predictors` names it. It may know more of the job than the policies do.

    HLAS-P      the fit of the losses says fewer than α rounds more        0
                ended jobs of the same workload ran on, from here          (α + their mean) / 2
                neither                                                    α if there was a fit, else 0
    HLAS-L      all rounds that the fit of the losses leaves

α = ⌈E1 / T̄⌉: the rounds after which a job leaves the first queue. The paper also has a rule for jobs that
are far behind their group in an architecture search; it is left out, since such groups are not known here.
"""

from collections.abc import Callable, Sequence

import msgspec

from services.planner.policies.contract.view import ViewJob
from shared.domain.sums import plain_sum
from shared.runtime.plugins import PREDICTORS


class JobSoFar(msgspec.Struct, frozen=True, kw_only=True):
    """A job whose further rounds are to be predicted."""

    job: ViewJob
    rounds: int
    """rounds that it has run"""
    round_samples: float
    """samples of all tasks of a round"""
    ended: Sequence[float]
    """rounds of each ended job of its workload"""


Predictor = Callable[[JobSoFar], float | None]


def named(name: str) -> Predictor:
    """The installed predictor of this name. Raises ValueError if there is none."""
    if name not in PREDICTORS.names():
        raise ValueError(f"predictor {name} is unknown; there are {', '.join(PREDICTORS.names())}")
    found: Predictor = PREDICTORS.load(name)
    return found


def none(asked: JobSoFar) -> None:
    """Predicts nothing."""


def history(asked: JobSoFar) -> float | None:
    """Predicts the mean number of rounds that ended jobs of the workload ran beyond the job's rounds."""
    if not asked.ended:
        return None
    return plain_sum(max(rounds - asked.rounds, 0.0) for rounds in asked.ended) / len(asked.ended)


def conservative(asked: JobSoFar, predictor: Predictor, alpha: int) -> int:
    """The rounds that HLAS-P adds, by the table of the module."""
    if predictor is none:
        return 0
    fitted = predictor(asked) if predictor is not history else None
    if fitted is not None and fitted < alpha:
        return 0
    past = history(asked)
    if past is not None:
        return int((alpha + past) / 2 + 0.5)
    return alpha if fitted is not None else 0


def entire(asked: JobSoFar, predictor: Predictor) -> int:
    """The rounds that HLAS-L adds: all that the predictor says."""
    return int((predictor(asked) or 0.0) + 0.5)
