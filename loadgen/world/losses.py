"""A predictor that stands for a fit of a job's loss curve, in a world without losses.

No emulated job has a loss curve. What a fit makes of one (Optimus: 1 / (β0 k + β1) + β2, extrapolated to the
end) is off by much at first, by little once many rounds were seen. So this predictor knows the truth, and is
off by a lognormal factor, σ = 1 / √(1 + k/50) after k rounds. The draw is a job's own, for good.
"""

import math

from loadgen.draws import generator
from services.planner.policies.hlas.predicting import JobSoFar

LOSSES_NEEDED = 5
"""rounds that a fit needs; one to fewer says nothing"""
SPREAD = 1.0
"""σ before the first round"""
HALVED_AFTER = 50
"""rounds, in which the variance halves"""


def fit(asked: JobSoFar) -> float | None:
    """Rounds that the job will run further."""
    if asked.rounds < LOSSES_NEEDED:
        return None
    sigma = SPREAD / math.sqrt(1.0 + asked.rounds / HALVED_AFTER)
    error = float(generator("losses", asked.job.job_id).standard_normal())
    rounds = asked.job.samples / asked.round_samples
    return max(rounds - asked.rounds, 0.0) * math.exp(sigma * error)
