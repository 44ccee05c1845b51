"""A real job whose GPUs compute unlike numbers of batches in a round: planned, run, and predicted."""

from collections import Counter
from itertools import pairwise
from pathlib import Path
from statistics import mean

import pytest

from schemas.events import PlanPublished
from schemas.placement import Relaxed
from tests.real.one_job import ACCURACY, completed, each_sample_once
from tests.real.real_builders import BATCH, job_file

pytestmark = [pytest.mark.torch, pytest.mark.asyncio]

POLICY = "tests.real.share_policy:ByTasks"
SAMPLES = 4_000
NODES = [
    {"prefix": "fast", "count": 1, "gpus": 2, "gpu_type": "fast"},
    {"prefix": "slow", "count": 1, "gpus": 3, "gpu_type": "slow"},
]
"""2.5 times as fast: of five batches the fast GPUs compute two each while one slow GPU computes one"""
ROUND = 5 * BATCH


async def test_fewer_gpus_than_batches_compute_a_round_of_them(tmp_path: Path) -> None:
    file = job_file("rounds", tmp_path / "ledger", gpus=5, samples=SAMPLES)
    job = await completed(tmp_path, file, nodes=NODES, policy=POLICY)
    assert job.started.gang.sync == Relaxed(tasks=((2, 2), (1,)))
    assert job.started.global_batch == ROUND
    assert {len(step.indices) for step in job.steps} == {BATCH}
    rounds = sorted({step.samples for step in job.steps})
    for samples in rounds:
        ranks = Counter(step.rank for step in job.steps if step.samples == samples)
        assert ranks == {0: 2, 1: 2, 2: 1}
    each_sample_once(job.steps, most_left_out=ROUND)
    plans = [fact for fact in job.log if isinstance(fact, PlanPublished)]
    estimated = max(one.throughput for plan in plans for one in plan.placements)
    ends = [max(step.at for step in job.steps if step.samples == samples) for samples in rounds]
    measured = ROUND / mean(after - before for before, after in pairwise(ends[5:]))
    print(f"estimated {estimated:.0f}, measured {measured:.0f} samples/s")
    assert min(estimated, measured) / max(estimated, measured) >= ACCURACY
