"""A report for people. Pure."""

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from hopyard.lab.bench.figures import Benchmark, BenchReport, Grid, Reading
from hopyard.show.tables import facts_table
from hopyard.show.units import duration, number


def report_table(report: BenchReport) -> RenderableType:
    """The figures, then what they were made on."""
    return Group(*_parts(report))


def _parts(report: BenchReport) -> Iterator[RenderableType]:
    for benchmark in report.benchmarks:
        yield Text(benchmark.name, "bold underline")
        yield Text(f"{benchmark.conditions}; took {duration(benchmark.wall_s)}", "dim")
        yield _figures(benchmark) if benchmark.grid is None else _side_by_side(benchmark.grid)
        yield ""
    yield Text("machine", "bold underline")
    yield facts_table(report.machine | report.versions)


def _figures(benchmark: Benchmark) -> RenderableType:
    return facts_table({figure.name: shown(figure) for figure in benchmark.figures})


def _side_by_side(grid: Grid) -> RenderableType:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for column in grid.columns:
        table.add_column(column, justify="left" if column in grid.columns[:2] else "right")
    for row in grid.rows:
        table.add_row(*(cell if isinstance(cell, str) else number(cell) for cell in row))
    return table


def shown(figure: Reading) -> str:
    match figure.unit:
        case "s":
            return duration(figure.value)
        case "1/s":
            return f"{number(figure.value)}/s"
        case _:
            return number(figure.value)
