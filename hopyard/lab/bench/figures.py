"""Figures and reports of them. Pure."""

import math
from collections.abc import Iterable, Sequence

from schemas.base import Message


class Reading(Message, frozen=True, kw_only=True):
    name: str
    value: float
    unit: str
    """`s`, `1/s`, or empty for a plain number"""


class Grid(Message, frozen=True, kw_only=True):
    """Figures side by side."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str | float | None, ...], ...]
    """None: the figure does not exist here"""


class Benchmark(Message, frozen=True, kw_only=True):
    """The figures of one measurement, and its conditions."""

    name: str
    conditions: str
    figures: tuple[Reading, ...]
    grid: Grid | None = None
    wall_s: float = 0.0
    """real seconds that the measurement took"""


class BenchReport(Message, frozen=True, kw_only=True):
    machine: dict[str, str]
    versions: dict[str, str]
    benchmarks: tuple[Benchmark, ...]


def seconds(name: str, value: float) -> Reading:
    return Reading(name=name, value=value, unit="s")


def rate(name: str, per_s: float) -> Reading:
    return Reading(name=name, value=per_s, unit="1/s")


def count(name: str, value: float) -> Reading:
    return Reading(name=name, value=value, unit="")


def spread(name: str, times_s: Sequence[float]) -> list[Reading]:
    """Median and 99th percentile of some durations."""
    return [seconds(f"{name} p{share}", quantile(times_s, share / 100)) for share in (50, 99)]


def quantile(values: Iterable[float], share: float) -> float:
    """The smallest value that at least this share of `values` does not exceed. Raises ValueError for none."""
    ordered = sorted(values)
    if not ordered:
        raise ValueError("no values")
    return ordered[max(math.ceil(share * len(ordered)), 1) - 1]
