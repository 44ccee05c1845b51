"""A real job on fast and slow GPUs at once, each with samples as it is fast: planned, run, and predicted."""

from collections import Counter
from pathlib import Path

import pytest

from schemas.events import JobCompleted, JobStarted, WorkerStopped
from shared.domain import gangs
from shared.domain.audit import audit
from shared.domain.states import ENDED
from tests.real.real_builders import (
    BATCH,
    EPOCH,
    cluster,
    executions_in,
    exported,
    job_file,
    nothing_left,
    real_stack,
    steps_of,
)
from tests.stack_watch import until

pytestmark = [pytest.mark.torch, pytest.mark.asyncio]

POLICY = "tests.real.share_policy:BySpeed"
SAMPLES = 4_000
THREE = [
    {"prefix": "fast", "count": 1, "gpus": 2, "gpu_type": "fast"},
    {"prefix": "slow", "count": 1, "gpus": 1, "gpu_type": "slow"},
]
"""2.5 times as fast: 40 and 8 of 48 samples"""
ACCURACY = 0.8


async def test_a_gang_of_unlike_gpus_takes_samples_as_they_are_fast(tmp_path: Path) -> None:
    ledger = tmp_path / "ledger"
    job = job_file("shared", ledger, gpus=3, samples=SAMPLES, environment={"PER_SAMPLE": "1"})
    async with real_stack(tmp_path, cluster(nodes=THREE), policy=POLICY, policies_allowed=POLICY) as (
        stack,
        client,
    ):
        await client.submit(job, "key")
        await until(client, lambda status: sum(status.jobs.get(state, 0) for state in ENDED) == 1)
        lines = [line async for line in client.events()]
        [execution] = executions_in(await exported(stack))
    await nothing_left(tmp_path)
    log, seqs = [line.fact() for line in lines], [line.seq for line in lines]
    assert [fact.reason for fact in log if isinstance(fact, WorkerStopped) and fact.reason] == []
    assert any(isinstance(fact, JobCompleted) for fact in log)
    assert audit(log, drained=True, seqs=seqs) == []
    [started] = [fact for fact in log if isinstance(fact, JobStarted)]
    steps = steps_of(ledger / "shared")
    taken = {rank: {len(step.indices) for step in steps if step.rank == rank} for rank in range(3)}
    of_ranks = [one for each in gangs.batches(started.gang, BATCH) for one in each]
    assert taken == {rank: {one} for rank, one in enumerate(of_ranks)}
    assert sum(of_ranks) == started.global_batch == 3 * BATCH
    assert of_ranks[0] > of_ranks[2]
    epochs: dict[int, Counter[int]] = {}
    for step in steps:
        epochs.setdefault(int(step.samples // EPOCH), Counter()).update(step.indices)
    assert all(max(trained.values()) == 1 for trained in epochs.values())
    assert len(epochs[0]) > EPOCH - 3 * BATCH
    print(f"{of_ranks}, estimated {execution.estimated:.0f}, measured {execution.measured:.0f} samples/s")
    assert execution.gpu_type == "fast+slow"
    assert 1.0 - execution.error >= ACCURACY
