"""Which jobs are accepted: those within the limits that the known nodes can ever run."""

import difflib
from collections.abc import Collection, Mapping, Sequence

import msgspec

from schemas.ids import GpuType, JobId, NodeId
from schemas.jobs import GpuRange, JobFile, JobSpec
from shared.domain.cluster import satisfiable, usable_gpus
from shared.domain.demand import job_spec
from shared.domain.folders import plain_name
from shared.domain.invalid_job import InvalidJob

SPEC_BYTES_MAX = 262_144
"""largest encoded `JobSpec`; it is sent to every node of the job, in messages of at most 1 MiB"""


def accepted_spec(
    job: JobFile,
    gpus: Mapping[GpuType, int],
    gpus_max: int,
    *,
    workloads: Collection[str] = (),
    commanded: Sequence[NodeId] = (),
) -> JobSpec:
    """The job as the system schedules it. Raises InvalidJob, naming the field.

    The demand R stays as the user asked, even if the cluster is too small for some of its counts: a node may
    join. A job is refused only if the cluster is too small for every count.

    `gpus`: GPUs of the known nodes, by type; empty: no node is known, and profiling judges the types.
    `gpus_max`: GPUs that a job may have at most. `workloads`: what the nodes can train; empty: anything.
    `commanded`: the nodes that start a job by its command; the cluster may have emulated nodes as well.
    """
    spec = job_spec(job)
    if commanded and not spec.command:
        _refuse_without_command(commanded)
    if max(spec.demand) > gpus_max:
        raise InvalidJob(
            _largest(job), f"asks for {max(spec.demand)} GPUs; a job may have {gpus_max} at most"
        )
    _check_update(job, spec)
    if len(msgspec.msgpack.encode(spec)) > SPEC_BYTES_MAX:
        raise InvalidJob("$.command", f"the job is larger than {SPEC_BYTES_MAX} bytes")
    if workloads:
        _check_workload(spec, workloads)
    if gpus:
        _check_cluster(job, spec, gpus)
    return spec


def check_folder(folder: str, taken: Mapping[JobId, str]) -> None:
    """Raises InvalidJob if an unfinished job names the folder: each would resume from the other's weights.

    `taken`: the folders that unfinished jobs name.
    """
    name = plain_name(folder)
    for job_id, other in taken.items():
        if other and plain_name(other) == name:
            reason = f"holds the checkpoints of {job_id}, which has not ended; name another folder"
            raise InvalidJob("$.checkpoint.folder", reason)


def _check_update(job: JobFile, spec: JobSpec) -> None:
    """Raises InvalidJob for a script with a GPU count at which its data set does not fill one update.

    It would train with fewer GPUs, and fail once a plan gives it so many. A command that keeps its number of
    GPUs may divide its data otherwise.
    """
    whole, batch = spec.workload.dataset_samples, spec.workload.batch_size
    largest = max(spec.demand)
    if spec.command and len(spec.demand) > 1 and whole is not None and batch * largest > whole:
        update = f"the data set has {whole} samples, and an update on {largest} GPUs takes {batch * largest}"
        hint = f": ask for {whole // batch} at most" if batch <= whole else ""
        raise InvalidJob(_largest(job), update + hint)


def _refuse_without_command(nodes: Sequence[NodeId]) -> None:
    more = f" and {len(nodes) - 1} more nodes start" if len(nodes) > 1 else " starts"
    raise InvalidJob("$.command", f"is missing; {nodes[0]}{more} jobs by their command")


def _check_workload(spec: JobSpec, workloads: Collection[str]) -> None:
    """Raises InvalidJob for a workload that no node can train: emulated nodes know a list of workloads."""
    model, asked = spec.workload.model, f"{spec.workload.model} on {spec.workload.dataset}"
    if asked in workloads:
        return
    names = sorted(workloads)
    if of_model := [name for name in names if name.startswith(f"{model} on ")]:
        known = ", ".join(of_model)
        raise InvalidJob("$.workload.dataset", f"no node can train {asked}; the emulated nodes know {known}")
    models = list(dict.fromkeys(name.partition(" on ")[0] for name in names))
    close = difflib.get_close_matches(model, models, n=1)
    hint = f"; did you mean {close[0]}?" if close else ""
    known = f"the emulated nodes know {', '.join(models)}"
    raise InvalidJob("$.workload.model", f"no node can train {model}{hint}; {known}")


def _check_cluster(job: JobFile, spec: JobSpec, known: Mapping[GpuType, int]) -> None:
    for index, gpu_type in enumerate(job.gpu_types or ()):
        if gpu_type not in known:
            raise InvalidJob(f"$.gpu_types[{index}]", f"no node has {gpu_type}; there are {', '.join(known)}")
    if not satisfiable(spec.demand, spec.gpu_types, known):
        most = usable_gpus(spec.gpu_types, known)
        types = f" of {', '.join(spec.gpu_types)}" if spec.gpu_types else ""
        raise InvalidJob(
            "$.gpus", f"asks for at least {min(spec.demand)} GPUs; the cluster has {most}{types}"
        )


def _largest(job: JobFile) -> str:
    """The field with the largest GPU count."""
    match job.gpus:
        case GpuRange():
            return "$.gpus.max"
        case list() as counts:
            return f"$.gpus[{counts.index(max(counts))}]"
        case _:
            return "$.gpus"
