"""Where measurements are made."""

from hypothesis import given
from hypothesis import strategies as st

from schemas.events import JobProfiled, ProfilingPlanned
from shared.domain.invariants import impossible
from tests.services.profiler.profiler_builders import Driver, joined, measured, started, submitted


def test_the_node_with_the_most_idle_gpus_is_preferred() -> None:
    driver = Driver().tell(joined("a0", gpus=4), joined("a1", gpus=4), started("a0", gpus=2), submitted())
    assert [run.node_id for run in driver.next_round()] == ["a1"]


def test_ties_go_to_the_first_node() -> None:
    driver = Driver().tell(joined("a1"), joined("a0"), submitted())
    assert [run.node_id for run in driver.next_round()] == ["a0"]


def test_without_idle_gpus_the_largest_node_gives_way() -> None:
    driver = Driver().tell(joined("a0", gpus=2), joined("a1", gpus=4))
    driver.tell(started("a0", "p0", gpus=2), started("a1", "p1", gpus=4), submitted())
    assert [run.node_id for run in driver.next_round()] == ["a1"]


def test_jobs_are_measured_in_the_order_of_their_submission() -> None:
    driver = Driver().tell(joined(gpus=2), *(submitted(f"j{k}", model=f"m{k}") for k in (3, 1, 2)))
    assert [run.job_id for run in driver.next_round()] == ["j3", "j1"]


def test_a_measurement_without_a_gpu_waits_for_the_next_round() -> None:
    driver = Driver().tell(joined(gpus=1), submitted("j1", model="m1"), submitted("j2", model="m2"))
    [first] = driver.next_round()
    driver.tell(measured(first))
    assert [run.job_id for run in driver.next_round()] == ["j2"]


def test_a_run_under_way_keeps_its_gpu() -> None:
    driver = Driver().tell(joined(gpus=1), submitted("j1", model="m1"), submitted("j2", model="m2"))
    driver.next_round()
    assert driver.next_round() == ()


def test_a_run_that_was_given_up_keeps_its_gpu_until_it_is_stopped() -> None:
    driver = Driver(timeout_s=10.0).tell(joined(gpus=1), submitted())
    [run] = driver.next_round()
    driver.tell(started("a0", run.placement_id)).until(30.0)
    assert driver.next_round() == ()


def test_a_placement_id_is_one_token_of_a_subject() -> None:
    driver = Driver().tell(joined(gpu_type="RTX 3090.v2 *"), submitted())
    [run] = driver.next_round()
    assert run.placement_id == "profile-j1-RTX%203090%2Ev2%20%2A-0"


def test_no_two_measurements_have_one_id_whatever_jobs_and_types_are_called() -> None:
    driver = Driver().tell(joined("a0", "v100"), joined("b0", "1-v100"))
    driver.tell(submitted("x-1", model="m1"), submitted("x-1-1", model="m2"))
    runs = driver.next_round()
    assert len({(run.job_id, run.gpu_type) for run in runs}) == 4
    assert len({run.placement_id for run in runs}) == 4
    assert [impossible(opened) for opened in driver.all(ProfilingPlanned)] == [""]
    driver.tell(*map(measured, runs))
    assert {one.job_id: sorted(one.modules) for one in driver.all(JobProfiled)} == {
        job: ["1-v100", "v100"] for job in ("x-1", "x-1-1")
    }


def test_a_job_is_no_measurement_whatever_it_is_called() -> None:
    """It trains on the only GPU, and gives way to a measurement as other jobs do."""
    driver = Driver().tell(joined(gpus=1), started("a0", "profile-x-1-1-0"), submitted())
    assert [run.node_id for run in driver.next_round()] == ["a0"]


@given(
    gpus=st.lists(st.integers(1, 4), min_size=1, max_size=4),
    busy=st.lists(st.integers(0, 4), min_size=4, max_size=4),
    jobs=st.integers(0, 12),
    rounds=st.integers(1, 3),
)
def test_no_node_ever_carries_more_runs_than_gpus(
    gpus: list[int], busy: list[int], jobs: int, rounds: int
) -> None:
    driver = Driver().tell(*(joined(f"n{k}", f"T{k % 2}", count) for k, count in enumerate(gpus)))
    for k, count in enumerate(gpus):
        if busy[k]:
            driver.tell(started(f"n{k}", f"p{k}", min(busy[k], count)))
    driver.tell(*(submitted(f"j{k}", model=f"m{k}") for k in range(jobs)))
    for _ in range(rounds):
        driver.next_round()
    runs = [run for opened in driver.all(ProfilingPlanned) for run in opened.runs]
    assert len({run.placement_id for run in runs}) == len(runs)
    for k, count in enumerate(gpus):
        assert sum(run.node_id == f"n{k}" for run in runs) <= count
