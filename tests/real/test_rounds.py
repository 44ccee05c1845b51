"""A real job whose GPUs compute unlike numbers of batches in a round: planned, run, and predicted."""

from collections import Counter
from itertools import pairwise
from pathlib import Path
from statistics import mean

import pytest

from schemas.events import JobCompleted, JobStarted, PlanPublished, WorkerStopped
from schemas.placement import Relaxed
from shared.domain.audit import audit
from shared.domain.states import ENDED
from tests.real.real_builders import (
    BATCH,
    EPOCH,
    cluster,
    job_file,
    nothing_left,
    real_stack,
    steps_of,
)
from tests.stack_watch import until

pytestmark = [pytest.mark.torch, pytest.mark.asyncio]

POLICY = "tests.real.share_policy:ByTasks"
SAMPLES = 4_000
NODES = [
    {"prefix": "fast", "count": 1, "gpus": 2, "gpu_type": "fast"},
    {"prefix": "slow", "count": 1, "gpus": 3, "gpu_type": "slow"},
]
"""2.5 times as fast: of five batches the fast GPUs compute two each while one slow GPU computes one"""
ROUND = 5 * BATCH
ACCURACY = 0.8


async def test_fewer_gpus_than_batches_compute_a_round_of_them(tmp_path: Path) -> None:
    ledger = tmp_path / "ledger"
    job = job_file("rounds", ledger, gpus=5, samples=SAMPLES)
    async with real_stack(tmp_path, cluster(nodes=NODES), policy=POLICY, policies_allowed=POLICY) as (
        _,
        client,
    ):
        await client.submit(job, "key")
        await until(client, lambda status: sum(status.jobs.get(state, 0) for state in ENDED) == 1)
        lines = [line async for line in client.events()]
    await nothing_left(tmp_path)
    log, seqs = [line.fact() for line in lines], [line.seq for line in lines]
    assert [fact.reason for fact in log if isinstance(fact, WorkerStopped) and fact.reason] == []
    assert any(isinstance(fact, JobCompleted) for fact in log)
    assert audit(log, drained=True, seqs=seqs) == []
    [started] = [fact for fact in log if isinstance(fact, JobStarted)]
    assert started.gang.sync == Relaxed(tasks=((2, 2), (1,)))
    assert started.global_batch == ROUND
    steps = steps_of(ledger / "rounds")
    assert {len(step.indices) for step in steps} == {BATCH}
    for samples in {step.samples for step in steps}:
        ranks = Counter(step.rank for step in steps if step.samples == samples)
        assert ranks == {0: 2, 1: 2, 2: 1}
    epochs: dict[int, Counter[int]] = {}
    for step in steps:
        epochs.setdefault(int(step.samples // EPOCH), Counter()).update(step.indices)
    assert all(max(trained.values()) == 1 for trained in epochs.values())
    assert len(epochs[0]) > EPOCH - ROUND
    plans = [fact for fact in log if isinstance(fact, PlanPublished)]
    estimated = max(one.throughput for plan in plans for one in plan.placements)
    ends = [max(step.at for step in steps if step.samples == at) for at in sorted({s.samples for s in steps})]
    measured = ROUND / mean(after - before for before, after in pairwise(ends[5:]))
    print(f"estimated {estimated:.0f}, measured {measured:.0f} samples/s")
    assert min(estimated, measured) / max(estimated, measured) >= ACCURACY
