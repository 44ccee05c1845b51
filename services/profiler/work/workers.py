"""Fits what the core asks for. scikit-learn is imported by the first fit, or before it by `warm_up`."""

from services.profiler.modules import fitted
from services.profiler.tasks import Fit, Fitted, FittedTimes, FitTimes


def warm_up() -> None:
    """Have scikit-learn there before the first measurement: it takes seconds to import."""
    from services.profiler.work import mixture  # noqa: F401, PLC0415


def fit(task: Fit) -> Fitted:
    from services.profiler.work.mixture import data_modes  # noqa: PLC0415 - not before the service is ready

    modules = fitted(task.measurement, data_modes(task.measurement.data_s))
    return Fitted(task.fingerprint, task.gpu_type, modules)


def fit_times(task: FitTimes) -> FittedTimes:
    from services.profiler.work.mixture import data_modes  # noqa: PLC0415 - as above

    return FittedTimes(task.ticket, data_modes(task.data_s))
