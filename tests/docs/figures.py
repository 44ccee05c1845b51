"""Tables of pages, and the results that experiments were written from.

Results are the `figures.csv` of a report: a figure a row, by group, arm, measure and perhaps the point of a
sweep, with its mean, half of its 95 % interval, and its values seed by seed.
"""

import csv
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from tests.paths import ROOT

FOLDER = ROOT / "docs" / "experiments"
PAGES = [*sorted(FOLDER.glob("*.md")), ROOT / "docs/policies.md", *sorted(ROOT.glob("docs/policies/*.md"))]
"""those that compare"""
RESULTS = sorted(ROOT.glob("docs/**/data/*.csv"))
LINKED = re.compile(r"\]\((data/[^)\s]+\.csv|[^)\s]*/data/[^)\s]+\.csv)\)")
CELLS = re.compile(r"(?<!\\)\|")


class Key(NamedTuple):
    group: str
    arm: str
    measure: str
    unit: str
    at: str


class Figure(NamedTuple):
    mean: str
    half_width: str
    values: tuple[float, ...]
    """by seed; none where the results were kept without"""


Figures = Mapping[Key, Figure]


class Table(NamedTuple):
    line: int
    """of its heading, in the page"""
    beside: str
    """the paragraphs before and after it, within its section"""
    heading: list[str]
    rows: list[list[str]]


def stored(path: Path) -> dict[Key, Figure]:
    with path.open(encoding="utf-8") as file:
        return {
            Key(row["group"], row["arm"], row["measure"], row["unit"], row["at"]): Figure(
                row["mean"], row["half_width"], tuple(map(float, (row.get("values") or "").split()))
            )
            for row in csv.DictReader(file)
        }


def results_of(page: Path) -> list[Path]:
    """Results that a page links, and those under the name of an experiment's page."""
    found = {(page.parent / link).resolve() for link in LINKED.findall(page.read_text("utf-8"))}
    own = FOLDER / "data" / f"{page.stem}.csv"
    return sorted(found | ({own} if page.parent == FOLDER and own.exists() else set()))


def figures_of(page: Path) -> dict[Key, Figure]:
    return {key: figure for path in results_of(page) for key, figure in stored(path).items()}


def tables(text: str) -> Iterator[Table]:
    """Section by section; the line of dashes is left out."""
    start = 0
    for section in re.split(r"^(?=#+ )", text, flags=re.MULTILINE):
        blocks = list(re.finditer(r"(?:^\|.*\n?)+", section, flags=re.MULTILINE))
        edges = [0, *(edge for block in blocks for edge in block.span()), len(section)]
        between = [section[a:b] for a, b in zip(edges[::2], edges[1::2], strict=True)]
        for place, block in enumerate(blocks):
            heading, _, *rows = [_cells(line) for line in block.group().splitlines()]
            line = text.count("\n", 0, start + block.start()) + 1
            yield Table(line, _beside(between[place], between[place + 1]), heading, rows)
        start += len(section)


def _beside(before: str, after: str) -> str:
    """With what is shown as code: a paragraph that introduces it, too."""
    return "\n\n".join([*before.strip().split("\n\n")[-2:], *after.strip().split("\n\n")[:1]])


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in CELLS.split(line.strip("|"))]


def prose(text: str) -> str:
    """What is left of a page without its tables."""
    return re.sub(r"^\|.*$", "", text, flags=re.MULTILINE)


def rounded(shown: str, value: str) -> bool:
    """Whether digits on a page are those of what is stored."""
    if not value:
        return False
    digits = len(shown.partition(".")[2])
    number = float(shown.replace(",", "").replace("−", "-"))
    return abs(number - float(value)) <= 0.5001 * 0.1**digits
