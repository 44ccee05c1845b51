"""How long a new workload waits on an idle cluster."""

import msgspec
import pytest

from loadgen.scenarios import load_scenario
from loadgen.simulation import Engine, simulate
from schemas.events import JobStarted
from schemas.jobs import JobFile, Workload
from schemas.scenarios import ArrivingJob, ListedWorkload, ScenarioFile
from shared.domain.audit import audit

ROUND_S = 360.0


def alone(at_s: float) -> ScenarioFile:
    job = JobFile(
        name="alone",
        workload=Workload(model="resnet18", dataset="cifar10", batch_size=128),
        gpus=[1, 2],
        samples=1e6,
    )
    scenario = load_scenario("tiny")
    return msgspec.structs.replace(
        scenario,
        workload=ListedWorkload(jobs=[ArrivingJob(at_s=at_s, job=job)]),
        settings=scenario.settings | {"round_s": ROUND_S},
    )


def first_start_s(at_s: float, *, at_once: bool, engine: Engine = "conductor") -> float:
    """From the submission on."""
    done = simulate(alone(at_s), overrides={"profile_at_once": at_once}, engine=engine)
    assert audit(done.events, drained=True, seqs=done.seqs) == []
    return next(fact.at for fact in done.events if isinstance(fact, JobStarted)) - at_s


@pytest.mark.parametrize("engine", ["conductor", "loop"])
@pytest.mark.parametrize("at_s", [1.0, 200.0])
def test_a_job_starts_once_it_is_measured(at_s: float, engine: Engine) -> None:
    """Two starts of processes, 10 s each, and 30 iterations."""
    assert 20 < first_start_s(at_s, at_once=True, engine=engine) < 40


def test_as_in_the_paper_it_waits_for_the_round() -> None:
    waits_s = first_start_s(1.0, at_once=False)
    assert ROUND_S < waits_s < ROUND_S + 40
