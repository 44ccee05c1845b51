"""The figures of an experiment's page are those of the results it was written from, or the page says that it
has none.

Results: `docs/experiments/data/NAME.csv`, the `figures.csv` of the report. A table whose first heading is a
group of them has an arm a row and a measure a column; one whose first heading is `GROUP: MEASURE` has a
column for every point of a sweep. Each cell is rounded from the stored figure.
"""

import csv
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.pages import name
from tests.paths import ROOT

FOLDER = ROOT / "docs" / "experiments"
PAGES = sorted(FOLDER.glob("*.md"))
STORED = sorted(page for page in PAGES if (FOLDER / "data" / f"{page.stem}.csv").exists())
NOTICES = ("**Awaits a rerun.**", "**Results not stored.**")
NUMBER = re.compile(r"[−-]?\d[\d,]*(?:\.\d+)?")

Figures = dict[tuple[str, str, str], tuple[str, str]]
"""mean and half width, by group, arm and measure with its unit"""


def stored(page: Path) -> Figures:
    with (FOLDER / "data" / f"{page.stem}.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    return {
        (f"{row['group']}: {heading}", row["arm"], row["at"])
        if row["at"]
        else (row["group"], row["arm"], heading): (row["mean"], row["half_width"])
        for row in rows
        for heading in (row["measure"], f"{row['measure']} {row['unit']}".strip())
    }


def tables(text: str) -> Iterator[list[list[str]]]:
    """Rows of cells, the heading first, the line of dashes left out."""
    for block in re.findall(r"(?:^\|.*\n)+", text, flags=re.MULTILINE):
        rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in block.splitlines()]
        yield [row for row in rows if not set("".join(row)) <= set("-:")]


def differing(text: str, figures: Figures) -> list[str]:
    """Cells that are not rounded from what is stored."""
    groups = {group for group, _, _ in figures}
    found = []
    for heading, *rows in tables(text):
        if heading[0] in groups:
            for row in rows:
                found += [
                    f"{row[0]}, {measure}: {cell}"
                    for measure, cell in zip(heading[1:], row[1:], strict=True)
                    if not row[0].startswith("*")
                    and not _agrees(cell, figures.get((heading[0], row[0], measure)))
                ]
    return found


def _agrees(cell: str, figure: tuple[str, str] | None) -> bool:
    shown = NUMBER.findall(cell)
    if figure is None or len(shown) != (2 if "±" in cell else 1):
        return False
    return all(_rounded(one, value) for one, value in zip(shown, figure, strict=False))


def _rounded(shown: str, value: str) -> bool:
    digits = len(shown.partition(".")[2])
    number = float(shown.replace(",", "").replace("−", "-"))
    return abs(number - float(value)) <= 0.5001 * 0.1**digits


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_a_page_has_its_results_or_says_that_it_has_not(page: Path) -> None:
    text = page.read_text("utf-8")
    assert (page in STORED) != any(notice in text for notice in NOTICES)


@pytest.mark.parametrize("page", STORED, ids=name)
def test_figures_of_a_page_are_those_of_its_results(page: Path) -> None:
    figures, text = stored(page), page.read_text("utf-8")
    assert {table[0][0] for table in tables(text)} & {group for group, _, _ in figures}
    assert differing(text, figures) == []


def test_results_belong_to_a_page() -> None:
    assert {path.stem for path in (FOLDER / "data").iterdir()} == {page.stem for page in STORED}


@pytest.mark.parametrize(
    ("cell", "fits"),
    [
        ("10.2 ± 1.2", True),
        ("10.21 ± 1.16", True),
        ("10.2", True),
        ("10.3 ± 1.2", False),
        ("10.2 ± 1.3", False),
        ("10.20 ± 1.2", False),
        ("", False),
    ],
)
def test_a_cell_is_rounded_from_its_figure(cell: str, fits: bool) -> None:  # noqa: FBT001
    figures = {("as it is", "hops", "makespan h"): ("10.2131", "1.1649")}
    text = f"| as it is | makespan h |\n|---|--:|\n| hops | {cell} |\n| *paper* | *9.5* |\n"
    assert (differing(text, figures) == []) == fits


@pytest.mark.parametrize(("cell", "fits"), [("−1.2 ± 0.3", True), ("-1.2 ± 0.3", True), ("1.2 ± 0.3", False)])
def test_a_difference_has_its_sign(cell: str, fits: bool) -> None:  # noqa: FBT001
    figures = {("as it is, less hops", "sia", "makespan h"): ("-1.2131", "0.2649")}
    page = f"| as it is, less hops | makespan h |\n|---|--:|\n| sia | {cell} |\n"
    assert (differing(page, figures) == []) == fits


def test_an_arm_or_a_measure_that_is_not_stored_differs() -> None:
    figures = {("as it is", "hops", "makespan h"): ("10.2131", "1.1649")}
    assert differing("| as it is | makespan h |\n|---|--:|\n| sia | 10.2 |\n", figures)
    assert differing("| as it is | mean JCT h |\n|---|--:|\n| hops | 10.2 |\n", figures)
