"""A real job on fast and slow GPUs at once, each with samples as it is fast: planned, run, and predicted."""

from pathlib import Path

import pytest

from shared.domain import gangs
from tests.real.one_job import ACCURACY, completed, each_sample_once
from tests.real.real_builders import BATCH, job_file

pytestmark = [pytest.mark.torch, pytest.mark.asyncio]

POLICY = "tests.real.share_policy:BySpeed"
SAMPLES = 2_100
THREE = [
    {"prefix": "fast", "count": 1, "gpus": 2, "gpu_type": "fast"},
    {"prefix": "slow", "count": 1, "gpus": 1, "gpu_type": "slow"},
]
"""2.5 times as fast: 40 and 8 of 48 samples"""


async def test_a_gang_of_unlike_gpus_takes_samples_as_they_are_fast(tmp_path: Path) -> None:
    environment = {"PER_SAMPLE": "1", "SLOWER": "4"}  # than what a busy machine is late by, many times
    file = job_file("shared", tmp_path / "ledger", gpus=3, samples=SAMPLES, environment=environment)
    job = await completed(tmp_path, file, nodes=THREE, policy=POLICY)
    taken = {rank: {len(step.indices) for step in job.steps if step.rank == rank} for rank in range(3)}
    of_ranks = [one for each in gangs.batches(job.started.gang, BATCH) for one in each]
    assert taken == {rank: {one} for rank, one in enumerate(of_ranks)}
    assert sum(of_ranks) == job.started.global_batch == 3 * BATCH
    assert of_ranks[0] > of_ranks[2]
    each_sample_once(job.steps, most_left_out=3 * BATCH)
    [found] = job.executions
    print(f"{of_ranks}, estimated {found.estimated:.0f}, measured {found.measured:.0f} samples/s")
    assert found.gpu_type == "fast+slow"
    assert 1.0 - found.error >= ACCURACY
