"""Simulation and live agree: one scenario and seed, as processes over NATS and on virtual time.

What makes the two differ: live, a decision takes the machine's seconds, which the fast clock magnifies
(docs/adr/0004), and so does every hop of a message; and the emulated world draws its noise by placement
ids, which hold the leader's token.
"""

from pathlib import Path

import pytest

from hopyard.actions.demo import DemoSpec, run_demo
from loadgen.simulation import simulate
from schemas.jobs import JobFile, Workload
from schemas.results import RunResult
from schemas.scenarios import ArrivingJob, ListedWorkload, ScenarioFile

SPEED = 40.0
SAMPLES_PER_S = 18_000.0
"""of the workload on one GPU, roughly"""


def arriving(at_s: float, name: str, gpus: int | list[int], minutes: float) -> ArrivingJob:
    """`minutes`: its length on the most GPUs it asks for, roughly."""
    most = gpus if isinstance(gpus, int) else max(gpus)
    workload = Workload(model="resnet18", dataset="cifar10", batch_size=256)
    samples = minutes * 60.0 * most * SAMPLES_PER_S
    return ArrivingJob(at_s=at_s, job=JobFile(name=name, workload=workload, gpus=gpus, samples=samples))


SCENARIO = ScenarioFile(
    name="agreement",
    about="6 jobs of 15 to 25 minutes on the 12 GPUs of the tiny cluster",
    cluster="tiny",
    workload=ListedWorkload(
        jobs=[
            arriving(20.0, "wide", 4, 20.0),
            arriving(30.0, "rigid", 2, 25.0),
            arriving(40.0, "elastic", [1, 2], 15.0),
            arriving(150.0, "late", [2, 4], 15.0),
            arriving(160.0, "single", 1, 20.0),
            arriving(170.0, "pair", 2, 20.0),
        ]
    ),
    settings={"round_s": 240.0},
)


def differs(live: RunResult, simulated: RunResult, metric: str) -> float:
    """Relative to the simulated figure; printed, since how near they are is worth knowing."""
    ran, said = live.metrics[metric], simulated.metrics[metric]
    assert ran is not None
    assert said is not None
    print(f"{metric}: live {ran:.0f} s, simulated {said:.0f} s, {ran / said - 1:+.1%}")
    return abs(ran / said - 1)


@pytest.fixture(scope="module")
def simulated() -> RunResult:
    return simulate(SCENARIO, seed=1).result


async def test_live_and_simulated_agree_within_a_tenth(tmp_path: Path, simulated: RunResult) -> None:
    spec = DemoSpec(scenario=SCENARIO, data=tmp_path, seed=1, speed=SPEED, policy=None, limit_s=150.0)
    done = await run_demo(spec, lambda _: None, print)
    live = done.result
    assert done.violations == []
    assert live.jobs == simulated.jobs == {"submitted": 6, "completed": 6}
    assert live.metrics.keys() == simulated.metrics.keys()
    assert differs(live, simulated, "jct_s_mean") < 0.10
    assert differs(live, simulated, "makespan_s") < 0.10
