"""Accuracy of estimates: single executions with estimated and measured throughput, and figures over many."""

from schemas.base import Message
from schemas.ids import Fingerprint, JobId, PlacementId
from schemas.numbers import Amount, GpuCount, Rate, Tally, Time
from schemas.plans import Layer


class Execution(Message, frozen=True, kw_only=True):
    """A placement, or a copy, that ran, with its estimated and its measured throughput."""

    placement_id: PlacementId
    """the placement's id; of one copy of several, `PLACEMENT/NODE`"""
    job_id: JobId
    fingerprint: Fingerprint
    model: str
    gpu_type: str
    """the type of its GPUs; several types are joined by `+`"""
    gpus: GpuCount
    nodes: GpuCount
    layer: Layer
    """the layer that gave the estimate"""
    estimated: Amount
    """samples/s of the whole configuration"""
    measured: Rate
    """samples/s: samples done / seconds from the gang's forming to the order to stop, or to its end"""
    at: Time
    """cluster time at which the gang formed"""
    seconds: Amount
    number: Tally
    """how many executions of the workload the log has up to this one; 1: it is the first"""
    unstable: bool
    """the profiler found two components in its loading times (Hops eq. 3)"""

    @property
    def distributed(self) -> bool:
        return self.nodes > 1

    @property
    def error(self) -> float:
        """|estimated − measured| / measured."""
        return abs(self.estimated - self.measured) / self.measured

    @property
    def bias(self) -> float:
        """(estimated − measured) / measured; above 0 the estimate was too high."""
        return (self.estimated - self.measured) / self.measured


class AccuracyRow(Message, frozen=True, kw_only=True):
    """Figures over the executions that share `key`. Errors are relative to the measured throughput."""

    key: tuple[str, ...]
    executions: int
    accuracy: float
    """1 − mean error, at least 0 (Hops fig. 6)"""
    error_p50: float
    error_p95: float
    bias: float
    """mean of the signed errors"""


class AccuracyReport(Message, frozen=True, kw_only=True):
    by: tuple[str, ...]
    """what each part of a row's `key` names, such as `layer` or `model`"""
    rows: tuple[AccuracyRow, ...]
    overall: AccuracyRow | None
    """None: nothing has run yet"""
