"""A stack that comes up on a long log, all of it in the stream: it is archived and trimmed under its readers.

One who follows reads on all the time, another stands still until what it has to read next is trimmed.
Services are killed meanwhile. Nothing is missing to either, and nothing comes twice.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from hopyard.actions.scenario import cluster_of
from hopyard.api.connect import connect
from hopyard.failures import Failure, Unreachable
from hopyard.lab.bench.stack.history import end_s, history
from hopyard.local.processes import Restarts
from hopyard.local.stack import running_stack
from hopyard.local.stack_settings import SERVICES, StackSpec
from loadgen.scenarios import load_scenario
from schemas.events import JobSubmitted
from schemas.questions import ArchiveKind
from schemas.settings import Settings
from services.monitor.archive import files
from services.monitor.archive.plan import coverage
from shared.domain.audit import Audit
from shared.domain.cluster import nodes_of
from shared.runtime.bus.jetstream import JetStreamBus
from shared.runtime.process.nats_server import NatsServer
from tests.live.live_builders import SPEED
from tests.live.trimmed import Trimmed
from tests.stack_watch import LIMIT_S

pytestmark = pytest.mark.slow

JOBS = 1_000
FILE_MESSAGES = 500
STREAM_BYTES = 500_000
READ_FIRST = 1_500
TRIMMED_TO = 6_000
TOKEN = "of a server that nobody else knows"


class Follower:
    """Of `events`, that goes on after the last it has, as people do whom the API hung up on."""

    def __init__(self, stack: Trimmed, pauses_after: int | None = None) -> None:
        self.seqs: list[int] = []
        self.may_go_on = asyncio.Event()
        self._stack = stack
        self._pauses_after = pauses_after

    async def follow(self) -> None:
        while True:
            try:
                await self._read()
            except (Unreachable, Failure):
                await asyncio.sleep(0.5)

    async def _read(self) -> None:
        async with connect(self._stack.stack.api_url, self._stack.stack.token) as client:
            async for line in client.events(follow=True, after=self.seqs[-1] if self.seqs else 0):
                self.seqs.append(line.seq)
                if len(self.seqs) == self._pauses_after:
                    await self.may_go_on.wait()

    async def comes_to(self, seq: int) -> None:
        async with asyncio.timeout(LIMIT_S):
            while not self.seqs or self.seqs[-1] < seq:
                await asyncio.sleep(0.2)


@asynccontextmanager
async def long_stack(data: Path) -> AsyncIterator[Trimmed]:
    """Its services have handled all of the log, and have no snapshots."""
    cluster = cluster_of(load_scenario("tiny"))
    nodes = nodes_of(cluster)
    server = NatsServer(data / "nats", token=TOKEN, sync_interval="1m")
    await server.start()
    try:
        bus = await JetStreamBus.connect(Settings(nats_url=server.url, nats_token=TOKEN), "test", LIMIT_S)
        await bus.publish(history(nodes, JOBS))
        last = await bus.last_seq()
        for name in SERVICES:
            await bus.put(f"cursor/{name}", str(last).encode())
        await bus.close()
    finally:
        await server.stop()
    spec = StackSpec(
        data=data,
        cluster=cluster,
        clock_origin=time.time() - (end_s(nodes, JOBS) + 60.0) / SPEED,
        speed=SPEED,
        settings={
            **load_scenario("tiny").settings,
            "stream_max_bytes": STREAM_BYTES,
            "archive_file_messages": FILE_MESSAGES,
            "archive_every_real_s": 0.3,
            "snapshot_every": FILE_MESSAGES,
            "lease_real_s": 1.0,
        },
        restarts=Restarts(most=50, backoff_s=0.05),
    )
    async with running_stack(spec, print) as stack, connect(stack.api_url, stack.token) as client:
        yield Trimmed(stack, client)


async def test_readers_of_a_long_log_miss_no_fact_while_it_is_trimmed(tmp_path: Path) -> None:
    async with long_stack(tmp_path / "data") as long, asyncio.TaskGroup() as group:
        last = (await long.extent()).last
        assert last > 10_000
        eager, slow = Follower(long), Follower(long, pauses_after=READ_FIRST)
        following = [group.create_task(one.follow()) for one in (eager, slow)]
        await slow.comes_to(READ_FIRST)
        assert (await long.extent()).first == 1
        await long.restarted("monitor", "planner")
        await long.submit()
        extent = await long.trimmed_beyond(TRIMMED_TO)
        slow.may_go_on.set()
        await long.restarted("monitor", "placer")
        await long.ended(beside=JOBS)

        audit, seqs, submitted = Audit(), [], 0
        async for line in long.client.events():
            audit.take(line.seq, line.fact())
            seqs.append(line.seq)
            submitted += isinstance(line.fact(), JobSubmitted)
        assert seqs == list(range(1, seqs[-1] + 1))
        assert audit.found() == []
        assert submitted == JOBS + long.jobs
        for one in (eager, slow):
            await one.comes_to(seqs[-1])
            assert one.seqs == list(range(1, one.seqs[-1] + 1))
        for task in following:
            task.cancel()
    there = coverage(files.names_in(tmp_path / "data" / "archive"), ArchiveKind.FACTS)
    assert (there.begins, there.gaps) == (1, ())
    assert len(there.files) >= extent.first // FILE_MESSAGES > 10
