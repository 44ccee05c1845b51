"""What a report says at its head, how many seeds an experiment has, what a terminal shows of it."""

import re
from pathlib import Path

import pytest
from msgspec.structs import replace

from hopyard.commands.experiment import SEEDS_DEFAULT, _show
from hopyard.lab.experiments.suite import EXPERIMENTS, Plan, makers, perform
from hopyard.lab.runs.cache import SUFFIX, keep, name_of
from hopyard.lab.runs.cases import Case
from hopyard.lab.runs.trials import StoredOutcome
from tests.hopyard.lab.experiment_builders import options, outcome, silent, trial


@pytest.mark.parametrize(
    ("name", "figures"),
    [
        ("table3", r"All: tiny, seed 1\n\n +fifo\nmakespan, h +2\n"),
        ("arrival-rates", r"Makespan, h\n\njobs per hour +fifo\n +20 +2\n"),
    ],
)
def test_a_terminal_shows_the_figures_of_an_experiment_without_a_verdict(
    name: str, figures: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    keep(
        tmp_path / (name_of(trial()) + SUFFIX),
        StoredOutcome(trial=trial(), outcome=outcome(makespan_s=7200.0), wall_s=1.0),
    )
    cases = [Case(group="all", arm="fifo", trial=trial(), at=20.0)]
    plan = Plan(
        name=name,
        experiment=replace(EXPERIMENTS[name], cases=lambda _: iter(cases)),
        options=options(policies=["fifo"]),
        out=tmp_path / "out",
        runs=tmp_path,
        workers=1,
        events=False,
        about={},
    )
    _show(perform(plan, silent()), as_json=False)
    assert re.search(figures, capsys.readouterr().out)


def test_each_set_of_versions_that_made_runs_is_listed_once() -> None:
    old = outcome().result
    here = replace(old, made_by={"python": "3.13.0", "processor": "x86_64"})
    assert makers([here, old, here]) == ["not noted", "python 3.13.0, processor x86_64"]


def test_help_says_how_many_seeds_each_experiment_has() -> None:
    usual, *others = SEEDS_DEFAULT.split("; ")
    parts = [part.rpartition(" ") for part in others]
    said = {name: int(seeds) for names, _, seeds in parts for name in names.split(", ")}
    drawn = {name: one.seeds for name, one in EXPERIMENTS.items() if not one.held_out}
    assert drawn == {name: said.get(name, int(usual)) for name in drawn}
    assert said.keys() <= drawn.keys()
