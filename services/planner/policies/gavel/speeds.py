"""Throughputs by GPU type, which Gavel plans with, from estimates by configuration. Pure.

A gang's throughput on a type is the mean over the nodes that have room for all of it, or if none has, over
its distributed configurations. A configuration on several types, which a job may have from another policy's
plan, counts for none of them.
"""

from collections.abc import Sequence

import numpy as np

from schemas.ids import GpuType, JobId
from schemas.placement import Configuration
from schemas.plans import Layer
from services.planner.policies.contract.configurations import Configurations, held
from services.planner.policies.contract.estimates import Estimated
from shared.domain.arrays import Flags, Floats, Ints


class Speeds:
    """The throughputs of the jobs of one plan."""

    def __init__(self, wanted: Configurations, estimates: Estimated, type_of: Sequence[GpuType]) -> None:
        """`type_of`: by node of `wanted`."""
        self.types = tuple(sorted(set(type_of)))
        self._wanted, self._estimates = wanted, estimates
        self._kinds: Ints = np.array([self.types.index(name) for name in type_of], dtype=np.int32)
        """type of each node: its position in `types`"""
        self._kind: Ints = self._kinds[wanted.node[wanted.start[:-1]]]
        """type of each configuration's first node"""
        self._known = (estimates.throughput > 0) & ~self._mixed()
        self._split = np.diff(wanted.start) > 1
        whole, split = self._means(~self._split), self._means(self._split)
        self.by_type: Floats = np.where(whole > 0, whole, split)
        """samples/s (jobs of `wanted`, types); 0 where nothing is known"""

    def of(self, places: dict[JobId, Configuration]) -> dict[JobId, tuple[float, Layer]]:
        """Throughput by place: its own estimate, else that of one like it (see `_like`)."""
        rows = {self._wanted.jobs[self._wanted.job[row]]: row for row in self._own(places)}
        position = {job_id: index for index, job_id in enumerate(self._wanted.jobs)}
        return {
            job_id: self._estimate(rows[job_id] if job_id in rows else self._like(position[job_id], place))
            for job_id, place in places.items()
        }

    def _own(self, places: dict[JobId, Configuration]) -> list[int]:
        rows = held(self._wanted, places)
        result: list[int] = rows[self._known[rows]].tolist()
        return result

    def _like(self, job: int, place: Configuration) -> int:
        """An estimated row of the job on the same type; if possible on one node or several like the place."""
        kind = self._kind_at(place)
        begin, end = np.searchsorted(self._wanted.job, [job, job + 1]).tolist()
        rows = begin + np.flatnonzero(self._known[begin:end] & (self._kind[begin:end] == kind))
        unlike = self._split[rows] != (len(place) > 1)
        return int(rows[unlike.argmin()])

    def _kind_at(self, place: Configuration) -> int:
        node = self._wanted.nodes.index(next(iter(place)))
        return int(self._kinds[node])

    def _estimate(self, row: int) -> tuple[float, Layer]:
        return float(self._estimates.throughput[row]), self._estimates.layer_at(row)

    def _mixed(self) -> Flags:
        """The configurations on nodes of several types."""
        if not len(self._wanted):
            return np.zeros(0, dtype=np.bool_)
        other = self._kinds[self._wanted.node] != np.repeat(self._kind, np.diff(self._wanted.start))
        mixed: Flags = np.logical_or.reduceat(other, self._wanted.start[:-1])
        return mixed

    def _means(self, wanted: Flags) -> Floats:
        shape = (len(self._wanted.jobs), len(self.types))
        rows = np.flatnonzero(wanted & self._known)
        cell = self._wanted.job[rows] * shape[1] + self._kind[rows]
        value = self._estimates.throughput[rows]
        one = np.zeros(shape[0] * shape[1])
        one[cell] = value  # of equal values the mean is that value, to the last digit
        beyond = np.bincount(cell, value - one[cell], minlength=len(one))
        number = np.bincount(cell, minlength=len(one))
        result: Floats = (one + beyond / np.maximum(number, 1)).reshape(shape)
        return result


def blinded(speed: Floats, *, authors: bool) -> Floats:
    """Speeds that are equal on all types that a job can run on: the mean, so that times stay seconds.

    The authors take 1 in place of the mean, so every step takes a second.
    """
    able = speed > 0
    mean = speed.sum(axis=1, keepdims=True) / np.maximum(able.sum(axis=1, keepdims=True), 1)
    return np.where(able, 1.0 if authors else mean, 0.0)
