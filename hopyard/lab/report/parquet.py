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

import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any

import duckdb
import msgspec

from hopyard.failures import Failure
from hopyard.lab.runs.cases import Case, Finished
from hopyard.lab.runs.trials import PlanRow, PointRow, Simulated
from schemas.accuracy import Execution
from schemas.results import JobResult
from shared.runtime.disk import make_folder
from shared.runtime.interruption import interruptible

Cell = str | float | int | None
Row = dict[str, Cell]

KEYS = {"group": str, "arm": str, "at": float, "policy": str, "seed": int}
REASON = re.compile(r'": ([A-Z][^"]*)')
"""in an error of DuckDB, behind the name of the file: what the system said"""
SQL = {str: "VARCHAR", float: "DOUBLE", int: "BIGINT", bool: "BOOLEAN"}


class _Metric(msgspec.Struct):
    metric: str
    value: float | None


def _metrics(outcome: Simulated) -> Iterator[_Metric]:
    for metric, value in outcome.result.metrics.items():
        yield _Metric(metric, value)


KINDS: Mapping[str, tuple[type[msgspec.Struct], Callable[[Simulated], Iterator[msgspec.Struct]]]] = {
    "metrics": (_Metric, _metrics),
    "jobs": (JobResult, lambda outcome: iter(outcome.jobs)),
    "plans": (PlanRow, lambda outcome: iter(outcome.plans)),
    "executions": (Execution, lambda outcome: iter(outcome.executions)),
    "curves": (PointRow, lambda outcome: iter(outcome.curve)),
}


def write(folder: Path, finished: Sequence[Finished]) -> None:
    """Run after run: only one run's rows are objects at a time, those before it are columns.

    A file is replaced when the new one is whole. Raises Failure if one cannot be written.
    """
    make_folder(folder)
    with tempfile.TemporaryDirectory(prefix=".making-", dir=folder) as made:
        for name, (row_kind, rows_of) in KINDS.items():
            columns, file = _columns(row_kind), f"{name}.parquet"
            with interruptible(), duckdb.connect() as table:
                fields = ", ".join(f'"{name}" {kind}' for name, kind in columns.items())
                table.execute(f"CREATE TABLE written ({fields})")
                for one in finished:
                    keys = _keys(one.case, one.outcome.result.policy)
                    _insert(table, columns, [keys | _renamed(row) for row in rows_of(one.outcome)])
                try:
                    table.table("written").write_parquet(str(Path(made, file)))
                except duckdb.IOException as error:
                    reason = REASON.search(str(error))
                    raise Failure(f"{folder / file}: {reason[1].lower() if reason else error}") from None
            Path(made, file).replace(folder / file)


def _insert(table: duckdb.DuckDBPyConnection, columns: Mapping[str, str], rows: Sequence[Row]) -> None:
    """A list a column: rows one by one take a hundred times as long."""
    lists = ", ".join(f"unnest(?::{kind}[])" for kind in columns.values())
    table.execute(f"INSERT INTO written SELECT {lists}", [[row[name] for row in rows] for name in columns])


def _keys(case: Case, policy: str) -> Row:
    return {"group": case.group, "arm": case.arm, "at": case.at, "policy": policy, "seed": case.seed}


def _renamed(row: msgspec.Struct) -> Row:
    """A row's own `at` is a time and not the place in a sweep; several names are one text."""
    return {
        "time_s" if name == "at" else name: " ".join(value) if isinstance(value, tuple) else value
        for name, value in msgspec.structs.asdict(row).items()
    }


def _columns(kind: type[msgspec.Struct]) -> dict[str, str]:
    fields = {
        "time_s" if field.name == "at" else field.name: _plain(field.type)
        for field in msgspec.structs.fields(kind)
    }
    return {name: SQL[plain] for name, plain in (KEYS | fields).items()}


def _plain(annotation: Any) -> type:  # noqa: ANN401 - whatever a field is annotated with
    """What a column of such a field holds: `float` of `float | None`, `str` of an id or an enum."""
    kinds = [kind for kind in getattr(annotation, "__args__", (annotation,)) if kind is not type(None)]
    kind = getattr(kinds[0], "__supertype__", kinds[0])
    kind = getattr(kind, "__origin__", kind)  # of an id with limits: `Annotated[str, …]`
    return str if issubclass(kind, StrEnum) else kind
