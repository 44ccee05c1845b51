"""The data-loading mixture (Hops eq. 3): cache hits and cache misses. The one door to scikit-learn.

Variables: weights p, means μ, standard deviations σ of one or two normal components over T_d, seconds.
Formulation: expectation maximisation on standardised times, from a fixed random state. Two components
are taken when their Bayesian information criterion is below that of one, each is carried by at least
`SUPPORT` iterations, and the fit converged; else the loader counts as stable, with one component.
"""

import math
import warnings
from collections.abc import Sequence

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture

from schemas.events import DataMode
from services.profiler.modules import one_mode, rounded
from shared.domain.iteration import Column

SUPPORT = 2
RELATIVE_NOISE = 1e-3
"""times whose spread is below this share of their mean are one value"""


def data_modes(data_s: Sequence[float]) -> tuple[DataMode, ...]:
    """One component, or two in the order of their means."""
    times = np.asarray(data_s, dtype=np.float64)
    spread, centre = float(times.std()), float(times.mean())
    if len(times) < 2 * SUPPORT or spread <= RELATIVE_NOISE * centre:
        return one_mode(data_s)
    scaled = ((times - centre) / spread).reshape(-1, 1)
    two = _two_components(scaled)
    if not two.converged_ or two.bic(scaled) >= bic_of_one(len(scaled)) or not _supported(two, scaled):
        return one_mode(data_s)
    return _modes(two, centre, spread)


def bic_of_one(count: int) -> float:
    """Of one component, on standardised times: its mean is 0 and its deviation 1."""
    return count * (1.0 + math.log(2.0 * math.pi)) + 2.0 * math.log(count)


def _two_components(scaled: Column) -> GaussianMixture:
    mixture = GaussianMixture(
        2,
        covariance_type="diag",  # in one dimension the same as "full", and quicker
        random_state=0,
        n_init=2,
        max_iter=200,
        reg_covar=1e-4,
        init_params="k-means++",
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # `converged_` says it, and is looked at
        return mixture.fit(scaled)


def _supported(mixture: GaussianMixture, scaled: Column) -> bool:
    return bool(np.bincount(mixture.predict(scaled), minlength=2).min() >= SUPPORT)


def _modes(mixture: GaussianMixture, centre: float, spread: float) -> tuple[DataMode, ...]:
    rows = zip(mixture.weights_, mixture.means_[:, 0], mixture.covariances_[:, 0], strict=True)
    modes = [
        DataMode(
            probability=rounded(float(weight)),
            mean_s=rounded(max(centre + spread * float(mean), 0.0)),
            std_s=rounded(spread * float(variance) ** 0.5),
        )
        for weight, mean, variance in rows
    ]
    return tuple(sorted(modes, key=lambda mode: mode.mean_s))
