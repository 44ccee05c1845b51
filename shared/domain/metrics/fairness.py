"""Finish-time fairness and Jain's index: a job's time among others against its time alone on a fair share."""

import math
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate, pairwise

from schemas.ids import GpuType, JobId
from shared.domain.cluster import gpus_by_type
from shared.domain.ledger import Ledger
from shared.domain.ledger.records import JobRecord
from shared.domain.sums import plain_sum


def ftf_rhos(ledger: Ledger, records: Iterable[JobRecord]) -> list[float]:
    """ρ of ended jobs, those without an estimate left out."""
    return list(ftf_rho_by_job(ledger, records).values())


def ftf_rho_by_job(ledger: Ledger, records: Iterable[JobRecord]) -> dict[JobId, float]:
    """ρ = T_shared / T_isolated of ended jobs, those without an estimate left out.

    T_shared is the JCT. N, the number of jobs that share the cluster, is its mean over the job's life
    (the heterogeneous form of Sia, N not static).
    """
    gpus = gpus_by_type(known.node for known in ledger.nodes.values())
    present = _Presence(ledger)
    rhos = {}
    for record in records:
        if record.ended_at is None:
            continue
        alone_s = isolated_s(
            samples=record.spec.samples,
            largest=max(record.spec.demand),
            single_gpu=record.single_gpu,
            gpus=gpus,
            sharers=present.mean(record.submitted_at, record.ended_at),
        )
        if alone_s is not None:
            rhos[record.job_id] = (record.ended_at - record.submitted_at) / alone_s
    return rhos


def equal_sharing_ratios(ledger: Ledger, records: Iterable[JobRecord]) -> list[float]:
    """JCT / Λe of ended jobs (JPS eq. 32), those without an estimate left out.

    Λe: the job alone on 1/S of every GPU that it can use, S of them; exchanges of gradients take no time.
    """
    gpus = gpus_by_type(known.node for known in ledger.nodes.values())
    ended = [(record, record.ended_at) for record in records if record.ended_at is not None]
    ratios = []
    for record, ended_at in ended:
        alone_s = isolated_s(
            samples=record.spec.samples,
            largest=math.inf,
            single_gpu=record.single_gpu,
            gpus=gpus,
            sharers=len(ended),
        )
        if alone_s is not None:
            ratios.append((ended_at - record.submitted_at) / alone_s)
    return ratios


def isolated_s(
    *,
    samples: float,
    largest: float,
    single_gpu: Mapping[GpuType, float],
    gpus: Mapping[GpuType, int],
    sharers: float,
) -> float | None:
    """T_isolated, seconds: the job alone on 1/N of every GPU type it can run on.

        k = min(Σ_j N_j / N, R_max),   T = samples / (k · Σ_j N_j·v_j / Σ_j N_j)

    N_j GPUs of type j (`gpus`), v_j the job's samples/s on one of them (`single_gpu`), N = `sharers`,
    R_max its `largest` demand. So the job has a mix of types in proportion to their numbers, and its speed
    is linear in its GPUs: the isolated run has no communication, and a share below R_min means taking turns.
    None: no estimate, or no GPUs.
    """
    usable = sum(gpus.get(kind, 0) for kind in single_gpu)
    if not usable or sharers <= 0:
        return None
    speed = plain_sum(gpus.get(kind, 0) * rate for kind, rate in single_gpu.items()) / usable
    rate = min(usable / sharers, largest) * speed
    return samples / rate if rate > 0 else None


def single_gpu_mean(record: JobRecord) -> float:
    """Samples/s on one GPU, plain mean over the types. Needs an estimate."""
    return plain_sum(record.single_gpu.values()) / len(record.single_gpu) or math.inf


def jain(values: Sequence[float]) -> float | None:
    """(Σx)² / (n·Σx²): 1 if all are alike, 1/n if one has everything."""
    squares = math.fsum(value * value for value in values)
    return math.fsum(values) ** 2 / (len(values) * squares) if squares > 0 else None


class _Presence:
    """The number of jobs in the system over time: a step function and its integral."""

    def __init__(self, ledger: Ledger) -> None:
        steps: dict[float, int] = {}
        for record in ledger.jobs.values():
            steps[record.submitted_at] = steps.get(record.submitted_at, 0) + 1
            if record.ended_at is not None:
                steps[record.ended_at] = steps.get(record.ended_at, 0) - 1
        self._times = sorted(steps)
        self._counts = list(accumulate(steps[at] for at in self._times))
        lengths = (later - earlier for earlier, later in pairwise(self._times))
        areas = (length * count for length, count in zip(lengths, self._counts, strict=False))
        self._areas = list(accumulate(areas, initial=0.0))

    def mean(self, start: float, end: float) -> float:
        """Mean number of jobs between two times; at a point, the number there."""
        if end <= start:
            return float(max(self._counts[bisect_right(self._times, start) - 1], 1))
        return (self._area(end) - self._area(start)) / (end - start)

    def _area(self, at: float) -> float:
        index = bisect_right(self._times, at) - 1
        return self._areas[index] + (at - self._times[index]) * self._counts[index]
