from hopyard.actions.demo import DemoResult, ended, left_s
from tests.hopyard.cli_builders import run_result, status_view


def test_a_run_is_over_when_as_many_jobs_have_ended_as_were_submitted() -> None:
    jobs = {"completed": 2, "failed": 1, "cancelled": 1, "rejected": 1, "running": 4, "queued": 2}
    assert ended(status_view(jobs=jobs)) == 5


def test_a_run_is_complete_when_every_job_is() -> None:
    assert DemoResult(run_result(jobs={"submitted": 3, "completed": 3}), []).complete()
    assert not DemoResult(run_result(jobs={"submitted": 3, "completed": 2, "failed": 1}), []).complete()


def test_the_time_left_follows_from_ended_and_pending_jobs() -> None:
    assert left_s(10.0, 0, 25, 60.0) is None
    assert left_s(10.0, 20, 25, 5.0) == 2.5
    assert left_s(10.0, 20, 25, 60.0) == 50.0
    assert left_s(10.0, 25, 25, 5.0) == 0.0
