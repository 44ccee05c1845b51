"""The figures stored for the page of the catalogue are those of the catalogue."""

import csv
from collections.abc import Callable, Iterator, Sequence

import pytest

from loadgen.catalogue.measured import Compared, compared, mean_ratio, typical_factor
from loadgen.catalogue.specs import shipped
from tests.paths import ROOT

COMPARED = compared(shipped())
WHICH = {"held out": "held", "fitted to": "fit"}
MEASURES: dict[str, Callable[[Sequence[Compared]], float]] = {
    "measured": len,
    "ratio": mean_ratio,
    "off by": typical_factor,
}


def rows() -> Iterator[tuple[str, str, str, float]]:
    """Group, arm, measure and figure."""
    with (ROOT / "docs/experiments/data/catalogue.csv").open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            yield row["group"], row["arm"], row["measure"], float(row["mean"])


def of(group: str, arm: str) -> Sequence[Compared]:
    if group == "model":
        return [row for row in COMPARED if f"{row.measured.model} on {row.measured.dataset}" == arm]
    there = [row for row in COMPARED if row.measured.part == WHICH[group]]
    return [row for row in there if arm in (row.measured.table, "all")]


def speed(gpu: str, model: str, batch: int, kind: str) -> float:
    """By Gavel, or ours."""
    [row] = [
        row
        for row in COMPARED
        for one in [row.measured]
        if (one.table, one.gpu, one.model, one.batch) == ("gavel", gpu, model, batch)
    ]
    return row.ours if kind == "ours" else row.measured.samples_s


def test_figures_of_the_page_are_those_of_the_catalogue() -> None:
    for group, arm, measure, figure in rows():
        if group != "V100 to":
            assert MEASURES[measure](of(group, arm)) == pytest.approx(figure, rel=1e-4), (group, arm)
            continue
        model, _, batch = arm.partition(", batch ")
        gpu, kind = measure.lower().split()
        ratio = speed("v100", model, int(batch), kind) / speed(gpu, model, int(batch), kind)
        assert ratio == pytest.approx(figure, rel=1e-4), (arm, measure)
