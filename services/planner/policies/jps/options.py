"""Options of the policies that decide at resets."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from services.planner.policies.jps.completion import Law


class ResetOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of every policy that decides at resets."""

    law: Law = "iteration"
    """when gradients are exchanged: once an iteration, as estimated; or once an epoch, as in the paper"""
    static: bool = False
    """a running job keeps its GPUs; else every reset may move all jobs"""
    gather_s: Annotated[float, Meta(ge=0, le=1e6)] = 600.0
    """seconds for which no job is started, at most, while other jobs are measured: so all are decided
    together"""
    share_max: Annotated[float, Meta(ge=1, le=1000)] = 2.0
    """the most samples that a GPU takes in an iteration, in batches; fewer where its memory has no room for
    them"""
    seed: Annotated[int, Meta(ge=0)] = 1
    """seed of the random numbers; a simulation takes that of the run unless one is given"""


class JpsOptions(ResetOptions, frozen=True, kw_only=True):
    alpha: Annotated[float, Meta(ge=0, le=1)] = 0.7
    """the share of all categories, from the first on, that is never looked at"""
    beta: Annotated[float, Meta(ge=0, le=1)] = 1.0
    """1: the lowest mean completion time; 0: the fairest"""
    samples: Annotated[int, Meta(ge=1, le=100_000)] = 60
    """N: categories looked at"""
    every: bool = False
    """HAS: all categories are looked at, and the one with the lowest mean completion time is taken"""
    has_categories_max: Annotated[int, Meta(ge=1, le=100_000)] = 5_000
    """with more categories, HAS looks at a sample of them as JPS does"""
    weighted: bool = False
    """jobs are weighed by the completion time that one more sample/s saves, beyond the paper"""
    idle: bool = True
    """GPUs of slow nodes stay idle where a job is faster without them, beyond the paper"""
    market: Literal["flow", "auction"] = "flow"
    """what finds the best assignment inside a category; the auction is slow"""


class OptimusOptions(ResetOptions, frozen=True, kw_only=True):
    shares: Literal["equal", "proportional"] = "equal"
    """how the global batch is divided among a gang's GPUs: equally, or in proportion to their speed"""
    aware: bool = False
    """a job's gain is computed on its best free GPU type; else on a mean GPU, and GPUs are dealt at random"""


class ExhaustiveOptions(ResetOptions, frozen=True, kw_only=True):
    idle: bool = True
    """GPUs stay idle where that is better; else as many are used as can be, as in the paper"""
