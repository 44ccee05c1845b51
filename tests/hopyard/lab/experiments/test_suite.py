"""What a report says at its head."""

from msgspec.structs import replace

from hopyard.lab.experiments.suite import makers
from tests.hopyard.lab.experiment_builders import outcome


def test_each_set_of_versions_that_made_runs_is_listed_once() -> None:
    old = outcome().result
    here = replace(old, made_by={"python": "3.13.0", "processor": "x86_64"})
    assert makers([here, old, here]) == ["not noted", "python 3.13.0, processor x86_64"]
