"""The figures on a page are those of the results it was written from, or the page says that it has none.

Results lie in `data/` beside the page (`tests/docs/figures.py` reads them). A table whose first heading is a
group of them has an arm a row and a measure a column; one whose first heading is `GROUP: MEASURE` has a
column for every point of a sweep. Each cell is rounded from the stored figure, and so is each interval in the
text.
"""

import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from hopyard.lab.report.statistics import summary
from tests.docs.figures import (
    FOLDER,
    PAGES,
    RESULTS,
    Figure,
    Figures,
    Key,
    figures_of,
    prose,
    results_of,
    rounded,
    stored,
    tables,
)
from tests.docs.pages import name

STORED = [page for page in PAGES if results_of(page)]
NOTICES = ("**Awaits a rerun.**", "**Results not stored.**")
SEEDLESS = {"catalogue"}
"""results in which nothing is drawn; `test_catalogue_page` computes them again"""
NUMBER = re.compile(r"[−-]?\d[\d,]*(?:\.\d+)?")
INTERVAL = re.compile(r"([+−]?)(\d[\d,]*(?:\.\d+)?) ± (\d[\d,]*(?:\.\d+)?)")
SENTENCES = re.compile(r"\n\n|\n- |(?<=[.:;])\s+(?=[A-Z*`])")
UNDECIDED = re.compile(r"\b(not|nothing|none|nobody|no|nor|neither)\b")
LESS = ", less "
PRECISION = 2e-5
"""of what is stored with six digits"""

ByCell = Mapping[tuple[str, str, str], Figure]
"""by group, arm and the heading of a column"""


def by_cell(figures: Figures) -> ByCell:
    return {
        (f"{key.group}: {heading}", key.arm, key.at) if key.at else (key.group, key.arm, heading): figure
        for key, figure in figures.items()
        for heading in (key.measure, f"{key.measure} {key.unit}".strip())
    }


def differing(text: str, figures: ByCell) -> list[str]:
    """Cells that are not rounded from what is stored."""
    groups = {group for group, _, _ in figures}
    return [
        f"line {table.line}, {row[0]}, {measure}: {cell}"
        for table in tables(text)
        if table.heading[0] in groups
        for row in table.rows
        if not row[0].startswith("*")
        for measure, cell in zip(table.heading[1:], row[1:], strict=True)
        if not _agrees(cell, figures.get((table.heading[0], row[0], measure)))
    ]


def _agrees(cell: str, figure: Figure | None) -> bool:
    shown = NUMBER.findall(cell)
    if figure is None or len(shown) != (2 if "±" in cell else 1):
        return False
    return all(rounded(one, value) for one, value in zip(shown, figure[:2], strict=False))


def miscounted(figures: Figures) -> list[Key]:
    """Figures that are not the mean and the interval of their values, or whose values are not the differences
    that their group is of."""
    return [
        key
        for key, figure in figures.items()
        if figure.values and not (_summed(figure) and _subtracted(key, figure, figures))
    ]


def _summed(figure: Figure) -> bool:
    found = summary(figure.values)
    near = PRECISION * max(map(abs, figure.values))
    halves = (found.half_width is None) == (not figure.half_width)
    return halves and all(
        abs(value - float(text)) <= near + 1e-5 * abs(value)
        for value, text in ((found.mean, figure.mean), (found.half_width, figure.half_width))
        if value is not None
    )


def _subtracted(key: Key, figure: Figure, figures: Figures) -> bool:
    group, less, first = key.group.partition(LESS)
    mine, others = figures.get(key._replace(group=group)), figures.get(key._replace(group=group, arm=first))
    if not less or mine is None or others is None or len(mine.values) != len(others.values):
        return True
    apart = [one - other for one, other in zip(mine.values, others.values, strict=True)]
    near = PRECISION * max(map(abs, (*mine.values, *others.values)))
    return all(abs(a - b) <= near for a, b in zip(apart, figure.values, strict=True))


def unfounded(text: str, figures: Figures) -> list[str]:
    """Intervals in the text that are no stored figure's; with a sign, none of that sign."""
    return [
        f"{sign}{mean} ± {half}"
        for sign, mean, half in INTERVAL.findall(prose(text))
        if not any(_is_of(sign, mean, half, figure) for figure in figures.values())
    ]


def _is_of(sign: str, mean: str, half: str, figure: Figure) -> bool:
    magnitude = figure.mean.lstrip("-")
    negative = figure.mean.startswith("-")
    return (
        rounded(mean, magnitude)
        and rounded(half, figure.half_width)
        and (not sign or (sign == "−") == negative or _number(mean) == 0)
    )


def overstated(text: str) -> list[str]:
    """Sentences with a signed interval that contains 0 and no word that says so."""
    return [
        sentence
        for sentence in SENTENCES.split(prose(text))
        for sign, mean, half in INTERVAL.findall(sentence)
        if sign and _number(half) >= _number(mean) and not UNDECIDED.search(sentence)
    ]


def _number(shown: str) -> float:
    return float(shown.replace(",", ""))


@pytest.mark.parametrize("page", [page for page in PAGES if page.parent == FOLDER], ids=name)
def test_an_experiments_page_has_its_results_or_says_that_it_has_not(page: Path) -> None:
    text = page.read_text("utf-8")
    assert (page in STORED) != any(notice in text for notice in NOTICES)


@pytest.mark.parametrize("page", STORED, ids=name)
def test_figures_of_a_page_are_those_of_its_results(page: Path) -> None:
    figures, text = figures_of(page), page.read_text("utf-8")
    groups = {group for group, _, _ in by_cell(figures)}
    assert {table.heading[0] for table in tables(text)} & groups
    assert differing(text, by_cell(figures)) == []


@pytest.mark.parametrize("page", [page for page in STORED if page.parent == FOLDER], ids=name)
def test_intervals_in_the_text_of_a_page_are_those_of_its_results(page: Path) -> None:
    assert unfounded(page.read_text("utf-8"), figures_of(page)) == []


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_a_sentence_says_where_seeds_do_not_decide(page: Path) -> None:
    assert overstated(page.read_text("utf-8")) == []


@pytest.mark.parametrize("path", RESULTS, ids=name)
def test_stored_figures_follow_from_their_values_by_seed(path: Path) -> None:
    figures = stored(path)
    assert all(figure.values for figure in figures.values()) or path.stem in SEEDLESS
    assert miscounted(figures) == []


def test_results_belong_to_a_page() -> None:
    assert {path for page in STORED for path in results_of(page)} == set(RESULTS)


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
    text = f"| as it is | makespan h |\n|---|--:|\n| hops | {cell} |\n| *paper* | *9.5* |\n"
    assert (differing(text, by_cell(MAKESPAN)) == []) == fits


@pytest.mark.parametrize(("cell", "fits"), [("−1.2 ± 0.3", True), ("-1.2 ± 0.3", True), ("1.2 ± 0.3", False)])
def test_a_difference_has_its_sign(cell: str, fits: bool) -> None:  # noqa: FBT001
    page = f"| as it is, less hops | makespan h |\n|---|--:|\n| sia | {cell} |\n"
    assert (differing(page, by_cell(APART)) == []) == fits


@pytest.mark.parametrize(
    ("said", "fits"),
    [
        ("ends 1.2 ± 0.3 h earlier", True),
        ("(−1.2 ± 0.3 h)", True),
        ("(+1.2 ± 0.3 h)", False),
        ("1.2 ± 0.4 h", False),
    ],
)
def test_an_interval_in_the_text_has_a_figure(said: str, fits: bool) -> None:  # noqa: FBT001
    assert (unfounded(f"Sia {said}.\n", APART) == []) == fits


@pytest.mark.parametrize(
    ("said", "fair"),
    [
        ("Sia is behind (+1.2 ± 0.3 h).", True),
        ("Sia is behind (+0.2 ± 0.3 h).", False),
        ("Sia is not distinguished (+0.2 ± 0.3 h).", True),
        ("Sia is behind (+0.2 ± 0.3 h). Gavel is not.", False),
    ],
)
def test_an_interval_that_contains_0_decides_nothing(said: str, fair: bool) -> None:  # noqa: FBT001
    assert (overstated(said) == []) == fair


def test_an_arm_or_a_measure_that_is_not_stored_differs() -> None:
    assert differing("| as it is | makespan h |\n|---|--:|\n| sia | 10.2 |\n", by_cell(MAKESPAN))
    assert differing("| as it is | mean JCT h |\n|---|--:|\n| hops | 10.2 |\n", by_cell(MAKESPAN))


@pytest.mark.parametrize(
    ("mean", "half_width", "values", "counted"),
    [
        ("2", "2.48414", (1.0, 2.0, 3.0), True),
        ("2.1", "2.48414", (1.0, 2.0, 3.0), False),
        ("2", "1", (1.0, 2.0, 3.0), False),
        ("2", "", (1.0, 2.0, 3.0), False),
        ("2", "", (2.0,), True),
        ("2", "1", (), True),
    ],
)
def test_a_figure_is_the_mean_of_its_values(
    mean: str,
    half_width: str,
    values: tuple[float, ...],
    counted: bool,  # noqa: FBT001
) -> None:
    assert (miscounted({HOPS: Figure(mean, half_width, values)}) == []) == counted


@pytest.mark.parametrize(
    ("apart", "counted"), [((1.0, 2.0), True), ((2.0, 1.0), False), ((-1.0, -2.0), False)]
)
def test_a_difference_is_one_seed_by_seed(apart: tuple[float, ...], counted: bool) -> None:  # noqa: FBT001
    mean = f"{sum(apart) / 2:g}"
    figures = {
        HOPS: Figure("3", "12.7062", (2.0, 4.0)),
        HOPS._replace(arm="sia"): Figure("4.5", "19.0593", (3.0, 6.0)),
        SIA: Figure(mean, "6.3531", apart),
    }
    assert (miscounted(figures) == []) == counted


HOPS = Key("as it is", "hops", "makespan", "h", "")
SIA = Key("as it is, less hops", "sia", "makespan", "h", "")
MAKESPAN = {HOPS: Figure("10.2131", "1.1649", ())}
APART = {SIA: Figure("-1.2131", "0.2649", ())}
