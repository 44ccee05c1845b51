"""Finish-time fairness and Jain's index: a job's time among others against its time alone on a fair share."""

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain

from schemas.ids import GpuType, JobId
from shared.domain.ledger import Ledger
from shared.domain.ledger.records import JobRecord, NodeRecord
from shared.domain.metrics.steps import Steps
from shared.domain.sums import plain_sum

SHORTEST_S = 1e-9
"""a job that would take less alone has no figure here: logs of earlier versions have jobs of no length"""


def ftf_rhos(ledger: Ledger, records: Iterable[JobRecord]) -> list[float]:
    """ρ of ended jobs, those without an estimate left out."""
    return list(ftf_rho_by_job(ledger, records).values())


def ftf_rho_by_job(ledger: Ledger, records: Iterable[JobRecord]) -> dict[JobId, float]:
    """ρ = T_shared / T_isolated of ended jobs, those without an estimate left out.

    T_shared is the JCT. The cluster's GPUs, and N, the number of jobs that share them, are means over the
    job's life (the heterogeneous form of Sia, N not static).
    """
    supply, present = _supply(ledger), _presence(ledger)
    rhos = {}
    for record in records:
        if record.ended_at is None:
            continue
        alone_s = isolated_s(
            samples=record.spec.samples,
            largest=max(record.spec.demand),
            single_gpu=record.single_gpu,
            gpus=_gpus(supply, record, record.ended_at),
            sharers=present.mean(record.submitted_at, record.ended_at) or 1.0,
        )
        if alone_s is not None:
            rhos[record.job_id] = (record.ended_at - record.submitted_at) / alone_s
    return rhos


def equal_sharing_ratios(ledger: Ledger, records: Iterable[JobRecord]) -> list[float]:
    """JCT / Λe of ended jobs (JPS eq. 32), those without an estimate left out.

    Λe: the job alone on 1/S of every GPU that it can use, S of them; exchanges of gradients take no time.
    The number of GPUs is its mean over the job's life.
    """
    supply = _supply(ledger)
    ended = [(record, record.ended_at) for record in records if record.ended_at is not None]
    ratios = []
    for record, ended_at in ended:
        alone_s = isolated_s(
            samples=record.spec.samples,
            largest=math.inf,
            single_gpu=record.single_gpu,
            gpus=_gpus(supply, record, ended_at),
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
    gpus: Mapping[GpuType, float],
    sharers: float,
) -> float | None:
    """T_isolated, seconds: the job alone on 1/N of every GPU type it can run on.

        k = min(Σ_j N_j / N, R_max),   T = samples / (k · Σ_j N_j·v_j / Σ_j N_j)

    N_j GPUs of type j (`gpus`), v_j the job's samples/s on one of them (`single_gpu`), N = `sharers`,
    R_max its `largest` demand. So the job has a mix of types in proportion to their numbers, and its speed
    is linear in its GPUs: the isolated run has no communication, and a share below R_min means taking turns.
    None: no estimate, no GPUs, or less than `SHORTEST_S`.
    """
    usable = plain_sum(gpus.get(kind, 0) for kind in single_gpu)
    if not usable or sharers <= 0:
        return None
    speed = plain_sum(gpus.get(kind, 0) * rate for kind, rate in single_gpu.items()) / usable
    rate = min(usable / sharers, largest) * speed
    alone_s = samples / rate if rate > 0 else 0.0
    return alone_s if alone_s >= SHORTEST_S else None


def single_gpu_mean(record: JobRecord) -> float:
    """Samples/s on one GPU, plain mean over the types. Needs an estimate."""
    return plain_sum(record.single_gpu.values()) / len(record.single_gpu) or math.inf


def jain(values: Sequence[float]) -> float | None:
    """(Σx)² / (n·Σx²): 1 if all are alike, 1/n if one has everything."""
    squares = math.fsum(value * value for value in values)
    return math.fsum(values) ** 2 / (len(values) * squares) if squares > 0 else None


def _presence(ledger: Ledger) -> Steps:
    """The number of jobs in the system."""
    records = ledger.jobs.values()
    ends = ((record.ended_at, -1) for record in records if record.ended_at is not None)
    return Steps(chain(((record.submitted_at, 1) for record in records), ends))


def _supply(ledger: Ledger) -> dict[GpuType, Steps]:
    """GPUs that jobs could get, by type."""
    changes: dict[GpuType, list[tuple[float, int]]] = {}
    for node in ledger.nodes.values():
        for start, end, gpus, gpu_type in _up(node, ledger.first_submitted_at):
            of_type = changes.setdefault(gpu_type, [])
            of_type += [(start, gpus), (end, -gpus)]
        if node.alive:
            changes.setdefault(node.whole.gpu_type, []).append((node.up_since, node.node.gpus))
    return {gpu_type: Steps(of_type) for gpu_type, of_type in changes.items()}


def _up(node: NodeRecord, first: float | None) -> Sequence[tuple[float, float, int, GpuType]]:
    """The intervals of a node. The first one that is kept stands for those before it."""
    if not node.up_before_s or first is None:
        return node.up
    (start, end, gpus, gpu_type), *rest = node.up
    return [(min(start, first), end, gpus, gpu_type), *rest]


def _gpus(supply: Mapping[GpuType, Steps], record: JobRecord, ended_at: float) -> dict[GpuType, float]:
    """Mean number of GPUs in the job's life, of the types that it has speeds on."""
    return {
        gpu_type: supply[gpu_type].mean(record.submitted_at, ended_at)
        for gpu_type in record.single_gpu
        if gpu_type in supply
    }
