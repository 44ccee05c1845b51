"""A job that trains is backed up with its checkpoint, and goes on from it in a stack restored elsewhere."""

import asyncio
import shutil
from pathlib import Path

import pytest

from hopyard.actions.backup import BesideNats, back_up
from hopyard.actions.checkpoints import wanted
from hopyard.actions.restore import JOBS, restore
from hopyard.api.client import Client
from hopyard.api.connect import patiently
from hopyard.local.stack import Stack
from schemas.events import JobCompleted, WorkerStarted
from shared.domain.audit import audit
from shared.domain.states import ENDED
from shared.runtime.bus.jetstream.connection import Connection
from tests.real.real_builders import cluster, job_file, nothing_left, real_stack, steps_of
from tests.stack_watch import LIMIT_S, until

pytestmark = [pytest.mark.torch, pytest.mark.asyncio]

NODES = [{"prefix": "fast", "count": 1, "gpus": 1, "gpu_type": "fast"}]
JOB = "carried"


async def test_a_job_goes_on_elsewhere_from_the_checkpoint_in_the_backup(tmp_path: Path) -> None:
    first, second, file = tmp_path / "first", tmp_path / "second", tmp_path / "backup.tar"
    ledger = tmp_path / "ledger"
    job = job_file(JOB, ledger, samples=4_000, checkpoint={"interval_s": 2, "grace_s": 10})
    async with real_stack(first, cluster(nodes=NODES)) as (stack, client):
        await client.submit(job, "key")
        await saved(client)
        assert await backed_up(stack, client, file) == 1
    await nothing_left(first)
    began = max(step.samples for step in steps_of(ledger / JOB))
    shutil.rmtree(first)

    assert (await asyncio.to_thread(restore, file, second)).checkpoints == 1
    [checkpoint] = (second / JOBS).rglob("*.pt")
    samples = int(checkpoint.name.partition("-")[0])
    assert 0 < samples <= began
    async with real_stack(second, cluster(nodes=NODES)) as (_, client):
        await until(client, lambda status: sum(status.jobs.get(state, 0) for state in ENDED) == 1)
        lines = [line async for line in client.events()]
    await nothing_left(second)
    log = [line.fact() for line in lines]
    assert any(isinstance(fact, JobCompleted) for fact in log)
    assert audit(log, drained=True, seqs=[line.seq for line in lines]) == []
    restored = [fact.samples_restored for fact in log if isinstance(fact, WorkerStarted)]
    assert samples in restored


async def saved(client: Client) -> None:
    async with asyncio.timeout(LIMIT_S):
        while not any(view.samples_saved for view in (await patiently(client.jobs, LIMIT_S)).jobs):
            await asyncio.sleep(0.3)


async def backed_up(stack: Stack, client: Client, file: Path) -> int:
    """How many checkpoints there are in it."""
    settings = await client.settings()
    [folder] = [str(one.value) for one in settings.settings if one.name == "jobs_folder"]
    want = wanted(folder, (await client.jobs()).jobs, 10**9)
    beside = BesideNats(data=stack.data, settings=settings, version="1", checkpoints=want)
    connection = Connection(stack.settings(), "test")
    await connection.open(LIMIT_S)
    try:
        return (await back_up(connection, file, beside)).checkpoints
    finally:
        await connection.close()
