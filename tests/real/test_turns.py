"""Real jobs that share two GPUs in turns, through the whole stack: planned, run, and predicted."""

import json
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from statistics import median

import pytest

from schemas.events import JobCompleted, JobStarted, PlanPublished, WorkerStopped
from schemas.ids import JobId, NodeId
from shared.domain import gangs
from shared.domain.audit import audit
from shared.domain.states import ENDED
from tests.real.real_builders import BATCH, Step, cluster, job_file, nothing_left, real_stack, steps_of
from tests.services.agent.process.test_turns import Line, one_at_a_time
from tests.stack_watch import until

pytestmark = [pytest.mark.torch, pytest.mark.asyncio]

POLICY = "tests.simulation.mode_policies:Rotas"
NODE = NodeId("fast-0")
NODES = [{"prefix": "fast", "count": 1, "gpus": 2, "gpu_type": "fast"}]
SAMPLES = 3_000
NAMES = ("one", "two")
ACCURACY = 0.75
TASK_S = 0.09
"""seconds of a task by `paced.py`: three layers that sleep 0.01 s forward and twice that backward"""


async def test_two_jobs_take_turns_on_two_gpus(tmp_path: Path) -> None:
    ledger = tmp_path / "ledger"
    async with real_stack(tmp_path, cluster(nodes=NODES), policy=POLICY, policies_allowed=POLICY) as (
        _,
        client,
    ):
        ids = [
            JobId((await client.submit(job_file(name, ledger, gpus=2, samples=SAMPLES), name)).job_id)
            for name in NAMES
        ]
        await until(client, lambda status: sum(status.jobs.get(state, 0) for state in ENDED) == len(NAMES))
        lines = [line async for line in client.events()]
    await nothing_left(tmp_path)
    log, seqs = [line.fact() for line in lines], [line.seq for line in lines]
    assert [fact.reason for fact in log if isinstance(fact, WorkerStopped) and fact.reason] == []
    assert audit(log, drained=True, seqs=seqs) == []
    assert {fact.job_id for fact in log if isinstance(fact, JobStarted)} == set(ids)
    turns = [turns_of(tmp_path, gpu) for gpu in range(2)]
    for lines_of_gpu in turns:
        one_at_a_time(lines_of_gpu)
    slowed = median(held_s(turns[0])) / TASK_S
    estimated = {job_id: planned / slowed for job_id, planned in together(log).items()}
    steps = {job_id: steps_of(ledger / name) for job_id, name in zip(ids, NAMES, strict=True)}
    begin = max(of_job[0].at for of_job in steps.values()) + 2.0
    end = min(of_job[-1].at for of_job in steps.values())
    measured = {job_id: rate(of_job, begin, end) for job_id, of_job in steps.items()}
    print(
        f"estimated {estimated}, tasks {slowed:.2f} times as long, measured {measured} in {end - begin:.0f} s"
    )
    for job_id in ids:
        assert ACCURACY < measured[job_id] / estimated[job_id] < 1 / ACCURACY


async def test_a_job_without_a_task_on_the_first_node_of_its_rota_completes(tmp_path: Path) -> None:
    """One has all its tasks on the second node, the other one on both."""
    ledger, policy = tmp_path / "ledger", "tests.simulation.mode_policies:Apart"
    nodes = [{**NODES[0], "prefix": f"{name}-fast", "gpus": 1} for name in "ab"]
    async with real_stack(tmp_path, cluster(nodes=nodes), policy=policy, policies_allowed=policy) as (
        _,
        client,
    ):
        for name, gpus in zip(NAMES, (1, 2), strict=True):
            await client.submit(job_file(name, ledger, gpus=gpus, samples=SAMPLES / 4), name)
        await until(client, lambda status: sum(status.jobs.get(state, 0) for state in ENDED) == len(NAMES))
        lines = [line async for line in client.events()]
    await nothing_left(tmp_path)
    log, seqs = [line.fact() for line in lines], [line.seq for line in lines]
    assert audit(log, drained=True, seqs=seqs) == []
    assert sum(isinstance(fact, JobCompleted) for fact in log) == len(NAMES)
    starts = [fact for fact in log if isinstance(fact, JobStarted)]
    assert any(gangs.leader(fact.gang) != fact.gang.nodes[0] for fact in starts)


def turns_of(data: Path, gpu: int) -> list[Line]:
    text = (data / "run" / NODE / "turns" / f"gpu-{gpu}.jsonl").read_text("utf-8")
    return [json.loads(line) for line in text.splitlines()]


def held_s(turns: list[Line]) -> list[float]:
    """Seconds of each turn. On a busy machine a task takes longer than it sleeps."""
    return [after["at"] - line["at"] for line, after in pairwise(turns) if line["what"] == "granted"]


def together(log: Sequence[object]) -> dict[JobId, float]:
    """Samples/s, as the last plan had them that has both jobs."""
    plans = [fact for fact in log if isinstance(fact, PlanPublished) and len(fact.placements) == len(NAMES)]
    return {one.job_id: one.throughput for one in plans[-1].placements}


def rate(steps: list[Step], begin: float, end: float) -> float:
    """Samples/s of all ranks between two times."""
    return sum(BATCH for step in steps if begin < step.at <= end) / (end - begin)
