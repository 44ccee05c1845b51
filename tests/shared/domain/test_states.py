"""The table of states: a job's life goes only along it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.base import Event
from schemas.events import JobRejected
from schemas.ids import JobId
from shared.domain.states import ENDED, MOVES, WAITING, IllegalMove, JobState, next_state
from tests.fact_builders import (
    cancelled,
    completed,
    failed,
    preempted,
    profiled,
    queued,
    started,
    submitted,
)

rejected = JobRejected(at=0, job_id=JobId("job-1"), reason="runs nowhere")
FACTS: list[Event] = [
    submitted(),
    profiled(),
    queued(),
    rejected,
    started(),
    preempted(),
    completed(),
    failed(),
    cancelled(),
]


def test_a_job_lives_from_submission_to_completion() -> None:
    state: JobState | None = None
    for fact in (submitted(), profiled(), queued(), started(), preempted(), started(), completed()):
        state = next_state(state, fact)
    assert state is JobState.COMPLETED


@pytest.mark.parametrize("state", sorted(set(JobState) - ENDED))
def test_a_job_can_be_cancelled_until_it_ends(state: JobState) -> None:
    assert next_state(state, cancelled()) is JobState.CANCELLED


@pytest.mark.parametrize("state", sorted(ENDED))
@pytest.mark.parametrize("fact", FACTS, ids=lambda fact: fact.tag())
def test_no_fact_follows_the_end_of_a_job(state: JobState, fact: Event) -> None:
    with pytest.raises(IllegalMove, match=state.value):
        next_state(state, fact)


def test_an_unknown_job_can_only_be_submitted() -> None:
    for fact in FACTS[1:]:
        with pytest.raises(IllegalMove, match="unknown"):
            next_state(None, fact)


@pytest.mark.parametrize("state", sorted(WAITING))
def test_a_waiting_job_can_start_and_can_fail_while_it_comes_up(state: JobState) -> None:
    assert next_state(state, started()) is JobState.RUNNING
    assert next_state(state, failed()) is JobState.FAILED


def test_the_table_knows_every_fact_about_jobs() -> None:
    assert set(MOVES) == {type(fact) for fact in FACTS}


@given(st.lists(st.sampled_from(FACTS)))
def test_no_sequence_of_facts_leaves_the_table(facts: list[Event]) -> None:
    state: JobState | None = None
    for fact in facts:
        try:
            after = next_state(state, fact)
        except IllegalMove:
            continue
        assert state not in ENDED
        state = after
