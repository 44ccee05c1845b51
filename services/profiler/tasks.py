"""Work that the core orders outside: fits of measurements; and its results."""

import msgspec

from schemas.ids import Fingerprint, GpuType
from schemas.measurements import DataMode, Measured, TimeModules
from shared.domain.iteration import OURS, Law


class Fit(msgspec.Struct, frozen=True):
    """Work: turn a measurement into time modules."""

    fingerprint: Fingerprint
    gpu_type: GpuType
    measurement: Measured
    law: Law = OURS


class Fitted(msgspec.Struct, frozen=True):
    """The answer to `Fit`."""

    fingerprint: Fingerprint
    gpu_type: GpuType
    modules: TimeModules


class FitTimes(msgspec.Struct, frozen=True):
    """Work: the mixture behind the loading times of a question."""

    ticket: int
    data_s: tuple[float, ...]


class FittedTimes(msgspec.Struct, frozen=True):
    """The answer to `FitTimes`."""

    ticket: int
    data: tuple[DataMode, ...]
