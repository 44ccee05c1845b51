"""The data-loading mixture (Hops eq. 3): cache hits and cache misses.

Data: x, n loading times, standardised (mean 0, deviation 1), in ascending order.
Variables: weights p, means μ, variances v of two normal components.
Formulation: maximise Σ_i log Σ_k p_k N(x_i; μ_k, v_k), v_k ≥ `FLOOR`, by expectation maximisation (Dempster,
Laird and Rubin 1977), of which no step makes the likelihood smaller.

The maximisation starts from the cut of the sorted times into two parts with the least sum of squares within
them: the optimum of 2-means, which for numbers is one of n − 1 cuts. There are no random starts: more starts
would find fits that are more likely but meaningless, with a component on two times that happen to be equal.

Two components are accepted if their Bayesian information criterion is below that of one component, each is
the likelier one for at least `SUPPORT` times, and the fit converged. Otherwise the loader counts as stable,
with one component.
"""

import math
from collections.abc import Sequence

import msgspec
import numpy as np

from schemas.measurements import DataMode
from services.profiler.modules import one_mode, rounded
from shared.domain.iteration import Column

SUPPORT = 2
"""smallest number of times for which a component must be the likelier one"""
RELATIVE_NOISE = 1e-3
"""times whose spread is below this share of their mean count as equal"""
FLOOR = 1e-4
"""least variance, of standardised times: without it a component on a single time would be endlessly likely"""
TOLERANCE = 1e-3
"""gain of the mean log-likelihood below which a step is the last"""
STEPS_MOST = 200
TINY = 1e-12


class Mixture(msgspec.Struct, frozen=True, kw_only=True):
    """Two components, in the order of their means: columns of shape (2,)."""

    weight: Column
    mean: Column
    variance: Column
    """as found: `FLOOR` is applied only when likelihoods are computed"""


class FittedMixture(msgspec.Struct, frozen=True, kw_only=True):
    mixture: Mixture
    log_likelihood: float
    """log-likelihood of all times together"""
    carried: int
    """the number of times for which a component is the likelier one; the smaller number of the two"""
    converged: bool


def data_modes(data_s: Sequence[float]) -> tuple[DataMode, ...]:
    """One component, or two in the order of their means."""
    times = np.sort(np.asarray(data_s, dtype=np.float64))
    with np.errstate(over="ignore"):  # the spread of huge times may exceed any float
        spread, centre = float(times.std()), float(times.mean())
    if len(times) < 2 * SUPPORT or not RELATIVE_NOISE * centre < spread < math.inf:
        return one_mode(data_s)
    fit = two_components((times - centre) / spread)
    if fit.converged and fit.carried >= SUPPORT and bic_of_two(fit, len(times)) < bic_of_one(len(times)):
        return _modes(fit.mixture, centre, spread)
    return one_mode(data_s)


def bic_of_one(count: int) -> float:
    """Bayesian information criterion of one component: of `count` standardised times, mean 0, deviation 1."""
    return count * (1.0 + math.log(2.0 * math.pi)) + 2.0 * math.log(count)


def bic_of_two(fit: FittedMixture, count: int) -> float:
    """Bayesian information criterion of two components: two means, two variances, one weight are fitted."""
    return 5.0 * math.log(count) - 2.0 * fit.log_likelihood


def two_components(x: Column) -> FittedMixture:
    """`x`: two or more standardised times in ascending order, not all alike."""
    members, reached, converged = _parts(x), -math.inf, False
    for _ in range(STEPS_MOST):
        mixture = maximised(x, members)
        members, likelihood = expected(x, mixture)
        converged = likelihood - reached < TOLERANCE
        reached = likelihood
        if converged:
            break
    upper = int((members[1] > members[0]).sum())
    return FittedMixture(
        mixture=_in_order(mixture),
        log_likelihood=reached * len(x),
        carried=min(upper, len(x) - upper),
        converged=converged,
    )


def expected(x: Column, mixture: Mixture) -> tuple[Column, float]:
    """Each time's membership in each component, shape (2, n), columns summing to 1; mean log-likelihood."""
    variance = np.maximum(mixture.variance, FLOOR)
    constant = np.log(mixture.weight) - 0.5 * np.log(2.0 * math.pi * variance)
    joint = constant[:, None] - (x - mixture.mean[:, None]) ** 2 / (2.0 * variance[:, None])
    total = np.logaddexp(joint[0], joint[1])
    return np.exp(joint - total), float(total.mean())


def maximised(x: Column, members: Column) -> Mixture:
    """The likeliest mixture for given memberships, shape (2, n)."""
    carried = members.sum(axis=1) + TINY
    mean = members @ x / carried
    variance = (members * (x - mean[:, None]) ** 2).sum(axis=1) / carried
    return Mixture(weight=carried / carried.sum(), mean=mean, variance=variance)


def _parts(x: Column) -> Column:
    """Memberships, 0 or 1, of the cut with the least sum of squares within its parts."""
    count = len(x)
    size = np.arange(1, count)
    below = np.cumsum(x)[:-1]
    between = below**2 / size + (x.sum() - below) ** 2 / (count - size)  # greatest where within is least
    lower = np.arange(count) <= between.argmax()
    return np.stack((lower, ~lower)).astype(np.float64)


def _in_order(mixture: Mixture) -> Mixture:
    order = mixture.mean.argsort(kind="stable")
    return Mixture(weight=mixture.weight[order], mean=mixture.mean[order], variance=mixture.variance[order])


def _modes(mixture: Mixture, centre: float, spread: float) -> tuple[DataMode, ...]:
    return tuple(
        DataMode(
            probability=rounded(float(weight)),
            mean_s=rounded(max(centre + spread * float(mean), 0.0)),
            std_s=rounded(spread * math.sqrt(variance)),
        )
        for weight, mean, variance in zip(mixture.weight, mixture.mean, mixture.variance, strict=True)
    )
