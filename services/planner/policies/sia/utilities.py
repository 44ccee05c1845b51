"""Sia's utilities (SOSP '23): what each GPU type and count is worth to a job. Pure.

A configuration is a GPU type and a GPU count, no place. Tables are [J, T, K]: jobs, types, and the GPU
counts in question, ascending; a cell that is no configuration of the job is NaN.

The steps, in the order of the functions: sizes of a type → those in reach of a job → goodput, where need
be projected from another type → normalised → begun where nothing is known → discounted by what a restart
costs → raised to p.

Goodput is throughput here: the batch per GPU is fixed, and jobs do not declare gradient statistics.
"""

from collections.abc import Sequence

import numpy as np

from shared.domain.arrays import Flags, Floats

LARGEST = 3000.0
"""no utility is larger"""
DECIMALS = 2
"""of a utility, where the authors' code rounds it"""


def power_sizes(node_gpus: int, nodes: int) -> tuple[int, ...]:
    """The GPU counts of a type: 1, 2, 4, … on one node, all of one node, then whole nodes."""
    parts = [1 << exponent for exponent in range(node_gpus.bit_length()) if 1 << exponent < node_gpus]
    return (*parts, *(node_gpus * count for count in range(1, nodes + 1)))


def in_reach(sizes: Sequence[int], largest: int, factor: float) -> tuple[int, ...]:
    """The sizes up to `factor` times the `largest` a job has run with.

    Its next larger size is always in reach: a demand with wide steps would be a dead end.
    """
    following = min((size for size in sizes if size > largest), default=largest)
    return tuple(size for size in sizes if size <= max(factor * largest, following))


def projected(goodput: Floats, single: Floats, order: Sequence[int]) -> Floats:
    """The table, with the curve of a type of which nothing is known taken from another type.

    That is the job's first known type, scaled by the ratio of the samples/s on one GPU, `single` [J, T]
    (NaN where unknown). `order`: of the types, by position.
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


def begun(gain: Floats, valid: Flags, floor: Floats | float = 1.0) -> Floats:
    """The table, with `floor` for the smallest valid count of every type where nothing is known of a job."""
    unknown = np.isnan(gain).all(axis=(1, 2), keepdims=True)
    first = valid & (np.cumsum(valid, axis=2) == 1)
    least = np.broadcast_to(floor, len(gain))[:, None, None]
    result: Floats = np.where(unknown & first, least, gain)
    return result


def restart_factor(age_s: Floats, restarts: Floats, cost_s: Floats | float) -> Floats:
    """r_i = max(T − N·S, 0) / (T + S), and 1 while T < S: the share of its age that was not restarting.

    `age_s`: T, since submission; `restarts`: N; `cost_s`: S.
    """
    total = age_s + cost_s
    share = np.divide(
        np.maximum(age_s - restarts * cost_s, 0.0), total, out=np.ones(total.shape), where=total > 0
    )
    factor: Floats = np.where(age_s < cost_s, 1.0, share)
    return factor


def discounted(gain: Floats, factor: Floats, holds: Flags, present: Flags) -> Floats:
    """The table times `factor` [J], for jobs that hold GPUs (`holds` [J]), but for the `present` cells."""
    share = np.where(holds, factor, 1.0)[:, None, None]
    return np.where(present, gain, gain * share)


def utilities(gain: Floats, power: float, *, rounded: bool = False) -> Floats:
    """U_ij = min(G_ij^p, 3000); rounded to two decimals first, as the authors do, on request."""
    with np.errstate(divide="ignore"):  # 0^p: a restart would undo all that the job ever did
        raised = np.power(gain, power)
    return np.minimum(np.round(raised, DECIMALS) if rounded else raised, LARGEST)


def single_precision(utility: Floats) -> Floats:
    """As the authors hold them: what is a tie in hundredths is none at the eighth digit."""
    return utility.astype(np.float32).astype(np.float64)
