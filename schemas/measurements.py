"""Measurements of workers: throughput over a stretch of running, and the time modules of an iteration."""

from schemas.base import Message
from schemas.ids import NodeId
from schemas.numbers import Amount, Fraction, Pattern, WholeNumber


class Stretch(Message, frozen=True, kw_only=True):
    """A period in which a gang ran with one throughput."""

    throughput: float
    """samples/s of the whole gang, mean over the stretch, noise included"""
    data_s: dict[NodeId, tuple[float, ...]]
    """T_d of a few iterations, by node"""
    wait_s: dict[NodeId, tuple[float, ...]]
    """T_w of the same iterations: the wait for the slowest process"""


class Measured(Message, frozen=True, kw_only=True):
    """Times of some iterations on one GPU (Hops section 3.2): a number for each iteration, seconds."""

    data_s: tuple[float, ...]
    forward_s: tuple[float, ...]
    backward_s: tuple[float, ...]
    update_s: tuple[float, ...]
    iteration_s: tuple[float, ...]
    parameters: float
    """number of the model's parameters"""
    memory_share: float | None = None
    """share of the GPU's memory that the process took; null: not known"""
    modes: tuple[str, ...] = ()
    """modes of synchronisation in which the script can train; empty: any, or not known"""


class DataMode(Message, frozen=True, kw_only=True):
    """One component of the data-loading mixture (Hops eq. 3), seconds."""

    probability: Fraction
    mean_s: Amount
    std_s: Amount


class TimeModules(Message, frozen=True, kw_only=True):
    """The parts of an iteration on one GPU of a type (Hops eq. 1), seconds."""

    data: tuple[DataMode, ...]
    """T_d: one component, or cache hit and cache miss"""
    forward_s: Amount
    backward_s: Amount
    update_s: Amount
    parameters: Amount
    """number of the model's parameters, whose gradients are exchanged"""
    pattern: Pattern
    """1: data loading overlaps backward and update; 2: it does not"""
    unhidden: Fraction = 0.2
    """T̃_c / T_c: the part of a gradient exchange that the backward pass cannot hide"""
    iterations: WholeNumber
    """number of iterations that were measured"""
    memory_share: Fraction | None = None
    """share of the GPU's memory that the process took; null: not known"""
    modes: tuple[str, ...] = ()
    """modes of synchronisation in which the script can train; empty: any, or not known"""
