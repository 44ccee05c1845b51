"""Types of which no node was open when a job was profiled: it is measured there once one is."""

import pytest

from schemas.events import (
    JobCompleted,
    JobProfiled,
    JobTypeProfiled,
    NodeDrained,
    NodeRestored,
    ProfileFailed,
    ProfileRun,
    ProfilingAdded,
)
from schemas.ids import JobId, NodeId, PlacementId
from tests.services.profiler.profiler_builders import (
    Driver,
    cancelled,
    failed,
    joined,
    lost,
    measured,
    measurement,
    submitted,
)

A, B = joined("a0", "A"), joined("b0", "B")
ATTACHED, PLAIN = (), ("lockstep",)


def on_one_type(*, modes: tuple[str, ...] = ATTACHED, at_once: bool = False) -> Driver:
    """`j1`, profiled on type A, before any node of type B has joined."""
    driver = Driver(at_once=at_once).tell(A, submitted("j1"))
    [run] = driver.next_round()
    return driver.tell(measured(run, measurement(modes=modes)))


def further(driver: Driver) -> list[tuple[str, str]]:
    return [(fact.job_id, fact.gpu_type) for fact in driver.all(JobTypeProfiled)]


def planned(*runs: ProfileRun) -> list[tuple[str, str]]:
    return [(run.job_id, run.gpu_type) for run in runs]


def test_a_job_is_measured_on_a_type_that_joins_later() -> None:
    driver = on_one_type()
    assert [sorted(fact.modules) for fact in driver.all(JobProfiled)] == [["A"]]
    [run] = driver.tell(B).next_round()
    assert planned(run) == [("j1", "B")]
    assert driver.tell(measured(run)).next_round() == ()
    assert further(driver) == [("j1", "B")]


def test_a_job_is_measured_within_the_round_where_gpus_are_idle() -> None:
    driver = on_one_type(at_once=True).tell(B)
    assert planned(*driver.all(ProfilingAdded)[-1].runs) == [("j1", "B")]


def test_a_job_is_measured_on_a_type_that_was_drained() -> None:
    driver = Driver().tell(A, B, NodeDrained(at=0.0, node_id=NodeId("b0")), submitted("j1"))
    [run] = driver.next_round()
    driver.tell(measured(run))
    assert "B" in driver.all(JobProfiled)[0].unusable
    [run] = driver.tell(NodeRestored(at=500.0, node_id=NodeId("b0"))).next_round()
    assert further(driver.tell(measured(run))) == [("j1", "B")]


@pytest.mark.parametrize("types", [["A"], ["A", "B"]])
def test_a_job_that_names_its_types_is_measured_on_those_only(types: list[str]) -> None:
    driver = Driver(attempts=0).tell(A, submitted("j1", gpu_types=types))
    [run] = driver.next_round()
    driver.tell(measured(run))
    assert planned(*driver.tell(B).next_round()) == [("j1", name) for name in types[1:]]


def test_a_script_that_does_not_attach_is_not_measured_while_it_may_train() -> None:
    """But what another job of its workload brought holds for it too."""
    driver = on_one_type(modes=PLAIN).tell(B)
    assert driver.next_round() == ()
    [run] = driver.tell(submitted("j2")).next_round()
    assert planned(run) == [("j2", "B")]
    driver.tell(measured(run, measurement(modes=PLAIN)))
    assert sorted(driver.all(JobProfiled)[-1].modules) == ["A", "B"]
    assert further(driver) == [("j1", "B")]


def test_jobs_of_a_workload_share_a_measurement() -> None:
    driver = Driver().tell(A, submitted("j1"), submitted("j2"), submitted("other", model="vgg"))
    for run in driver.next_round():
        driver.tell(measured(run))
    runs = driver.tell(B).next_round()
    assert planned(*runs) == [("j1", "B"), ("other", "B")]
    assert sorted(further(driver.tell(measured(runs[0])))) == [("j1", "B"), ("j2", "B")]


@pytest.mark.parametrize("ends", [cancelled("j1"), "completed"])
def test_an_ended_job_is_measured_no_more(ends: object) -> None:
    over = JobCompleted(at=2.0, job_id=JobId("j1"), placement_id=PlacementId("p"), samples_done=1.0)
    driver = on_one_type().tell(B)
    [run] = driver.next_round()
    driver.tell(over if ends == "completed" else cancelled("j1"))
    assert [(fact.reason, fact.final) for fact in driver.all(ProfileFailed)] == [("the job has ended", False)]
    assert driver.tell(measured(run)).next_round() == ()
    assert not further(driver)
    assert not driver.core.state.profiled


def test_a_type_on_which_the_job_fails_is_tried_no_more() -> None:
    driver = on_one_type().tell(B)
    [run] = driver.next_round()
    assert driver.tell(failed(run)).next_round() == ()
    assert not further(driver)
    assert len(driver.all(JobProfiled)) == 1


def test_a_measurement_counts_though_its_node_is_lost_by_then() -> None:
    driver = on_one_type().tell(B)
    [run] = driver.next_round()
    driver.tell(measured(run), lost("b0"))
    assert further(driver) == [("j1", "B")]


def test_a_restarted_profiler_goes_on() -> None:
    first = on_one_type().tell(B)
    [run] = first.next_round()
    second = Driver().after(first).tell(measured(run))
    assert further(second) == [("j1", "B")]
    third = Driver().after(second)
    assert third.next_round() == ()
    assert not further(third)
