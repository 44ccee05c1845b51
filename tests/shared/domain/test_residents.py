"""Jobs that stand by on a node."""

from hypothesis import given
from hypothesis import strategies as st

from schemas.ids import JobId
from shared.domain.residents import Residents

A, B, C = JobId("a"), JobId("b"), JobId("c")


def left(residents: Residents, job_id: JobId, gpus: int = 1, *, room: int) -> bool:
    """A job begins and ends here; whether it stood by."""
    stood_by = residents.enter(job_id, gpus, room=room)
    residents.leave(job_id, stays=True)
    return stood_by


def test_a_job_stands_by_where_it_has_been() -> None:
    residents = Residents()
    assert [left(residents, A, room=2), left(residents, A, room=2)] == [False, True]


def test_the_least_recently_used_makes_room() -> None:
    residents = Residents()
    for job_id in (A, B, A, C):
        left(residents, job_id, room=2)
    assert residents.processes.keys() == {A, C}


def test_a_job_needs_a_process_for_each_gpu() -> None:
    residents = Residents()
    assert [left(residents, A, gpus, room=8) for gpus in (1, 2, 1, 2)] == [False, False, True, True]


def test_a_running_job_makes_no_room() -> None:
    residents = Residents()
    residents.enter(A, 1, room=1)
    left(residents, B, room=1)
    assert A in residents.processes
    residents.leave(A, stays=True)
    left(residents, C, room=1)
    assert A not in residents.processes


def test_a_job_that_ended_stands_by_no_more() -> None:
    residents = Residents()
    residents.enter(A, 1, room=2)
    residents.leave(A, stays=False)
    residents.leave(A, stays=True)
    assert A not in residents.processes


@given(st.lists(st.tuples(st.sampled_from([A, B, C, JobId("d")]), st.integers(1, 2))), st.integers(1, 3))
def test_no_gpu_has_more_than_it_may(visits: list[tuple[JobId, int]], most: int) -> None:
    residents = Residents()
    for job_id, gpus in visits:
        left(residents, job_id, gpus, room=2 * most)
        assert sum(residents.processes.values()) <= 2 * most
        assert job_id in residents.processes
