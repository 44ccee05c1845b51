"""The theory layer: per-GPU throughput from time modules (Hops eq. 2 to 5), a column at a time. Pure."""

from collections.abc import Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from schemas.events import DataMode, TimeModules
from services.estimator.waiting import slowest_s
from shared.domain.iteration import OVERLAPPED, Column, busy_s, communication_s, iteration_s


class Gangs(msgspec.Struct, frozen=True):
    """Processes that train together, one row a gang."""

    modules: Sequence[TimeModules]
    """those that occur"""
    which: npt.NDArray[np.int64]
    """index into `modules`, by row"""
    batch_size: npt.NDArray[np.int64]
    """samples per GPU and iteration"""
    gpus: npt.NDArray[np.int64]
    """N, over all nodes"""
    distributed: npt.NDArray[np.bool_]
    bandwidth: Column
    """bytes/s of the path the gradients take: B_link, or B_net when distributed"""


def per_gpu_throughput(gangs: Gangs) -> Column:
    """Eq. 5: batch size / E(T_iter), samples/s per GPU."""
    return np.asarray(gangs.batch_size / expected_iteration_s(gangs), dtype=np.float64)


def expected_iteration_s(gangs: Gangs) -> Column:
    """Eq. 4: E(T_iter) = p_cache · E(T_iter | hit) + p_load · E(T_iter | miss), seconds.

    In both conditions T_d is the mean of its component; how far the slowest of N processes lies
    beyond is T_w (see `waiting`).
    """
    forward, backward, update, parameters, pattern = _fixed(gangs.modules)[gangs.which].T
    probability, mean, std = (column[gangs.which] for column in _mixtures(gangs.modules))
    exchange = communication_s(
        parameters=parameters, gpus=gangs.gpus, distributed=gangs.distributed, bandwidth=gangs.bandwidth
    )
    busy = busy_s(backward_s=backward, update_s=update, communication_s=exchange)
    floor = np.where(pattern == OVERLAPPED, busy, 0.0)
    slowest = slowest_s(probability=probability, mean_s=mean, std_s=std, processes=gangs.gpus, floor_s=floor)
    wait = np.maximum(slowest - (probability * np.maximum(mean, floor[:, None])).sum(axis=1), 0.0)
    given = iteration_s(
        data_s=mean,
        forward_s=forward[:, None],
        backward_s=backward[:, None],
        update_s=update[:, None],
        communication_s=exchange[:, None],
        wait_s=wait[:, None],
        pattern=pattern[:, None],
    )
    return np.asarray((probability * given).sum(axis=1), dtype=np.float64)


def _fixed(modules: Sequence[TimeModules]) -> Column:
    """T_f, T_b, T_u, the parameters and the pattern: (modules, 5)."""
    return np.array(
        [(one.forward_s, one.backward_s, one.update_s, one.parameters, one.pattern) for one in modules],
        dtype=np.float64,
    )


def _mixtures(modules: Sequence[TimeModules]) -> tuple[Column, Column, Column]:
    """Eq. 3: probabilities, means and standard deviations, each (modules, 2)."""
    rows = [_pair(one.data) for one in modules]
    columns = np.array(
        [[(mode.probability, mode.mean_s, mode.std_s) for mode in row] for row in rows], dtype=np.float64
    )
    return columns[..., 0], columns[..., 1], columns[..., 2]


def _pair(data: tuple[DataMode, ...]) -> tuple[DataMode, DataMode]:
    """A stable loader as a mixture whose second component never happens."""
    if len(data) == 1:
        return data[0], DataMode(probability=0.0, mean_s=data[0].mean_s, std_s=data[0].std_s)
    hit, miss = data
    return hit, miss
