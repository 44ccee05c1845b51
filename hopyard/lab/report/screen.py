"""A comparison on a terminal: the table, the verdict in words, and what to beware of."""

from collections.abc import Iterator, Mapping, Sequence

from rich.console import RenderableType
from rich.text import Text

from hopyard.lab.report.document import Part, Table
from hopyard.lab.report.measures import HEADLINE, spread
from hopyard.lab.report.statistics import summary
from hopyard.lab.report.verdicts import Verdict, in_short, warnings
from hopyard.lab.runs.cases import values_of
from hopyard.lab.runs.trials import Simulated
from hopyard.show.columns import Listing
from hopyard.show.tables import facts_table, figures_table

BESIDE = 3
"""policies in a table of 80 columns"""


def compared(
    title: str,
    outcomes: Mapping[str, Sequence[Simulated]],
    found: Sequence[Verdict],
    remarks: Mapping[str, Sequence[str]],
) -> Iterator[RenderableType]:
    """`remarks`: by policy, where it is out of its range."""
    results = [outcome.result for one in outcomes.values() for outcome in one]
    seeds = sorted({result.seed for result in results})
    several = len(seeds) > 1
    numbered = f"{len(seeds)} seeds; mean ± half of the 95 % interval" if several else f"seed {seeds[0]}"
    yield Text(f"{title[0].upper()}{title[1:]}: {results[0].scenario}, {numbered}\n", "bold")
    arms = list(outcomes)
    for first in range(0, len(arms), BESIDE):
        if first:
            yield Text("")
        yield _table({arm: outcomes[arm] for arm in arms[first : first + BESIDE]})
    if found:
        sentence = in_short(found)
        yield Text(f"\n{sentence[0].upper()}{sentence[1:]}.\n", "bold")
        yield facts_table({one.measure: one.text for one in found})
    for warning in warnings(outcomes):
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
            yield Text(f"\n{_plain(part.removeprefix('## '))}\n", "bold" if part.startswith("## ") else "")


def _tables(table: Table) -> Iterator[RenderableType]:
    for first in range(1, len(table.columns), BESIDE):
        shown = slice(first, first + BESIDE)
        rows = [[_plain(row[0]), *map(_plain, row[shown])] for row in table.rows]
        yield figures_table([table.columns[0], *table.columns[shown]], rows)


def _plain(text: str) -> str:
    """Without the marks of Markdown."""
    return text.replace("*", "").replace("`", "")


def _table(outcomes: Mapping[str, Sequence[Simulated]]) -> Listing[Sequence[str]]:
    rows = [
        [
            measure.heading,
            *(_cell(values_of(found, measure.metric), measure.scale) for found in outcomes.values()),
        ]
        for measure in HEADLINE
    ]
    return figures_table(["", *(f">{arm}" for arm in outcomes)], rows)


def _cell(values: Sequence[float], scale: float) -> str:
    return spread(summary(values), scale) if values else "–"
