"""Workers that break, meet and outlive their agents, in storms: no job is lost, retry budgets hold."""

from collections.abc import Iterator
from functools import cache

import msgspec
import pytest

from loadgen.simulation import Engine, Simulated, simulate
from schemas.base import Event
from schemas.events import (
    GangFormed,
    JobCompleted,
    JobFailed,
    JobPreempted,
    NodeJoined,
    Outcome,
    PlacementRefused,
    PreemptReason,
    WorkerStarted,
    WorkerStopped,
)
from schemas.ids import JobId, PlacementId
from schemas.scenarios import ListedWorkload, ScenarioFile
from shared.domain.audit import audit
from tests.simulation.failing_runner import FailureRates, failing
from tests.simulation.storms import FAULTS, JOBS, SMALL, Storm

SEEDS = 12
ENGINES: tuple[Engine, ...] = ("conductor", "loop")
PATIENT = 1_000_000
"""interruptions that no job reaches"""


def ran(
    rates: FailureRates,
    scenario: ScenarioFile = SMALL,
    *,
    interruptions_max: int = PATIENT,
    stormy: bool = False,
    engine: Engine = "conductor",
) -> Simulated:
    done = simulate(
        scenario,
        seed=rates.seed,
        overrides={"interruptions_max": interruptions_max},
        faults=msgspec.structs.replace(FAULTS, seed=rates.seed) if stormy else None,
        disturb=[Storm(rates.seed)] * 3 if stormy else [],
        engine=engine,
        runners=failing(rates),
    )
    assert audit(done.events, drained=True, seqs=done.seqs) == []
    return done


def retrying(retries: int) -> ScenarioFile:
    assert isinstance(SMALL.workload, ListedWorkload)
    jobs = [
        msgspec.structs.replace(one, job=msgspec.structs.replace(one.job, retries=retries))
        for one in SMALL.workload.jobs
    ]
    return msgspec.structs.replace(SMALL, workload=ListedWorkload(jobs=jobs))


def rates(seed: int, breaks: float = 0.5, within_s: float = 300.0, fails: float = 0.0) -> FailureRates:
    return FailureRates(seed=seed, breaks=breaks, within_s=within_s, fails=fails)


@cache
def interrupted(seed: int, engine: Engine) -> Simulated:
    return ran(rates(seed), stormy=True, engine=engine)


@cache
def seldom_tried(seed: int) -> Simulated:
    return ran(rates(seed, breaks=0.9, within_s=100.0, fails=0.3), retrying(1), interruptions_max=3)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("seed", range(SEEDS))
def test_in_a_storm_interruptions_cost_only_time(seed: int, engine: Engine) -> None:
    done = interrupted(seed, engine)
    assert done.result.jobs == {"submitted": JOBS, "completed": JOBS}


@pytest.mark.parametrize("seed", range(SEEDS))
def test_in_a_storm_jobs_with_retries_complete_in_spite_of_their_failures(seed: int) -> None:
    done = ran(rates(seed, fails=0.5), retrying(1_000), stormy=True)
    assert done.result.jobs == {"submitted": JOBS, "completed": JOBS}


@pytest.mark.parametrize("seed", range(SEEDS))
def test_every_job_ends_within_its_number_of_attempts(seed: int) -> None:
    for job_id, story in stories(seldom_tried(seed).events).items():
        ends = [fact for fact in story if isinstance(fact, JobCompleted | JobFailed)]
        assert len(ends) == 1, job_id
        failures = {fact.placement_id for fact in ended(story, Outcome.FAILED)}
        assert len(failures) <= 2
        longest = max(fruitless(story), default=0)
        assert longest <= 3
        match ends[0]:
            case JobFailed(reason=reason) if reason.startswith("interrupted 3 times"):
                assert longest == 3
            case JobFailed(reason=reason):
                assert (reason, len(failures)) == ("exit code 3", 2)
            case _:
                assert (longest < 3, len(failures) < 2) == (True, True)


def test_the_runs_have_interruptions_adoptions_and_restores() -> None:
    """Or the tests above would say nothing."""
    events = [fact for seed in range(SEEDS) for fact in interrupted(seed, "conductor").events]
    assert any(isinstance(fact, JobPreempted) and fact.reason is PreemptReason.INTERRUPTED for fact in events)
    assert any(isinstance(fact, NodeJoined) and fact.workers for fact in events)
    assert all(fact.meeting for fact in events if isinstance(fact, GangFormed))
    assert any(fact.samples_restored for fact in events if isinstance(fact, WorkerStarted))
    ends = [end for seed in range(SEEDS) for end in kinds_of_ends(seed)]
    assert {"completed", "interrupted", "failed"} <= set(ends)


def kinds_of_ends(seed: int) -> Iterator[str]:
    for fact in seldom_tried(seed).events:
        match fact:
            case JobCompleted():
                yield "completed"
            case JobFailed(reason=reason):
                yield "interrupted" if reason.startswith("interrupted") else "failed"
            case _:
                pass


def stories(events: list[Event]) -> dict[JobId, list[Event]]:
    found: dict[JobId, list[Event]] = {}
    for fact in events:
        if (job_id := getattr(fact, "job_id", None)) is not None:
            found.setdefault(job_id, []).append(fact)
    return found


def ended(story: list[Event], outcome: Outcome) -> Iterator[WorkerStopped]:
    return (fact for fact in story if isinstance(fact, WorkerStopped) and fact.outcome is outcome)


def fruitless(story: list[Event]) -> Iterator[int]:
    """After each interruption: how many there were since the last new checkpoint, counted from the log."""
    broken: dict[PlacementId, Outcome] = {}
    count, saved, then = 0, 0.0, 0.0
    refused: set[PlacementId] = set()
    for fact in story:
        match fact:
            case WorkerStarted(samples_restored=float(samples)):
                then = min(then, samples)
            case WorkerStopped(outcome=Outcome.FAILED):
                broken[fact.placement_id] = Outcome.FAILED
            case WorkerStopped(outcome=Outcome.INTERRUPTED):
                broken.setdefault(fact.placement_id, Outcome.INTERRUPTED)
            case JobPreempted(reason=PreemptReason.INTERRUPTED, samples_done=samples):
                count, saved = (1 if samples > then else count + 1), samples
                then = saved
                yield count
            case PlacementRefused(placement_id=key) if broken.get(key) is Outcome.INTERRUPTED:
                if key not in refused:
                    refused.add(key)
                    count = count + 1 if saved <= then else 1
                    yield count
            case _:
                pass
