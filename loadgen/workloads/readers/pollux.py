"""Pollux (OSDI 2021) workloads: name, time s, application, num_replicas, batch_size. No durations."""

from collections.abc import Iterable, Iterator

from loadgen.workloads.readers.rows import TraceJob, table

HEADER = ("name", "time", "application", "num_replicas", "batch_size")


def read(lines: Iterable[str], path: str) -> Iterator[TraceJob]:
    """Raises MalformedRow."""
    for row in table(lines, path, HEADER):
        yield TraceJob(
            line=row.line,
            arrival_s=row.number("time"),
            gpus=row.count("num_replicas"),
            model=row.text("application"),
        )
