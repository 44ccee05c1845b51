"""Live and simulated agree: the same scenario and seed, once over NATS in processes, once on virtual time."""

import asyncio
import time
from pathlib import Path

from hopyard.connect import connect, patiently
from hopyard.scenario import cluster_of
from hopyard.stack import StackSpec, running_stack
from loadgen.replay import replay
from loadgen.results import run_result
from loadgen.scenarios import arrivals
from loadgen.simulation import simulate
from schemas.jobs import GpuRange, JobFile, Workload
from schemas.results import RunResult
from schemas.scenarios import Arrival, ArrivingJob, ListedWorkload, ScenarioFile
from schemas.settings import Settings
from shared.domain.audit import audit
from shared.domain.states import ENDED
from shared.runtime.clock import ScaledClock

SPEED = 30.0
ROUND_S = 240.0
SAMPLES_PER_S = 18_000.0
"""of the workload on one GPU, roughly"""


def job(name: str, gpus: int | list[int] | GpuRange, gpu_minutes: float) -> JobFile:
    workload = Workload(model="resnet18", dataset="cifar10", batch_size=256)
    return JobFile(name=name, workload=workload, gpus=gpus, samples=gpu_minutes * 60 * SAMPLES_PER_S)


SCENARIO = ScenarioFile(
    name="agreement",
    cluster="tiny",
    workload=ListedWorkload(
        jobs=[
            ArrivingJob(at_s=10.0, job=job("wide", 4, 60)),
            ArrivingJob(at_s=20.0, job=job("rigid", 2, 30)),
            ArrivingJob(at_s=30.0, job=job("elastic", [1, 2], 25)),
            ArrivingJob(at_s=150.0, job=job("late", [2, 4], 50)),
            ArrivingJob(at_s=160.0, job=job("single", 1, 15)),
            ArrivingJob(at_s=170.0, job=job("pair", 2, 35)),
        ]
    ),
    settings={"round_s": ROUND_S},
)


async def live(data: Path) -> RunResult:
    spec = StackSpec(
        data=data,
        cluster=cluster_of(SCENARIO),
        clock_origin=time.time(),
        speed=SPEED,
        settings=SCENARIO.settings | {"seed": 1},
    )
    clock = ScaledClock(origin=spec.clock_origin, speed=SPEED)
    expected = arrivals(SCENARIO, seed=1)
    async with running_stack(spec, print) as stack, connect(stack.api_url) as client:

        async def submit(arrival: Arrival) -> None:
            await client.submit(arrival.job, arrival.job.name)

        await clock.sleep(ROUND_S - clock.now() % ROUND_S)  # as in simulation, the first round begins
        await replay(expected, submit, clock)
        async with asyncio.timeout(180):
            while True:
                status = await patiently(client.status)
                if sum(status.jobs.get(state, 0) for state in ENDED) == len(expected):
                    break
                await asyncio.sleep(0.2)
        events = [line.fact() async for line in client.events()]
    assert audit(events, drained=True) == []
    settings = Settings(round_s=ROUND_S)
    return run_result(
        events, scenario="agreement", policy="hops", seed=1, speed=SPEED, settings=settings, wall_s=0.0
    )


def difference(one: RunResult, other: RunResult, name: str) -> float:
    first, second = one.metrics[name], other.metrics[name]
    assert first is not None
    assert second is not None
    print(f"{name}: live {first:.0f} s, simulated {second:.0f} s, {first / second - 1:+.1%}")
    return abs(first / second - 1)


async def test_live_and_simulated_agree_on_jct_and_makespan(tmp_path: Path) -> None:
    ran = await live(tmp_path)
    simulated = (await asyncio.to_thread(simulate, SCENARIO, seed=1)).result
    assert ran.jobs == simulated.jobs == {"submitted": 6, "completed": 6}
    assert difference(ran, simulated, "jct_s_mean") < 0.10
    assert difference(ran, simulated, "makespan_s") < 0.10
