"""Tidy Parquet files for one's own analysis: one observation a row, one file a kind.

| file               | a row is                                      |
|--------------------|-----------------------------------------------|
| metrics.parquet    | one metric of one run                         |
| jobs.parquet       | one job of one run                            |
| plans.parquet      | one plan of one run                           |
| executions.parquet | one placement that ran, estimated and measured|
| curves.parquet     | the cluster every 10 s of one run             |

Each begins with group, arm, at (the place in a sweep), policy and seed. Times are cluster seconds.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
from pyarrow import parquet

from hopyard.lab.runs.cases import Case, Finished
from hopyard.lab.runs.trials import JobRow, PlanRow, PointRow, Simulated
from schemas.accuracy import Execution

Cell = str | float | int | None
Row = dict[str, Cell]

KEYS = {"group": str, "arm": str, "at": float, "policy": str, "seed": int}
ARROW = {str: pa.string(), float: pa.float64(), int: pa.int64(), bool: pa.bool_()}


class _Metric(msgspec.Struct):
    metric: str
    value: float | None


def _metrics(outcome: Simulated) -> Iterator[_Metric]:
    for metric, value in outcome.result.metrics.items():
        yield _Metric(metric, value)


KINDS: Mapping[str, tuple[type[msgspec.Struct], Callable[[Simulated], Iterator[msgspec.Struct]]]] = {
    "metrics": (_Metric, _metrics),
    "jobs": (JobRow, lambda outcome: iter(outcome.jobs)),
    "plans": (PlanRow, lambda outcome: iter(outcome.plans)),
    "executions": (Execution, lambda outcome: iter(outcome.executions)),
    "curves": (PointRow, lambda outcome: iter(outcome.curve)),
}


def write(folder: Path, finished: Sequence[Finished]) -> None:
    """Run after run, so that only one run's rows are in memory at a time."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, (kind, rows_of) in KINDS.items():
        schema = _schema(kind)
        with parquet.ParquetWriter(folder / f"{name}.parquet", schema) as writer:
            for one in finished:
                keys = _keys(one.case, one.outcome.result.policy)
                rows = [keys | _renamed(row) for row in rows_of(one.outcome)]
                if rows:
                    writer.write_table(pa.Table.from_pylist(rows, schema=schema))


def _keys(case: Case, policy: str) -> Row:
    return {"group": case.group, "arm": case.arm, "at": case.at, "policy": policy, "seed": case.seed}


def _renamed(row: msgspec.Struct) -> Row:
    """A row's own `at` is a time and not the place in a sweep."""
    return {"time_s" if name == "at" else name: value for name, value in msgspec.structs.asdict(row).items()}


def _schema(kind: type[msgspec.Struct]) -> pa.Schema:
    fields = {
        "time_s" if field.name == "at" else field.name: _plain(field.type)
        for field in msgspec.structs.fields(kind)
    }
    return pa.schema([(name, ARROW[plain]) for name, plain in (KEYS | fields).items()])


def _plain(annotation: Any) -> type:  # noqa: ANN401 - whatever a field is annotated with
    """What a column of such a field holds: `float` of `float | None`, `str` of an id or an enum."""
    kinds = [kind for kind in getattr(annotation, "__args__", (annotation,)) if kind is not type(None)]
    kind = getattr(kinds[0], "__supertype__", kinds[0])
    return str if issubclass(kind, StrEnum) else kind
