"""Microsoft clusters of 2021 (ElasticFlow, ASPLOS 2023), raw and as jobs with models; seconds, not sorted.

job_id, submission_time, duration, num_gpu
job_id, submission_time, num_iteration, model_name, deadline, batch_size, num_gpu, duration
"""

from collections.abc import Iterable, Iterator

from loadgen.workloads.readers.rows import TraceJob, table

HEADER = ("job_id", "submission_time", "duration", "num_gpu")


def read(lines: Iterable[str], path: str) -> Iterator[TraceJob]:
    """Raises MalformedRow."""
    for row in table(lines, path, HEADER):
        yield TraceJob(
            line=row.line,
            arrival_s=row.number("submission_time"),
            gpus=row.count("num_gpu"),
            duration_s=row.positive("duration"),
            model=row.text("model_name") if row.has("model_name") else None,
        )
