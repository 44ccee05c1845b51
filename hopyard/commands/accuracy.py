"""accuracy."""

from collections.abc import Iterator, Sequence
from typing import Annotated

import typer

from hopyard.api.ask import ask
from hopyard.api.connect import clock_here
from hopyard.commands.options import AsJson, Out, filled
from hopyard.failures import Invalid
from hopyard.show.columns import Listing
from hopyard.show.tables import figures_table
from hopyard.show.terminal import say, show
from hopyard.show.times import Times
from hopyard.show.units import share
from schemas.accuracy import AccuracyReport, AccuracyRow
from schemas.questions import ShowAccuracy
from shared.domain.accuracy import KEYS, PERIOD_S, SHORTEST_S

TIMEOUT_S = 30.0
LONGEST_S = 1e9


def accuracy(
    *,
    by: Annotated[
        str,
        typer.Option(
            "--by",
            metavar="KEYS",
            callback=filled,
            help=f"Group by these: {', '.join(KEYS)}; several with commas.",
        ),
    ] = "layer",
    shortest: Annotated[
        float,
        typer.Option(
            "--shortest", min=0, max=LONGEST_S, help="Leave out runs shorter than this, in seconds."
        ),
    ] = SHORTEST_S,
    as_json: AsJson = False,
    out: Out = None,
) -> None:
    """Compare estimated with measured throughput.

    The log has every placement: the throughput that was estimated when it was
    placed, and the one that was measured until it ended.

    $ hopyard accuracy
    $ hopyard accuracy --by model,place
    $ hopyard accuracy --by loader,number --json
    """
    keys = tuple(name.strip() for name in by.split(","))
    unknown = [name for name in keys if name not in KEYS]
    if unknown:
        raise Invalid(f"--by: no key to group by: {', '.join(unknown)}; the keys are {', '.join(KEYS)}")
    report = ask(ShowAccuracy(by=keys, shortest_s=shortest), AccuracyReport, TIMEOUT_S)
    times = Times(clock_here()) if "hour" in keys else None
    if report.overall is None and not as_json:
        say(f"no placement that can be compared has run for {shortest:g} s of cluster time yet (--shortest)")
        if out is None and not report.rows:
            return
    show(report, accuracy_table(report, times or Times(None)), as_json=as_json, out=out, times=times)


def accuracy_table(report: AccuracyReport, times: Times) -> Listing[Sequence[str]]:
    columns = (*report.by, ">executions", ">accuracy", ">error p50", ">error p95", ">bias")
    rows = [(*_key(report.by, row.key, times), *_figures(row)) for row in report.rows]
    if report.overall is not None:
        rows.append(("all", *("" for _ in report.by[1:]), *_figures(report.overall)))
    return figures_table(columns, rows, spare=True)


def _key(names: Sequence[str], key: Sequence[str], times: Times) -> Iterator[str]:
    """An hour by its beginning."""
    for name, value in zip(names, key, strict=True):
        yield times.date(float(value) * PERIOD_S) if name == "hour" else value


def _figures(row: AccuracyRow) -> tuple[str, ...]:
    shares = (row.accuracy, row.error_p50, row.error_p95)
    return (str(row.executions), *map(share, shares), f"{row.bias:+.1%}")


def register(app: typer.Typer) -> None:
    app.command("accuracy")(accuracy)
