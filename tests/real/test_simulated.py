"""The same jobs in a simulation, from what running them taught: as long as they really took."""

from collections.abc import Sequence
from pathlib import Path
from statistics import mean

import pytest

from loadgen.simulation import simulate
from schemas.base import Event
from schemas.events import (
    GangFormed,
    JobCompleted,
    JobStarted,
    JobSubmitted,
    Outcome,
    StartOrdered,
    StopOrdered,
    WorkerStopped,
)
from schemas.jobs import JobFile
from schemas.scenarios import ArrivingJob, ListedWorkload, ScenarioFile
from shared.domain.states import ENDED, JobState
from tests.real.real_builders import SETTINGS, cluster, exported, job_file, real_stack
from tests.stack_watch import log_of, until

pytestmark = pytest.mark.torch

FIRST = [([1], None, 300, 64), ([1], None, 300, 32), (4, ["fast"], 300, 64), (2, ["slow"], 300, 64)]
"""what agents and estimator learn from before the jobs that count: the first start on a node takes long"""
SHAPES = [([1, 2], None, 4_000, 64), (1, None, 2_500, 64), ([1, 2], None, 4_000, 32), (1, None, 2_500, 32),
          (2, ["slow"], 2_000, 64), (4, ["fast"], 4_000, 64)]  # fmt: skip
DIFFERENCE = 0.10
POLICY = "fifo-skipping"
OPEN = frozenset(JobState) - ENDED


def jobs(kind: str, shapes: Sequence[tuple[object, object, int, int]], ledger: Path) -> list[JobFile]:
    return [
        job_file(
            f"{kind}-{number}",
            ledger,
            gpus=gpus,
            gpu_types=gpu_types,
            samples=samples,
            model=f"paced-{width}",
            environment={"WIDTH": str(width)},
        )
        for number, (gpus, gpu_types, samples, width) in enumerate(shapes)
    ]


async def test_mean_completion_time_and_makespan_are_those_that_were_measured(tmp_path: Path) -> None:
    first, counted = jobs("first", FIRST, tmp_path / "ledger"), jobs("job", SHAPES, tmp_path / "ledger")
    async with real_stack(tmp_path, policy=POLICY) as (stack, client):
        for batch in (first, counted):
            for job in batch:
                await client.submit(job, job.name)
            await until(client, lambda status: not any(status.jobs.get(one, 0) for one in OPEN))
        log = await log_of(client)
        export = tmp_path / "lab.jsonl"
        export.write_bytes(b"\n".join(await exported(stack)) + b"\n")

    arrivals = {fact.spec.name: fact.at for fact in log if isinstance(fact, JobSubmitted)}
    scenario = ScenarioFile(
        name="as-measured",
        cluster=cluster(),
        workload=ListedWorkload(
            jobs=[ArrivingJob(at_s=arrivals[job.name], job=job) for job in (*first, *counted)]
        ),
        settings={
            **{name: value for name, value in SETTINGS.items() if name != "runner"},
            "world": "learnt",
            "learnt_from": str(export),
            **measured_costs(log),
        },
    )
    simulated = simulate(scenario, policy=POLICY).events
    for name, (ran_s, said_s) in figures(log, simulated).items():
        print(f"{name}: {ran_s:.1f} s ran, {said_s:.1f} s simulated, {said_s / ran_s - 1:+.1%}")
    for name, (ran_s, said_s) in figures(log, simulated).items():
        assert said_s == pytest.approx(ran_s, rel=DIFFERENCE), name


def figures(ran: list[Event], said: list[Event]) -> dict[str, tuple[float, float]]:
    """Completion times, their mean and the makespan, real and simulated, seconds."""
    real, simulated = completion_times(ran), completion_times(said)
    assert real.keys() == simulated.keys()
    assert len(real) == len(SHAPES)
    return {
        **{name: (real[name], simulated[name]) for name in sorted(real)},
        "mean JCT": (mean(real.values()), mean(simulated.values())),
        "makespan": (makespan(ran), makespan(said)),
    }


def completion_times(log: list[Event]) -> dict[str, float]:
    """Seconds from submission to completion, by name."""
    began = {fact.job_id: fact for fact in log if isinstance(fact, JobSubmitted)}
    began = {job_id: fact for job_id, fact in began.items() if fact.spec.name.startswith("job")}
    return {
        began[fact.job_id].spec.name: fact.at - began[fact.job_id].at
        for fact in log
        if isinstance(fact, JobCompleted) and fact.job_id in began
    }


def makespan(log: list[Event]) -> float:
    """Seconds from the first submission of a job that counts to the last completion."""
    return max(fact.at for fact in log if isinstance(fact, JobCompleted)) - _begin(log)


def _begin(log: list[Event]) -> float:
    submitted = [fact for fact in log if isinstance(fact, JobSubmitted)]
    return min(fact.at for fact in submitted if fact.spec.name.startswith("job"))


def measured_costs(log: list[Event]) -> dict[str, float]:
    """What starting and stopping took, on average: an emulated start is one number."""
    ordered = {fact.placement_id: fact.at for fact in log if isinstance(fact, StartOrdered)}
    formed = {fact.placement_id: fact.at for fact in log if isinstance(fact, GangFormed)}
    stopping = {fact.placement_id: fact.at for fact in log if isinstance(fact, StopOrdered)}
    counted = {fact.placement_id for fact in log if isinstance(fact, JobStarted) and fact.at > _begin(log)}
    starts = [formed[key] - ordered[key] for key in formed if key in counted]
    print("starts", [round(one, 2) for one in sorted(starts)])
    stops = [
        fact.at - stopping[fact.placement_id]
        for fact in log
        if isinstance(fact, WorkerStopped)
        and fact.outcome is Outcome.CHECKPOINTED
        and fact.placement_id in stopping
    ]
    return {"startup_s": mean(starts), "checkpoint_s": mean(stops or [0.0])}
