"""Microsoft Philly (Jeon et al., ATC 2019): timestamp, duration s, num_gpus and more; not sorted."""

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime

from loadgen.workloads.readers.rows import Cells, TraceJob, table

HEADER = ("timestamp", "duration", "num_gpus")


def read(lines: Iterable[str], path: str) -> Iterator[TraceJob]:
    """Raises MalformedRow."""
    for row in table(lines, path, HEADER):
        yield TraceJob(
            line=row.line,
            arrival_s=_seconds(row),
            gpus=row.count("num_gpus"),
            duration_s=row.positive("duration"),
        )


def _seconds(row: Cells) -> float:
    """Local wall clock, whose zone the trace does not name: only differences matter."""
    text = row.text("timestamp")
    try:
        return datetime.strptime(text, "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC).timestamp()
    except ValueError:
        raise row.refusal(f"timestamp is not a time: {text[:40]}", "timestamp") from None
