import pytest

from services.planner.policies.contract.view import ViewJob
from services.planner.policies.kit.window import adjusted, service_window
from tests.services.planner.planner_builders import job

Queue = list[ViewJob]


def queue(*entries: tuple[int, float]) -> Queue:
    """Jobs by minimum demand and sensitivity."""
    return [
        job(f"j{index}", (least, least + 8), sensitivity=rho) for index, (least, rho) in enumerate(entries)
    ]


@pytest.mark.parametrize(
    ("gpus", "length"),
    [(1, 1), (4, 1), (5, 2), (6, 2), (7, 3), (100, 4), (0, 1)],
)
def test_the_job_that_reaches_the_gpus_is_the_last_in_the_window(gpus: int, length: int) -> None:
    assert service_window(queue((4, 1.0), (2, 1.0), (2, 1.0), (1, 1.0)), gpus) == length


def test_an_empty_queue_has_an_empty_window() -> None:
    assert service_window([], 8) == 0
    assert adjusted([], 0, 8) == []


def admitted(line: Queue, length: int, idle: int) -> list[str]:
    return [entry.job_id for entry in adjusted(line, length, idle)]


def test_a_window_that_is_too_sensitive_admits_jobs_less_sensitive_than_the_queue() -> None:
    # the queue's mean is 1.5; the window 2.0, then 1.6 with j2, then 1.47 with j4
    line = queue((4, 2.0), (4, 2.0), (2, 1.2), (2, 1.6), (2, 1.1), (2, 1.1))
    assert admitted(line, 1, 4) == ["j0", "j2", "j4"]


def test_admission_stops_once_the_window_is_no_more_sensitive_than_the_queue() -> None:
    line = queue((4, 1.8), (2, 1.0), (2, 1.0), (2, 2.0))
    assert admitted(line, 1, 4) == ["j0", "j1"]


def test_a_window_as_sensitive_as_the_queue_admits_no_job() -> None:
    line = queue((4, 1.5), (2, 1.0), (2, 2.0))
    assert admitted(line, 1, 4) == ["j0"]


def test_a_job_too_large_for_the_idle_gpus_is_stepped_over() -> None:
    line = queue((4, 2.0), (5, 1.0), (4, 1.0), (4, 1.0))
    assert admitted(line, 1, 4) == ["j0", "j2", "j3"]


def test_a_job_as_sensitive_as_the_queue_is_not_admitted() -> None:
    line = queue((4, 2.0), (2, 1.5), (2, 1.0))  # their mean is 1.5
    assert admitted(line, 1, 4) == ["j0", "j2"]


def test_as_printed_a_job_is_admitted_if_it_leaves_a_gpu() -> None:
    line = queue((4, 2.0), (4, 1.0), (3, 1.0), (4, 1.0))
    assert [entry.job_id for entry in adjusted(line, 1, 4, last_gpu=False)] == ["j0", "j2"]


def test_a_window_of_low_sensitivity_stays_as_it_is() -> None:
    line = queue((4, 1.0), (2, 1.0), (2, 3.0))
    assert admitted(line, 1, 4) == ["j0"]
