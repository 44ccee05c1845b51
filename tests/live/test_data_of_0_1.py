"""A stack that starts on the data folder of version 0.1.0 goes on where that one was stopped."""

import asyncio
import tarfile
import time
from pathlib import Path

import msgspec
import pytest

from hopyard.api.connect import connect
from hopyard.local.processes import Restarts
from hopyard.local.stack import running_stack
from hopyard.local.stack_settings import StackSpec
from schemas.cluster import ClusterFile
from schemas.events import JobCompleted, JobStarted
from schemas.ids import JobId
from shared.domain.audit import audit
from tests.live.live_builders import all_ended
from tests.paths import ROOT
from tests.stack_watch import LIMIT_S, log_of, until
from tests.upgrade.installed import DATA_FILTER

pytestmark = pytest.mark.slow

STOPPED = ROOT / "tests" / "data" / "versions" / "0.1.0" / "stopped.tar.xz"
JOBS = 5
RUNNING = JobId("long-5")
STOPPED_BY_S = 8_000.0
"""cluster seconds: the folder's log ends before"""
SPEED = 1_000.0


async def test_a_stack_on_old_data_comes_up_and_finishes_what_ran(tmp_path: Path) -> None:
    with tarfile.open(STOPPED) as archive:
        archive.extraction_filter = DATA_FILTER
        archive.extractall(tmp_path)
    data = tmp_path / "stopped"
    spec = StackSpec(
        data=data,
        cluster=msgspec.json.decode((data / "cluster.json").read_bytes(), type=ClusterFile),
        clock_origin=time.time() - STOPPED_BY_S / SPEED,
        speed=SPEED,
        settings={"seed": 1},
        restarts=Restarts(most=0, backoff_s=0.05),  # no service may stumble over what it finds
    )
    async with running_stack(spec, print) as stack, connect(stack.api_url, stack.token) as client:
        before = await client.job(RUNNING)
        async with asyncio.timeout(LIMIT_S):
            while (await client.job(RUNNING)).gang is None:  # it may be preempted at any look
                await asyncio.sleep(0.05)
        await until(client, all_ended(JOBS))
        events = await log_of(client)
    assert before.samples_done > 0
    assert audit(events, drained=True) == []
    old = [fact for fact in events if fact.at < STOPPED_BY_S]
    assert RUNNING in {fact.job_id for fact in old if isinstance(fact, JobStarted)}
    ended = [fact.job_id for fact in events if isinstance(fact, JobCompleted)]
    assert len(ended) == len(set(ended)) == JOBS
    assert ended[-1] == RUNNING
    logged = [path.read_text() for path in (data / "logs").iterdir()]
    assert any("snapshot of another version" in text for text in logged)
    assert not any("malformed" in text for text in logged)
