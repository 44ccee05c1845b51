"""Arrivals from a trace: read, put in order, cut, and each job given a model and a length in samples.

Traces seldom name what ran. A job whose name is known and in the mix is that; any other is dealt a model of
the mix by seed and line. Its work is the GPU time the trace gives, or else what its steps would take here,
or else a size drawn from its model's class.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec
import numpy as np

from loadgen.catalogue.reference import FitsNowhere
from loadgen.catalogue.specs import Catalogue
from loadgen.draws import generator
from loadgen.workloads.jobs import HOUR_S, ReferenceCache, job_file, named
from loadgen.workloads.mixes import dealt, hints, mix_named
from loadgen.workloads.readers import columns as by_columns
from loadgen.workloads.readers import gavel, microsoft, philly, pollux
from loadgen.workloads.readers.rows import MalformedRow, TraceJob
from loadgen.workloads.sizes import gpu_hours
from schemas.catalogue import Mix, MixEntry
from schemas.cluster import ClusterFile
from schemas.jobs import SAMPLES_MAX, Checkpoint, JobFile
from schemas.scenarios import LATEST_S, Arrival, TraceColumns, TraceWorkload
from shared.runtime.files import InvalidFile

Reader = Callable[[Iterable[str], str], Iterator[TraceJob]]

READERS: dict[str, Reader] = {
    "philly": philly.read,
    "microsoft": microsoft.read,
    "gavel": gavel.read,
    "pollux": pollux.read,
}
AT_MOST: Mapping[str, tuple[float, str]] = {
    "gpus": (1e5, "GPUs"),
    "duration_s": (1e9, "seconds of running"),
    "samples": (SAMPLES_MAX, "samples"),
}
"""by field of a job: the largest value, and what it counts"""
JOBS_AT_MOST = 2_000_000
"""jobs of a file; reading so many takes twelve seconds and 600 MB"""
USER_AT_MOST = 100
"""most letters of a user's name"""
BY_COLUMNS = "columns"
"""the format of a file whose columns the user names"""
NAMING = "submit=COLUMN,gpus=COLUMN,seconds=COLUMN"
HEADERS = {"philly": philly.HEADER, "microsoft": microsoft.HEADER, "pollux": pollux.HEADER}


class Trace(msgspec.Struct, frozen=True):
    """A file as read: its format, and its jobs in order of arrival."""

    path: str
    format: str
    jobs: tuple[TraceJob, ...]

    @property
    def rows(self) -> int:
        """Number of rows that were taken: all, since the file is refused if a row is malformed."""
        return len(self.jobs)


def read_trace(path: str, kind: str | None = None, columns: TraceColumns | None = None) -> Trace:
    """Raises MalformedRow, and InvalidFile for a file that cannot be read or is of no known format."""
    try:
        if Path(path).exists() and not Path(path).is_file():
            raise InvalidFile(path, None, None, "is no regular file: a trace is read more than once")
        with Path(path).open(encoding="utf-8-sig", newline="") as lines:
            if columns is None:
                kind = kind or _format(lines.readline(), path)
                lines.seek(0)
                found = READERS[kind](lines, path)
            else:
                kind, found = BY_COLUMNS, by_columns.read(lines, path, columns)
            jobs = sorted(_bounded(found, path), key=lambda job: (job.arrival_s, job.line))
            _check_limits(jobs, path)
    except OSError as error:
        raise InvalidFile(path, None, None, error.strerror or str(error)) from None
    except UnicodeDecodeError:
        raise InvalidFile(path, None, None, "is not UTF-8 text") from None
    if not jobs:
        raise InvalidFile(path, None, None, "has no jobs")
    return Trace(path, kind, tuple(jobs))


def _bounded(jobs: Iterable[TraceJob], path: str) -> Iterator[TraceJob]:
    """Raises MalformedRow for the first job that is too many: memory grows with each."""
    for number, job in enumerate(jobs, 1):
        if number > JOBS_AT_MOST:
            raise MalformedRow(path, job.line, f"has more than {JOBS_AT_MOST} jobs: leave out rows")
        yield job


def _check_limits(jobs: Sequence[TraceJob], path: str) -> None:
    """Raises MalformedRow for the first job with a figure that no simulation could use."""
    for job in jobs:
        for field, (most, what) in AT_MOST.items():
            value = getattr(job, field)
            if value is not None and value > most:
                raise MalformedRow(path, job.line, f"{value:g} {what}: at most {most:g}")
        if not job.arrival_s - jobs[0].arrival_s <= LATEST_S:  # inf - inf is not, either
            reason = f"arrives more than {LATEST_S:g} s after the first job"
            raise MalformedRow(path, job.line, reason)


def _format(first: str, path: str) -> str:
    if first.count("\t") + 1 in gavel.LAYOUTS:
        return "gavel"
    columns = {name.strip() for name in first.split(",")}
    for kind, header in HEADERS.items():
        if columns.issuperset(header):
            return kind
    said = f"looks like none of the formats {', '.join(READERS)}"
    raise InvalidFile(path, 1, None, f"{said}; --columns {NAMING} reads any CSV file")


def trace_arrivals(
    workload: TraceWorkload, cluster: ClusterFile, seed: int, catalogue: Catalogue | None = None
) -> list[Arrival]:
    """Arrivals of the jobs that the workload takes, from the first of them on.

    Raises InvalidFile (MalformedRow too), UnknownMix, FitsNowhere.
    """
    mix = mix_named(workload.mix, catalogue)
    reference = ReferenceCache(cluster, catalogue)
    jobs = _taken(workload, seed)
    found = []
    for index, job in enumerate(jobs):
        assigned, gpus = _assigned(job, index, workload, reference, generator(seed, "trace", job.line))
        found.append(
            Arrival(
                at_s=0.0 if workload.at_once else job.arrival_s - jobs[0].arrival_s,
                job=msgspec.structs.replace(
                    assigned,
                    checkpoint=Checkpoint(interval_s=workload.checkpoint_interval_s),
                    user=job.user[:USER_AT_MOST],
                ),
                traced_gpus=job.gpus if gpus < job.gpus else None,
                traced_model=job.model if _meant(job, mix) is None else None,
            )
        )
    return found


def _taken(workload: TraceWorkload, seed: int) -> list[TraceJob]:
    """The jobs that the workload takes, in order of arrival. Raises InvalidFile for none or too few."""
    jobs = [
        job
        for job in read_trace(workload.path, workload.format, workload.columns).jobs
        if workload.hours is None or workload.hours[0] <= _hour(job) < workload.hours[1]
    ][: workload.limit]
    wanted = workload.sample or 1
    if len(jobs) < wanted:
        between = "" if workload.hours is None else " between hours {} and {}".format(*workload.hours)
        limit = "" if workload.limit is None else f" with limit {workload.limit}"
        reason = f"has {len(jobs)} jobs{between}{limit}, {wanted} are wanted"
        raise InvalidFile(workload.path, None, None, reason)
    if workload.sample is None:
        return jobs
    which = generator(seed, "trace-sample").choice(len(jobs), workload.sample, replace=False)
    return [jobs[index] for index in sorted(which.tolist())]


def _hour(job: TraceJob) -> float:
    return (job.arrival_s + job.clock_ahead_s) / HOUR_S % 24.0


def _assigned(
    job: TraceJob,
    index: int,
    workload: TraceWorkload,
    reference: ReferenceCache,
    random: np.random.Generator,
) -> tuple[JobFile, int]:
    """The job, and the GPUs that it asks for."""
    mix = mix_named(workload.mix, reference.catalogue)
    place, position = random.random(2).tolist()
    hours, most = _gpu_hours(job, reference), workload.longest_gpu_hours or math.inf
    among = mix.of_size(min(hours, most)) if workload.by_size and hours is not None else mix
    entry = _meant(job, mix) or dealt(among, place)
    if hours is None:
        hours = float(gpu_hours([mix.size_of(entry)], np.array([position]), None)[0])
    hours = min(hours, most)
    # More GPUs than the cluster has of a type that will do: the job keeps its work and runs on fewer.
    model = reference.spec(entry)
    gpus = min(job.gpus, reference.most_gpus(entry))
    made = job_file(named(model, index), model, gpu_hours=hours, gpus=[gpus], reference=reference)
    return made, gpus


def _meant(job: TraceJob, mix: Mix) -> MixEntry | None:
    """The entry of the mix that a job's model means, by its name in public traces or in the catalogue.

    A public trace's name means a data set too; if the mix has the model on another one only, it is that.
    """
    if job.model is None:
        return None
    model, dataset = hints().get(job.model, (job.model, ""))
    return mix.entry(model, dataset) or next((entry for entry in mix.jobs if entry.model == model), None)


def _gpu_hours(job: TraceJob, reference: ReferenceCache) -> float | None:
    if job.duration_s is not None:
        return job.duration_s * job.gpus / HOUR_S
    model = reference.catalogue.models.get(hints().get(job.model or "", ("", "")))
    if job.samples is None or model is None:
        return None
    try:
        return job.samples / reference.rate(model) / HOUR_S
    except FitsNowhere:
        return None
