"""A comparison on a terminal: the table, the verdict in words, and warnings."""

from collections.abc import Iterator, Mapping, Sequence

from rich.console import RenderableType
from rich.text import Text

from hopyard.lab.report.document import Part, Table
from hopyard.lab.report.headroom import BOUNDED, faults, ratios
from hopyard.lab.report.measures import HEADLINE, spread
from hopyard.lab.report.statistics import summary
from hopyard.lab.report.verdicts import Verdict, in_short, warnings
from hopyard.lab.runs.cases import Finished, arms_of, values_of
from hopyard.lab.runs.trials import Simulated
from hopyard.show.columns import Listing
from hopyard.show.tables import facts_table, figures_table

BESIDE = 3
"""policies in a table of 80 columns"""


def compared(
    title: str,
    finished: Sequence[Finished],
    found: Sequence[Verdict],
    remarks: Mapping[str, Sequence[str]],
) -> Iterator[RenderableType]:
    """`remarks`: by policy, where it is out of its range."""
    outcomes = arms_of(finished)
    results = [outcome.result for one in outcomes.values() for outcome in one]
    seeds = sorted({result.seed for result in results})
    several = len(seeds) > 1
    numbered = f"{len(seeds)} seeds; mean ± half of the 95 % interval" if several else f"seed {seeds[0]}"
    yield Text(f"{title[0].upper()}{title[1:]}: {results[0].scenario}, {numbered}\n", "bold")
    arms = list(outcomes)
    for first in range(0, len(arms), BESIDE):
        if first:
            yield Text("")
        yield _table(finished, outcomes, arms[first : first + BESIDE])
    if any(one.bound is not None and not one.bound.unknown for one in finished):
        yield Text("\n× bound: of what no scheduler could beat that knew everything; see the report", "dim")
    if found:
        sentence = in_short(found)
        yield Text(f"\n{sentence[0].upper()}{sentence[1:]}.\n", "bold")
        yield facts_table({one.measure: one.text for one in found})
    for warning in (*warnings(outcomes), *faults(finished)):
        yield Text(f"\n{warning}", "yellow")
    if remarks:
        yield Text("\nOut of their range:\n", "bold")
        yield facts_table({arm: "\n".join(said) for arm, said in remarks.items()})


def on_screen(parts: Sequence[Part]) -> Iterator[RenderableType]:
    """Headings, paragraphs and tables of a report, those cut to `BESIDE` columns with each row's name."""
    for part in parts:
        if isinstance(part, Table):
            yield from _tables(part)
        elif isinstance(part, str):
            yield Text(f"\n{_plain(part.lstrip('# '))}\n", "bold" if part.startswith("#") else "")


def _tables(table: Table) -> Iterator[RenderableType]:
    for first in range(1, len(table.columns), BESIDE):
        shown = slice(first, first + BESIDE)
        rows = [[_plain(row[0]), *map(_plain, row[shown])] for row in table.rows]
        yield figures_table([table.columns[0], *table.columns[shown]], rows)


def _plain(text: str) -> str:
    """The text without the marks of Markdown."""
    return text.replace("*", "").replace("`", "")


def _table(
    finished: Sequence[Finished], outcomes: Mapping[str, Sequence[Simulated]], arms: Sequence[str]
) -> Listing[Sequence[str]]:
    rows = []
    for measure in HEADLINE:
        values = values_of(outcomes, measure.metric)
        rows.append([measure.heading, *(_cell(values[arm], measure.scale) for arm in arms)])
        over = ratios(finished, measure.metric) if measure in BOUNDED else {}
        if any(over.get(arm) for arm in arms):
            rows.append(["  × bound", *(_cell(over[arm], 1.0) for arm in arms)])
    return figures_table(["", *(f">{arm}" for arm in arms)], rows)


def _cell(values: Sequence[float], scale: float) -> str:
    return spread(summary(values), scale) if values else "–"
