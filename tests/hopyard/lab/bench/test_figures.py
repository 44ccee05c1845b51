from pathlib import Path

import pytest

from hopyard.commands.bench import Subject
from hopyard.lab.bench.figures import quantile, spread
from hopyard.lab.bench.machine import machine_facts
from hopyard.lab.bench.stack.services import numbers
from hopyard.lab.bench.suite import BENCHMARKS
from hopyard.lab.bench.tables import shown


def test_a_quantile_is_one_of_the_values() -> None:
    values = [float(value) for value in range(100, 0, -1)]
    assert [quantile(values, share) for share in (0.0, 0.5, 0.99, 1.0)] == [1.0, 50.0, 99.0, 100.0]


def test_the_99th_percentile_of_few_values_is_the_largest() -> None:
    assert [figure.value for figure in spread("way", [0.3, 0.1, 0.2])] == [0.2, 0.3]


def test_no_values_have_no_quantile() -> None:
    with pytest.raises(ValueError, match="no values"):
        quantile([], 0.5)


def test_figures_are_shown_in_their_unit() -> None:
    middle, _ = spread("way", [0.0431])
    assert shown(middle) == "43.1ms"


def test_counters_of_a_service_are_read_from_its_metrics() -> None:
    text = '# HELP facts facts\nfacts_total 12.0\nreplay_seconds_total 0.5\nrequests{route="/"} 3.0\n'
    assert numbers(text) == {"facts_total": 12.0, "replay_seconds_total": 0.5}


def test_every_figure_that_can_be_named_can_be_measured() -> None:
    assert [subject.value for subject in Subject] == list(BENCHMARKS)


def test_the_machine_is_described_and_its_disk_timed(tmp_path: Path) -> None:
    mine = tmp_path / "sync"
    mine.write_text("mine")
    facts = machine_facts(tmp_path)
    assert (mine.read_text(), list(tmp_path.iterdir())) == ("mine", [mine])
    assert facts["disk sync"].endswith("ms")
    assert int(facts["cores"]) > 0
