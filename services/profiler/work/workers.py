"""Does the profiler's outside work."""

from services.profiler.modules import fitted
from services.profiler.tasks import Fit, Fitted, FittedTimes, FitTimes
from services.profiler.work.mixture import data_modes


def fit(task: Fit) -> Fitted:
    modules = fitted(task.measurement, data_modes(task.measurement.data_s), task.law)
    return Fitted(task.fingerprint, task.gpu_type, modules)


def fit_times(task: FitTimes) -> FittedTimes:
    return FittedTimes(task.ticket, data_modes(task.data_s))
