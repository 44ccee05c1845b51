"""Gavel (OSDI 2020) traces: tab-separated, no header, in three widths.

10  type, command, folder, steps flag, needs data, steps, scale factor, priority, SLO, arrival
 8  type, command, folder, steps flag, needs data, steps, arrival, scale factor
 7  the same without the folder

Steps are those of all GPUs together, each of one batch.
"""

import re
from collections.abc import Iterable, Iterator

from loadgen.workloads.readers.rows import Cells, MalformedRow, TraceJob

LAYOUTS = {
    10: {"job_type": 0, "total_steps": 5, "scale_factor": 6, "arrival": 9},
    8: {"job_type": 0, "total_steps": 5, "arrival": 6, "scale_factor": 7},
    7: {"job_type": 0, "total_steps": 4, "arrival": 5, "scale_factor": 6},
}
"""positions of the columns that are read, by the number of columns"""

_TYPE = re.compile(r"^(?P<model>[^()]+?)(?: \(batch size (?P<batch>\d+)\))?$")


def read(lines: Iterable[str], path: str) -> Iterator[TraceJob]:
    """Raises MalformedRow."""
    for number, line in enumerate(lines, start=1):
        if line.strip():
            yield _job(_cells(line.rstrip("\r\n").split("\t"), path, number))


def _cells(columns: list[str], path: str, number: int) -> Cells:
    if len(columns) not in LAYOUTS:
        raise MalformedRow(path, number, f"{len(columns)} columns where Gavel has 7, 8 or 10")
    layout = LAYOUTS[len(columns)]
    return Cells(path, number, {name: columns[index] for name, index in layout.items()})


def _job(row: Cells) -> TraceJob:
    found = _TYPE.match(row.text("job_type"))
    if found is None:
        raise row.refusal(f"job_type is not one of Gavel's: {row.text('job_type')[:40]}")
    return TraceJob(
        line=row.line,
        arrival_s=row.number("arrival"),
        gpus=row.count("scale_factor"),
        samples=row.positive("total_steps") * int(found["batch"] or 1),
        model=found["model"],
    )
