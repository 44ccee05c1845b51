"""The life of a job as admission folds it."""

from itertools import chain

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from schemas.base import Event
from schemas.events import JobCancelled, JobEvent
from schemas.ids import JobId
from services.admission.folds import fold_job
from services.admission.state import AdmissionState, digest_of, job_state
from shared.domain.states import ENDED, MOVES, JobState
from tests.services.admission.admission_world import Driver, job_facts, spec, submitted

DIGEST_OF_0_1 = b'\xeaYy"\xd1\x88\\b'
"""of `spec()`, as version 0.1.0 kept it"""
FACTS = {type(fact): fact for fact in job_facts()}
MANY = list(chain.from_iterable(job_facts(f"train-{n}", f"key-{n}") for n in range(3)))
S = JobState
WAYS: dict[JobState, list[str]] = {
    S.SUBMITTED: ["JobSubmitted"],
    S.PROFILED: ["JobSubmitted", "JobProfiled"],
    S.QUEUED: ["JobSubmitted", "JobProfiled", "JobQueued"],
    S.RUNNING: ["JobSubmitted", "JobProfiled", "JobQueued", "JobStarted"],
    S.PREEMPTED: ["JobSubmitted", "JobProfiled", "JobQueued", "JobStarted", "JobPreempted"],
    S.COMPLETED: ["JobSubmitted", "JobProfiled", "JobQueued", "JobStarted", "JobCompleted"],
    S.FAILED: ["JobSubmitted", "JobProfiled", "JobQueued", "JobFailed"],
    S.CANCELLED: ["JobSubmitted", "JobCancelled"],
    S.REJECTED: ["JobSubmitted", "JobRejected"],
}


def brought_to(state: JobState) -> Driver:
    driver = Driver()
    by_name = {kind.__name__: fact for kind, fact in FACTS.items()}
    driver.fold(*(by_name[name] for name in WAYS[state]))
    return driver


def state_of(driver: Driver) -> JobState | None:
    return job_state(driver.core.state, JobId("train-1"))


def test_every_state_can_be_reached() -> None:
    assert set(WAYS) == set(JobState)
    for state in WAYS:
        assert state_of(brought_to(state)) == state


def test_every_fact_in_every_state_moves_by_the_table_or_not_at_all() -> None:
    for state in WAYS:
        for kind, fact in FACTS.items():
            driver = brought_to(state)
            driver.fold(fact)
            allowed, after = MOVES[kind]
            assert state_of(driver) == (after if state in allowed else state)
            assert driver.core.state.illegal == (state not in allowed)


def test_a_fact_about_an_unknown_job_is_counted_and_changes_nothing() -> None:
    for kind, fact in FACTS.items():
        if None not in MOVES[kind][0]:
            driver = Driver()
            driver.fold(fact)
            assert driver.core.state == AdmissionState(illegal=1)


def test_a_profiled_job_keeps_no_spec() -> None:
    job = brought_to(S.PROFILED).core.state.open[JobId("train-1")]
    assert job.submitted is None


def test_an_ended_job_costs_few_bytes() -> None:
    driver = Driver()
    for n in range(100):
        driver.fold(submitted(f"train-{n}", f"key-{n}"), JobCancelled(at=2.0, job_id=JobId(f"train-{n}")))
    assert len(msgspec.msgpack.encode(driver.core.state)) < 100 * 60


def test_the_oldest_ended_jobs_are_forgotten_with_their_keys() -> None:
    state = AdmissionState()
    for n in range(5):
        fold_job(state, submitted(f"train-{n}", f"key-{n}"))
        fold_job(state, JobCancelled(at=2.0, job_id=JobId(f"train-{n}")), ended_kept=2)
    assert list(state.ended) == ["train-3", "train-4"]
    assert list(state.keys) == ["key-3", "key-4"]
    assert state.submissions == 5


def test_forgetting_a_job_keeps_a_key_that_belongs_to_another() -> None:
    state = AdmissionState()
    for job in ("train-1", "train-2"):
        fold_job(state, submitted(job, "same"))
    fold_job(state, JobCancelled(at=2.0, job_id=JobId("train-2")), ended_kept=0)
    assert [(key, known.job_id) for key, known in state.keys.items()] == [("same", "train-1")]


@given(st.lists(st.sampled_from(MANY), max_size=40))
def test_no_sequence_of_facts_leaves_the_table(facts: list[Event]) -> None:
    state = AdmissionState()
    for fact in facts:
        assert isinstance(fact, JobEvent)
        before = job_state(state, fact.job_id)
        illegal = state.illegal
        fold_job(state, fact)
        after = job_state(state, fact.job_id)
        allowed, expected = MOVES[type(fact)]
        assert after == (expected if before in allowed else before)
        assert state.illegal == illegal + (before not in allowed)
    assert all(job.state not in ENDED for job in state.open.values())
    assert all(job.state in ENDED for job in state.ended.values())
    assert state.open.keys().isdisjoint(state.ended)
    assert state.submissions == len(state.open) + len(state.ended)


@given(st.lists(st.sampled_from(MANY), max_size=30), st.integers(0, 30))
def test_a_replay_from_any_snapshot_gives_the_same_state(facts: list[Event], cut: int) -> None:
    whole, resumed = Driver(), Driver()
    whole.fold(*facts)
    resumed.fold(*facts[:cut])
    resumed.core.state = msgspec.msgpack.decode(
        msgspec.msgpack.encode(resumed.core.state), type=AdmissionState
    )
    resumed.fold(*facts[cut:])
    assert resumed.core.state == whole.core.state


def test_the_digest_of_a_job_is_that_of_0_1_for_any_user() -> None:
    assert digest_of(spec()) == DIGEST_OF_0_1
    assert digest_of(msgspec.structs.replace(spec(), user="ada")) == DIGEST_OF_0_1
