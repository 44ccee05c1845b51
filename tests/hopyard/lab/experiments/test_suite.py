"""What a report says at its head, and how many seeds an experiment has."""

from msgspec.structs import replace

from hopyard.commands.experiment import SEEDS_DEFAULT
from hopyard.lab.experiments.suite import EXPERIMENTS, makers
from tests.hopyard.lab.experiment_builders import outcome


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
