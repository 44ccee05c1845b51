"""A predictor in place of a fit of a job's loss curve, for emulated jobs, which have no losses.

A fit (Optimus: 1 / (β0 k + β1) + β2, extrapolated to the end) is far off at first, and close after many
rounds. So this predictor multiplies the true number of rounds by a lognormal factor, σ = 1 / √(1 + k/50)
after k rounds. Each job has one draw, which is kept.
"""

import math

from loadgen.draws import generator
from services.planner.policies.hlas.predicting import JobSoFar

LOSSES_NEEDED = 5
"""rounds that a fit needs; with fewer there is no prediction"""
SPREAD = 1.0
"""σ before the first round"""
HALVED_AFTER = 50
"""rounds after which the variance is half of what it was"""


def fit(asked: JobSoFar) -> float | None:
    """Rounds that the job will run further."""
    if asked.rounds < LOSSES_NEEDED:
        return None
    sigma = SPREAD / math.sqrt(1.0 + asked.rounds / HALVED_AFTER)
    error = float(generator("losses", asked.job.job_id).standard_normal())
    rounds = asked.job.samples / asked.round_samples
    return max(rounds - asked.rounds, 0.0) * math.exp(sigma * error)
