"""The theory layer: per-GPU throughput from time modules (Hops eq. 2 to 5), a column at a time. Pure."""

from collections.abc import Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from schemas.measurements import DataMode, TimeModules
from schemas.numbers import MOST
from services.estimator.store.contract import Loading
from services.estimator.theory.waiting import slowest_s
from shared.domain.iteration import OURS, OVERLAPPED, Column, Law, busy_s, communication_s, iteration_s


class Modules(msgspec.Struct, frozen=True):
    """Time modules of an iteration as profiled, and its loading as refined while jobs ran."""

    times: TimeModules
    loading: Loading | None = None

    @property
    def data(self) -> tuple[DataMode, ...]:
        return self.loading.data if self.loading else self.times.data

    @property
    def waiting(self) -> tuple[float, float]:
        """A factor on T_w as drawn from the mixture, and seconds to add to it."""
        return (self.loading.wait_factor, self.loading.wait_s) if self.loading else (1.0, 0.0)


class Gangs(msgspec.Struct, frozen=True):
    """Processes that train together, one row a gang."""

    modules: Sequence[Modules]
    """the distinct modules of all rows"""
    which: npt.NDArray[np.int64]
    """index into `modules`, by row"""
    batch_size: npt.NDArray[np.int64]
    """samples per GPU and iteration"""
    gpus: npt.NDArray[np.int64]
    """N, over all nodes"""
    distributed: npt.NDArray[np.bool_]
    latency_s: Column
    bandwidth: Column
    """bytes/s, of the path the gradients take: B_link, or B_net when distributed (see `paths`)"""
    share: Column | None = None
    """samples that this GPU takes of an iteration / batch size; None: 1 in all rows"""
    law: Law = OURS


def _share(gangs: Gangs) -> Column:
    return np.ones(len(gangs.which)) if gangs.share is None else gangs.share


def per_gpu_throughput(gangs: Gangs) -> Column:
    """Eq. 5: samples that the GPU takes of an iteration / E(T_iter), samples/s per GPU.

    NaN where E(T_iter) is no time that an iteration can take: the modules were not measured.
    """
    samples, taken_s = _share(gangs) * gangs.batch_size, expected_iteration_s(gangs)
    possible = (taken_s >= 1 / MOST) & (taken_s <= MOST)
    rates = np.divide(samples, taken_s, out=np.full(len(taken_s), np.nan), where=possible)
    return np.asarray(rates, dtype=np.float64)


def expected_iteration_s(gangs: Gangs) -> Column:
    """Eq. 4: E(T_iter) = p_cache · E(T_iter | hit) + p_load · E(T_iter | miss), seconds.

    In either condition T_d is the mean of its component. T_w is the mean wait by independent draws, times the
    factor and plus the seconds that refinement found (`refinement`); with a law that does not draw, as the
    paper has it, T_w is the mean recorded in that condition.
    """
    parts = _parts(gangs)
    given = iteration_s(
        data_s=parts.mean,
        forward_s=parts.forward[:, None],
        backward_s=parts.backward[:, None],
        update_s=parts.update[:, None],
        communication_s=parts.exchange[:, None],
        unhidden=parts.unhidden[:, None],
        wait_s=_expected_wait_s(gangs, parts) if gangs.law.draws else _recorded_wait_s(gangs),
        pattern=parts.pattern[:, None],
        law=gangs.law,
    )
    return np.asarray((parts.probability * given).sum(axis=1), dtype=np.float64)


def _expected_wait_s(gangs: Gangs, parts: "_Parts") -> Column:
    """T_w by row, the same in both conditions, seconds."""
    factor, extra = np.array([one.waiting for one in gangs.modules])[gangs.which].T
    wait = factor * _drawn_wait_s(gangs, parts) + np.where(gangs.gpus > 1, extra, 0.0)
    return np.asarray(wait[:, None], dtype=np.float64)


def _recorded_wait_s(gangs: Gangs) -> Column:
    """T_w by row and condition, seconds."""
    wait = np.array([_two(one.loading.waits_s if one.loading else ()) for one in gangs.modules])
    return np.where((gangs.gpus > 1)[:, None], wait[gangs.which], 0.0)


def _two(waits_s: tuple[float, ...]) -> tuple[float, float]:
    """Waits after a hit and after a miss; a stable loader has one wait for both."""
    return (waits_s[0], waits_s[-1]) if waits_s else (0.0, 0.0)


def drawn_wait_s(gangs: Gangs) -> Column:
    """Mean time, seconds, by which the slowest of N independent draws exceeds a process's own draw."""
    return _drawn_wait_s(gangs, _parts(gangs))


def _drawn_wait_s(gangs: Gangs, parts: "_Parts") -> Column:
    busy = busy_s(
        backward_s=parts.backward,
        update_s=parts.update,
        communication_s=parts.exchange,
        unhidden=parts.unhidden,
    )
    floor = np.where(parts.pattern == OVERLAPPED, busy, 0.0)
    slowest = slowest_s(
        probability=parts.probability,
        mean_s=parts.mean,
        std_s=parts.std,
        processes=gangs.gpus,
        floor_s=floor,
    )
    own = (parts.probability * np.maximum(parts.mean, floor[:, None])).sum(axis=1)
    return np.asarray(np.maximum(slowest - own, 0.0), dtype=np.float64)


class _Parts(msgspec.Struct, frozen=True):
    """T_f, T_b, T_u, T_c, T̃_c / T_c and the pattern by row; the mixture of T_d by row and component.

    T_d, T_f and T_b are those of a GPU's share of the batch; T_u does not depend on the share.
    """

    forward: Column
    backward: Column
    update: Column
    exchange: Column
    unhidden: Column
    pattern: Column
    probability: Column
    mean: Column
    std: Column


def _parts(gangs: Gangs) -> _Parts:
    times = [one.times for one in gangs.modules]
    fixed = np.array(
        [
            (one.forward_s, one.backward_s, one.update_s, one.parameters, one.unhidden, one.pattern)
            for one in times
        ]
    )
    modes = np.array(
        [[(mode.probability, mode.mean_s, mode.std_s) for mode in _pair(one.data)] for one in gangs.modules]
    )
    forward, backward, update, parameters, unhidden, pattern = fixed[gangs.which].T
    share = _share(gangs)
    exchange = communication_s(
        parameters=parameters,
        gpus=gangs.gpus,
        distributed=gangs.distributed,
        bandwidth=gangs.bandwidth,
        latency_s=gangs.latency_s,
    )
    probability, mean, std = np.moveaxis(modes[gangs.which], -1, 0)
    mean, std = share[:, None] * mean, share[:, None] * std
    return _Parts(
        share * forward, share * backward, update, exchange, unhidden, pattern, probability, mean, std
    )


def _pair(data: tuple[DataMode, ...]) -> tuple[DataMode, DataMode]:
    """A stable loader as a mixture whose second component never happens (eq. 3)."""
    if len(data) == 1:
        return data[0], DataMode(probability=0.0, mean_s=data[0].mean_s, std_s=data[0].std_s)
    hit, miss = data
    return hit, miss
