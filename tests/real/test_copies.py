"""A job whose nodes train copies, through the whole stack and on real processes."""

from pathlib import Path

import pytest

from schemas.events import JobCompleted, JobStarted, Outcome, WorkerStopped
from schemas.ids import JobId
from schemas.placement import Forked
from shared.domain.audit import audit
from tests.real.real_builders import job_file, nothing_left, real_stack
from tests.stack_watch import until

pytestmark = [pytest.mark.torch, pytest.mark.asyncio]

SAMPLES = 6_000


async def test_copies_train_their_shares_and_the_job_is_complete(tmp_path: Path) -> None:
    async with real_stack(tmp_path, policy="hadare") as (_, client):
        submitted = await client.submit(job_file("forked", tmp_path / "ledger", samples=SAMPLES), "key")
        await until(
            client, lambda status: status.jobs.get("completed", 0) + status.jobs.get("failed", 0) == 1
        )
        lines = [line async for line in client.events()]
    log = [line.fact() for line in lines]
    await nothing_left(tmp_path)
    assert audit(log, drained=True, seqs=[line.seq for line in lines]) == []
    starts = [fact for fact in log if isinstance(fact, JobStarted)]
    assert max(len(fact.gang.members) for fact in starts if isinstance(fact.gang.sync, Forked)) > 1
    ends = [fact for fact in log if isinstance(fact, WorkerStopped) and fact.outcome is Outcome.QUOTA]
    assert {fact.job_id for fact in ends} == {JobId(submitted.job_id)}
    [complete] = [fact for fact in log if isinstance(fact, JobCompleted)]
    assert complete.samples_done >= SAMPLES
