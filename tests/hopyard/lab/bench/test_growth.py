"""How the cost of a simulated run grows: one row for each number of jobs."""

import subprocess
import sys

import msgspec
import pytest

from hopyard.lab.bench.growth import COLUMNS, Growth, growth, with_jobs
from loadgen.scenarios import arrivals, load_scenario
from schemas.scenarios import ArrivingJob, ListedWorkload


def test_one_row_for_each_number_of_jobs() -> None:
    measured = growth(Growth(load_scenario("tiny"), (3, 1)))
    assert measured.grid is not None
    assert measured.grid.columns == COLUMNS
    assert [row[0] for row in measured.grid.rows] == [1, 3]
    assert all(isinstance(figure, float | int) and figure > 0 for row in measured.grid.rows for figure in row)


@pytest.mark.parametrize("listed", [False, True], ids=["drawn", "listed"])
def test_the_first_jobs_of_a_scenario(*, listed: bool) -> None:
    scenario = load_scenario("tiny")
    jobs = arrivals(scenario)
    if listed:
        written = [ArrivingJob(at_s=one.at_s, job=one.job) for one in reversed(jobs)]
        scenario = msgspec.structs.replace(scenario, workload=ListedWorkload(jobs=written))
    assert [one.at_s for one in arrivals(with_jobs(scenario, 3))] == [one.at_s for one in jobs[:3]]


def test_of_a_trace_that_is_sampled_as_many_jobs_are_drawn() -> None:
    sampled = load_scenario("hadar-60")
    assert len(arrivals(with_jobs(sampled, 10))) == 10


IMPORTED_BY_ROWS = """
import sys
from hopyard.lab.bench import growth
from loadgen.scenarios import load_scenario

row, imported = growth._row, []

def watched(scenario):
    before = set(sys.modules)
    found = row(scenario)
    imported.extend(set(sys.modules) - before)
    return found

growth._row = watched
growth.growth(growth.Growth(load_scenario("tiny"), (2,)))
print(*imported)
"""


def test_imports_are_in_no_row() -> None:
    run = subprocess.run([sys.executable, "-c", IMPORTED_BY_ROWS], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == ""
