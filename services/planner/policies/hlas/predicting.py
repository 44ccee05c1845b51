"""How many rounds a job will run further (HLAS-P, section V-A): predictors, and what is made of them. Pure.

A predictor is a function from `JobSoFar` to rounds, or None where it cannot say: an entry point of
`hopyard.predictors`. It may know more than the policies do, which hand it the job as it is.

    HLAS-P      the fit of the losses says fewer than α rounds more        0
                ended jobs of the same workload ran on, from here          (α + their mean) / 2
                neither                                                    α if there was a fit, else 0
    HLAS-L      all rounds that the fit of the losses leaves

α = ⌈E1 / T̄⌉: the rounds of a job that leaves the first queue. What the paper calls far behind its group in
an architecture search has nothing to go by here.
"""

from collections.abc import Callable, Sequence

import msgspec

from services.planner.policies.contract.view import ViewJob
from shared.domain.sums import plain_sum
from shared.runtime.plugins import PREDICTORS


class JobSoFar(msgspec.Struct, frozen=True, kw_only=True):
    job: ViewJob
    rounds: int
    """that it has run"""
    round_samples: float
    """of all tasks of a round"""
    ended: Sequence[float]
    """rounds of jobs of its workload that ended"""


Predictor = Callable[[JobSoFar], float | None]


def named(name: str) -> Predictor:
    """One that is installed. Raises ValueError."""
    if name not in PREDICTORS.names():
        raise ValueError(f"predictor {name} is unknown; there are {', '.join(PREDICTORS.names())}")
    found: Predictor = PREDICTORS.load(name)
    return found


def none(asked: JobSoFar) -> None:
    """Nothing is predicted."""


def history(asked: JobSoFar) -> float | None:
    """The mean of the rounds that ended jobs of the workload ran from here."""
    if not asked.ended:
        return None
    return plain_sum(max(rounds - asked.rounds, 0.0) for rounds in asked.ended) / len(asked.ended)


def conservative(asked: JobSoFar, predictor: Predictor, alpha: int) -> int:
    """HLAS-P."""
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
    """HLAS-L."""
    return int((predictor(asked) or 0.0) + 0.5)
