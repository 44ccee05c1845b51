"""Jobs that admission refuses while a scenario runs: named with their reasons, and in no figure."""

import msgspec
import pytest

from loadgen.simulation import Engine, simulate, simulate_streaming
from schemas.events import JobSubmitted
from schemas.ids import GpuType
from schemas.scenarios import ArrivingJob, ListedWorkload, ScenarioFile
from tests.simulation.storms import SMALL, XP, arriving

ENGINES: tuple[Engine, ...] = ("conductor", "loop")


def listing(*jobs: ArrivingJob) -> ScenarioFile:
    return msgspec.structs.replace(SMALL, workload=ListedWorkload(jobs=list(jobs)))


def of_model(one: ArrivingJob, model: str) -> ArrivingJob:
    workload = msgspec.structs.replace(one.job.workload, model=model)
    return msgspec.structs.replace(one, job=msgspec.structs.replace(one.job, workload=workload))


SOME_WRONG = listing(
    arriving(20.0, "wide", 99, 100.0),
    arriving(0.0, "good", 1, 100.0, [XP]),
    of_model(arriving(5.0, "typo", 1, 100.0), "resnet81"),
    arriving(30.0, "foreign", 1, 100.0, [GpuType("a100")]),
    arriving(40.0, "good", 1, 100.0, [XP]),
)


@pytest.mark.parametrize("engine", ENGINES)
def test_refused_jobs_are_in_the_result_with_their_reasons(engine: Engine) -> None:
    result = simulate(SOME_WRONG, policy="fifo", engine=engine).result
    assert [(job.number, job.name, job.at_s) for job in result.refused] == [
        (2, "typo", 5.0),
        (3, "wide", 20.0),
        (4, "foreign", 30.0),
    ]
    assert [job.reason.partition(":")[0] for job in result.refused] == [
        "$.workload.model",
        "$.gpus",
        "$.gpu_types[0]",
    ]
    assert result.jobs == {"submitted": 2, "completed": 2}


def test_a_streamed_run_has_them_too() -> None:
    streamed = simulate_streaming(SOME_WRONG, lambda _: None, policy="fifo")
    assert streamed.refused == simulate(SOME_WRONG, policy="fifo").result.refused != ()


@pytest.mark.parametrize("engine", ENGINES)
def test_jobs_of_one_name_at_one_time_are_jobs_of_their_own(engine: Engine) -> None:
    twins = (
        arriving(at_s, "twin", gpus, 100.0, [XP]) for at_s, gpus in ((0.0, 1), (0.0, 2), (0.0, 1), (9.0, 1))
    )
    ran = simulate(listing(*twins), policy="fifo", engine=engine)
    assert ran.result.jobs == {"submitted": 4, "completed": 4}
    keys = [fact.key for fact in ran.events if isinstance(fact, JobSubmitted)]
    assert keys == ["0.0/twin", "0.0/twin/2", "0.0/twin/3", "9.0/twin"]


def test_a_job_that_is_rejected_after_its_profile_has_no_completion_time() -> None:
    large = arriving(0.0, "large", 1, 100.0)
    workload = msgspec.structs.replace(large.job.workload, batch_size=99_999)
    large = msgspec.structs.replace(large, job=msgspec.structs.replace(large.job, workload=workload))
    rejected, good = simulate(
        listing(large, arriving(0.0, "good", 1, 100.0)), policy="fifo"
    ).result.job_results
    assert (rejected.state, rejected.jct_s) == ("rejected", None)
    assert rejected.ended_at is not None
    assert (good.state, good.jct_s) == ("completed", good.ended_at)
