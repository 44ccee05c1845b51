"""Sia's utilities (SOSP '23): what each GPU type and count is worth to a job. Pure.

A configuration is a GPU type and a GPU count, without a place. Tables are [J, T, K]: jobs, types, and the GPU
counts that occur, ascending; a cell that is no configuration of the job is NaN.

The steps, in the order of the functions: the sizes of a type → those in reach of a job → goodput, projected
from another type where nothing is known of one → normalised → a first gain for a job of which nothing is
known → discounted by the cost of a restart → raised to p.

Goodput is throughput here: the batch per GPU is fixed, and jobs do not declare gradient statistics.
"""

from collections.abc import Sequence

import numpy as np

from shared.domain.arrays import Flags, Floats

LARGEST = 3000.0
"""the largest utility"""
DECIMALS = 2
"""decimals to which the authors' code rounds a utility"""


def power_sizes(node_gpus: int, nodes: int) -> tuple[int, ...]:
    """The GPU counts of a type: 1, 2, 4, … on one node, all of one node, then whole nodes."""
    parts = [1 << exponent for exponent in range(node_gpus.bit_length()) if 1 << exponent < node_gpus]
    return (*parts, *(node_gpus * count for count in range(1, nodes + 1)))


def in_reach(sizes: Sequence[int], largest: int, factor: float) -> tuple[int, ...]:
    """The sizes up to `factor` times the `largest` that a job has run with.

    The next larger size is always in reach, else a job with wide steps in its demand could never grow.
    """
    following = min((size for size in sizes if size > largest), default=largest)
    return tuple(size for size in sizes if size <= max(factor * largest, following))


def projected(goodput: Floats, single: Floats, order: Sequence[int]) -> Floats:
    """The table, in which a type of which nothing is known of a job has the curve of another type.

    The other is the first type in `order` (positions) of which something is known. Its curve is scaled by the
    ratio of samples/s on one GPU, `single` [J, T] (NaN where unknown).
    """
    known: Flags = np.logical_or.reduce(~np.isnan(goodput), axis=2)
    source = np.array(order)[known[:, order].argmax(axis=1)]
    rows = np.arange(len(goodput))
    ratio = single / single[rows, source][:, None]
    scaled: Floats = goodput[rows, source][:, None, :] * ratio[:, :, None]
    result: Floats = np.where(known[:, :, None], goodput, scaled)
    return result


def normalised(goodput: Floats, floor: Floats | float = 1.0) -> Floats:
    """G_ij = g_ij / min_j g_ij over a job's configurations of all types, times `floor` [J]."""
    smallest: Floats = np.fmin.reduce(goodput, axis=(1, 2), initial=np.inf)
    return goodput * (floor / smallest)[:, None, None]


def with_first_gains(gain: Floats, valid: Flags, floor: Floats | float = 1.0) -> Floats:
    """The table, with a gain of `floor` on each type's smallest valid count for jobs without estimates."""
    unknown = np.isnan(gain).all(axis=(1, 2), keepdims=True)
    first = valid & (np.cumsum(valid, axis=2) == 1)
    least = np.broadcast_to(floor, len(gain))[:, None, None]
    result: Floats = np.where(unknown & first, least, gain)
    return result


def restart_factor(age_s: Floats, restarts: Floats, cost_s: Floats | float) -> Floats:
    """r_i = max(T − N·S, 0) / (T + S), and 1 while T < S: the share of a job's age that restarts left.

    `age_s`: T, seconds since submission; `restarts`: N so far; `cost_s`: S, seconds of one restart.
    """
    total = age_s + cost_s
    share = np.divide(
        np.maximum(age_s - restarts * cost_s, 0.0), total, out=np.ones(total.shape), where=total > 0
    )
    factor: Floats = np.where(age_s < cost_s, 1.0, share)
    return factor


def discounted(gain: Floats, factor: Floats, holds: Flags, present: Flags) -> Floats:
    """The table, multiplied by `factor` [J] in the rows of jobs that hold GPUs (`holds` [J]).

    The `present` cells [J, T, K] are not multiplied: to stay there takes no restart.
    """
    share = np.where(holds, factor, 1.0)[:, None, None]
    return np.where(present, gain, gain * share)


def utilities(gain: Floats, power: float, *, rounded: bool = False) -> Floats:
    """U_ij = min(G_ij^p, 3000). `rounded`: G_ij^p is rounded to two decimals first, as the authors do."""
    with np.errstate(divide="ignore"):  # 0^p, p < 0: restarts have taken the whole age of the job
        raised = np.where(np.isnan(gain), np.nan, np.power(gain, power))  # NaN^0 is 1
    return np.minimum(np.round(raised, DECIMALS) if rounded else raised, LARGEST)


def single_precision(utility: Floats) -> Floats:
    """Utilities as 32-bit floats, as in the authors' code: this breaks ties at the eighth digit."""
    return utility.astype(np.float32).astype(np.float64)
