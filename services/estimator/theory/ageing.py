"""A job's age and its placement sensitivity (Hops eq. 9 and 10). Pure."""

from collections.abc import Mapping, Sequence

from schemas.ids import GpuType
from shared.domain.sums import plain_sum


def shares(gpu_types: Sequence[GpuType], gpus: Mapping[GpuType, int]) -> dict[GpuType, float]:
    """P(type): N_type / N_cluster, renormalised over the types the job can run on.

    Where none of them has a GPU at the moment, all count alike.
    """
    counts = {gpu_type: gpus.get(gpu_type, 0) for gpu_type in gpu_types}
    total = sum(counts.values())
    if not total:
        return dict.fromkeys(gpu_types, 1.0 / len(gpu_types))
    return {gpu_type: count / total for gpu_type, count in counts.items()}


def age_s(
    samples: float,
    demand: Sequence[int],
    single_gpu: Mapping[GpuType, float],
    share: Mapping[GpuType, float],
) -> float:
    """Eq. 9: Σ_type P(type) · samples / (throughput_type · R_avg), seconds.

    `single_gpu` in samples/s; R_avg is the mean of the demand set.
    """
    r_avg = sum(demand) / len(demand)
    return plain_sum(share[gpu_type] * samples / (rate * r_avg) for gpu_type, rate in single_gpu.items())


def sensitivity(
    single_gpu: Mapping[GpuType, float],
    paired: Mapping[GpuType, float],
    share: Mapping[GpuType, float],
) -> float:
    """Eq. 10, share-weighted mean over types: ρ = throughput of {a: 1} / per-GPU throughput of {a: 1, b: 1}.

    `paired` in samples/s per GPU.
    """
    return plain_sum(share[gpu_type] * rate / paired[gpu_type] for gpu_type, rate in single_gpu.items())
