"""From the job a user wrote to the job the system schedules: every choice made, every default filled."""

import math
from collections.abc import Sequence

from schemas.jobs import CHOICES_MAX, SAMPLES_MAX, GpuRange, JobFile, JobSpec, LearningRate, Workload
from schemas.placement import LOCKSTEP
from shared.domain import gangs
from shared.domain.invalid_job import InvalidJob
from shared.domain.launch import CONTROL, checked_environment, command_words, memory_bytes, time_limit_s


def job_spec(job: JobFile) -> JobSpec:
    """The job with its demand expanded and its learning rates worked out. Raises InvalidJob."""
    demand = expand_demand(job.gpus)
    return JobSpec(
        name=job.name,
        workload=_legible(job.workload),
        demand=demand,
        gpu_types=tuple(sorted(set(job.gpu_types or ()))),
        samples=_total_samples(job),
        learning_rates=_learning_rates(job, demand),
        priority=float(job.priority),
        project=job.project,
        user=job.user,
        command=command_words(job.command),
        checkpoint_interval_s=float(job.checkpoint.interval_s),
        checkpoint_folder=job.checkpoint.folder,
        grace_s=float(job.checkpoint.grace_s),
        working_directory=job.working_directory,
        environment=checked_environment(job.environment),
        image=job.image,
        cpus=None if job.cpus is None else float(job.cpus),
        memory=memory_bytes(job.memory),
        time_limit_s=time_limit_s(job.time_limit),
        retries=job.retries,
        preemptible=job.preemptible,
        modes=() if job.modes is None else _modes(job.modes),
    )


def _legible(workload: Workload) -> Workload:
    """Raises InvalidJob for control characters. Its type allows them: facts of earlier versions have some."""
    for field in ("model", "dataset", "optimizer", "code_version"):
        if CONTROL.search(getattr(workload, field)):
            raise InvalidJob(f"$.workload.{field}", "holds a control character")
    return workload


def _modes(asked: Sequence[str]) -> tuple[str, ...]:
    """The modes asked for, and lockstep, in which every job can run."""
    for index, name in enumerate(asked):
        if name not in gangs.NAMES:
            raise InvalidJob(f"$.modes[{index}]", f"{name} is not a mode; there are {', '.join(gangs.NAMES)}")
    return tuple(sorted({*asked, LOCKSTEP.tag()}))


def expand_demand(gpus: int | list[int] | GpuRange) -> tuple[int, ...]:
    """The set R of GPU counts, ascending (Hops section 3.3).

    Bounds become at most `choices` counts at equal intervals, rounded to whole GPUs, duplicates
    dropped, both bounds kept; `all`: every count.
    """
    if isinstance(gpus, int):
        return (gpus,)
    if isinstance(gpus, list):
        return tuple(sorted(set(gpus)))
    if gpus.max < gpus.min:
        raise InvalidJob("$.gpus.max", f"{gpus.max} is below min {gpus.min}")
    if gpus.choices == "all":
        return _every(gpus.min, gpus.max)
    if gpus.choices == 1 and gpus.max > gpus.min:
        raise InvalidJob("$.gpus.choices", "both bounds are kept, so a range needs at least 2")
    steps = max(gpus.choices - 1, 1)
    width = (gpus.max - gpus.min) / steps
    counts = tuple(sorted({math.floor(gpus.min + width * k + 0.5) for k in range(steps + 1)}))
    assert (counts[0], counts[-1]) == (gpus.min, gpus.max), "both bounds are kept"
    return counts


def _every(least: int, most: int) -> tuple[int, ...]:
    if most - least >= CHOICES_MAX:
        raise InvalidJob("$.gpus.choices", f"{most - least + 1} GPU counts, at most {CHOICES_MAX}")
    return tuple(range(least, most + 1))


def _total_samples(job: JobFile) -> float:
    match job.samples, job.epochs:
        case float() | int() as samples, None:
            return float(samples)
        case None, float() | int() as epochs:
            if job.workload.dataset_samples is None:
                raise InvalidJob("$.workload.dataset_samples", "a length in epochs needs it")
            return _in_bounds(float(epochs * job.workload.dataset_samples))
        case None, None:
            raise InvalidJob("$.samples", "say how long to train: samples or epochs")
        case _:
            raise InvalidJob("$.epochs", "give samples or epochs, not both")


def _in_bounds(samples: float) -> float:
    if not 1 <= samples <= SAMPLES_MAX:
        raise InvalidJob("$.epochs", f"{samples:g} samples in all: from 1 to {SAMPLES_MAX:g}")
    return samples


def _learning_rates(job: JobFile, demand: tuple[int, ...]) -> dict[int, float]:
    match job.learning_rate, job.learning_rates:
        case None, None:
            return {}
        case LearningRate() as rate, None:
            return {gpus: _scaled(rate, gpus) for gpus in demand}
        case None, dict() as table:
            missing = [gpus for gpus in demand if gpus not in table]
            if missing:
                raise InvalidJob("$.learning_rates", f"no rate for {missing[0]} GPUs")
            if stray := sorted(set(table) - _possible(job.gpus)):
                raise InvalidJob("$.learning_rates", f"a rate for {stray[0]} GPUs, which `gpus` rules out")
            return {gpus: float(table[gpus]) for gpus in demand}
        case _:
            raise InvalidJob("$.learning_rates", "give learning_rate or learning_rates, not both")


def _possible(gpus: int | list[int] | GpuRange) -> set[int]:
    """GPU counts for which a rate may be given: of a range also those that it is not expanded to."""
    return set(range(gpus.min, gpus.max + 1) if isinstance(gpus, GpuRange) else expand_demand(gpus))


def _scaled(rate: LearningRate, gpus: int) -> float:
    ratio = gpus / rate.gpus  # of the global batch, since the batch per GPU is constant
    return rate.value * {"linear": ratio, "sqrt": math.sqrt(ratio), "constant": 1.0}[rate.rule]
