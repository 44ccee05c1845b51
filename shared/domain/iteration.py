"""The time of one training iteration on one GPU (Hops eq. 1 and 2), for numbers and numpy columns alike.

The profiler recognises a job's overlap pattern with it, the estimator predicts throughput with it. Pure.
"""

from collections.abc import Mapping

import msgspec
import numpy as np
import numpy.typing as npt

from shared.domain.word_lists import words_of

Column = npt.NDArray[np.float64]
Numbers = float | Column | npt.NDArray[np.int64]
"""one value, or one a row"""

UNHIDDEN = 0.2
"""T̃_c / T_c: the part of communication that the backward pass cannot hide, in the paper"""
BYTES_PER_PARAMETER = 4.0
"""gradients travel as float32"""

OVERLAPPED = 1
"""pattern 1: the data of the next iteration load while this one runs backward and updates"""
IN_SEQUENCE = 2
"""pattern 2: data load once the update is done"""


DEPARTURES: Mapping[str, str] = {
    "update": "eq. 1: pattern 2 has no T_u",
    "bucket": "eq. 1: the backward pass hides 80 % of the communication of every model",
    "bandwidth": "eq. 2: one bandwidth inside a node, one between nodes, and no latency",
    "waiting": "eq. 4: T_w is what was recorded in each condition; nothing before a gang has run",
    "evidence": "a distributed gang's throughput is found by its number of nodes alone",
    "residuals": "where nothing was observed, equations 1 to 5 are the answer",
}
"""by name, each departure of these equations from the paper, with what the paper prints"""


class Law(msgspec.Struct, frozen=True):
    """Which form of each equation is used: ours, or the paper's as printed."""

    updates: bool = True
    """T_u is part of pattern 2 too"""
    buckets: bool = True
    """the last bucket of gradients is not hidden (docs/adr/0008)"""
    shapes: bool = True
    """a gang's path is the one measured with a gang of its shape, with a latency"""
    draws: bool = True
    """T_w is how long the slowest of N draws of T_d is waited for, from the first run on"""
    counts: bool = True
    """evidence of distributed gangs is by their GPUs too"""
    learns: bool = True
    """theory is multiplied by what gangs of other shapes showed (docs/adr/0027)"""


OURS = Law()


def law_of(printed: str) -> Law:
    """`printed`: words of `DEPARTURES`, or `all`."""
    words = words_of(printed, DEPARTURES)
    return Law(
        updates="update" not in words,
        buckets="bucket" not in words,
        shapes="bandwidth" not in words,
        draws="waiting" not in words,
        counts="evidence" not in words,
        learns="residuals" not in words,
    )


def unhidden_share(parameters: float, bucket_bytes: float) -> float:
    """T̃_c / T_c of a model whose gradients are exchanged in buckets of `bucket_bytes` (docs/adr/0008).

    The last bucket is full only when the backward pass is over, so its exchange is not hidden. Small models
    have few buckets; for large models the paper's share stays, and with buckets of 0 bytes for all models.
    """
    size = BYTES_PER_PARAMETER * parameters
    return min(max(bucket_bytes / size, UNHIDDEN), 1.0) if size else UNHIDDEN


def busy_s(*, backward_s: Numbers, update_s: Numbers, communication_s: Numbers, unhidden: Numbers) -> Column:
    """The time behind which pattern 1 hides data loading: max(T_b + T̃_c, T_c) + T_u, seconds."""
    exchanged = np.maximum(np.add(backward_s, np.multiply(unhidden, communication_s)), communication_s)
    return np.asarray(exchanged + update_s, dtype=np.float64)


def iteration_s(
    *,
    data_s: Numbers,
    forward_s: Numbers,
    backward_s: Numbers,
    update_s: Numbers,
    pattern: Numbers,
    communication_s: Numbers = 0.0,
    unhidden: Numbers = UNHIDDEN,
    wait_s: Numbers = 0.0,
    law: Law = OURS,
) -> Column:
    """T_iter (eq. 1), seconds, broadcast over its arguments.

        pattern 1:  max(T_d, max(T_b + T̃_c, T_c) + T_u) + T_f + T_w
        pattern 2:  T_d + max(T_b + T̃_c, T_c) + T_u + T_f + T_w

    The paper prints pattern 2 without T_u. But its jobs update their weights too, after the backward pass
    and while nothing else runs, so T_u is added here, unless the `law` follows the paper to the letter.
    """
    busy = busy_s(
        backward_s=backward_s, update_s=update_s, communication_s=communication_s, unhidden=unhidden
    )
    after = busy if law.updates else busy - np.asarray(update_s)
    both = np.where(np.equal(pattern, OVERLAPPED), np.maximum(data_s, busy), np.add(data_s, after))
    return np.asarray(both + forward_s + wait_s, dtype=np.float64)


def communication_s(
    *,
    parameters: Numbers,
    gpus: Numbers,
    distributed: npt.ArrayLike,
    bandwidth: Numbers,
    latency_s: Numbers = 0.0,
) -> Column:
    """T_c (eq. 2), seconds; `bandwidth` in bytes/s of the path the gradients take.

    One node with N GPUs: a ring all-reduce, params / B_link · (N − 1) / N. Several nodes: params / B_net.
    `latency_s`, which the paper leaves out, is added if there is more than one GPU.
    """
    moved = np.divide(np.multiply(BYTES_PER_PARAMETER, parameters), bandwidth)
    ring = np.divide(np.subtract(gpus, 1), gpus)
    late = np.where(np.greater(gpus, 1), latency_s, 0.0)
    return np.asarray(late + moved * np.where(distributed, 1.0, ring), dtype=np.float64)
