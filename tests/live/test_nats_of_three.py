"""A cluster of three NATS servers: the one that leads the stream is killed, stopped, emptied, and moved.

Seconds are printed (`-s`) and not asserted: NATS itself takes up to nine to elect another leader.
"""

import asyncio
import contextlib
import shutil
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from schemas.events import JobCancelled
from schemas.ids import JobId
from schemas.settings import Settings
from schemas.subjects import FACT_SUBJECTS, FACTS_STREAM
from shared.runtime.bus.jetstream import JetStreamBus
from shared.runtime.clock import ScaledClock
from shared.runtime.leadership import Candidate
from shared.runtime.process.nats_server import NatsServer
from shared.runtime.process.nats_servers import NatsServers, nats_servers
from tests.live.nats_leaders import Leaders, until
from tests.processes import LEAVES_OPEN, standing_still

pytestmark = [pytest.mark.asyncio(loop_scope="module"), LEAVES_OPEN]

LIMIT_S = 120.0
EVERY_S = 0.05


class Load:
    """One leader that publishes facts all the time, and what was acknowledged."""

    def __init__(self, servers: NatsServers, bus: JetStreamBus, candidate: Candidate) -> None:
        self.servers = servers
        self.bus = bus
        self.leaders = Leaders(servers, bus._connection.js)
        self.acknowledged: list[str] = []
        self.at: list[float] = []
        """when, by the clock of the machine's start"""
        self._tasks = [asyncio.create_task(self._publish()), asyncio.create_task(candidate.hold())]

    async def _publish(self) -> None:
        number = 0
        while True:
            number += 1
            await self.bus.publish([JobCancelled(at=float(number), job_id=JobId(f"job-{number}"))])
            self.acknowledged.append(f"job-{number}")
            self.at.append(time.monotonic())
            await asyncio.sleep(EVERY_S)

    async def more(self, count: int = 20) -> None:
        """Wait until so many more are acknowledged."""
        goal = len(self.acknowledged) + count
        async with asyncio.timeout(LIMIT_S):
            while len(self.acknowledged) < goal:
                for task in self._tasks:
                    if task.done():
                        task.result()
                await asyncio.sleep(EVERY_S)

    @contextlib.contextmanager
    def gap(self, what: str) -> Iterator[None]:
        """Print the longest time without an acknowledgement."""
        first = len(self.at) - 1
        yield
        gaps = [
            later - earlier for earlier, later in zip(self.at[first:], self.at[first + 1 :], strict=False)
        ]
        print(f"{what}: the longest wait for an acknowledgement was {max(gaps):.1f} s")

    async def leader(self) -> NatsServer:
        """The server that leads the stream of facts."""
        found = await until(lambda: self.leaders.of(FACTS_STREAM))
        assert found is not None
        return found

    async def end(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def load(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Load]:
    folder: Path = tmp_path_factory.mktemp("cluster") / "nats"
    servers = nats_servers(folder, 3, lambda path, _, peers: NatsServer(path, peers=peers))
    await servers.start()
    settings = Settings(nats_url=servers.url, nats_replicas=3, publish_timeout_real_s=2.0)
    bus = await JetStreamBus.connect(settings, "planner", LIMIT_S)
    candidate = Candidate(bus, ScaledClock(), settings, "planner", first=True)
    async with asyncio.timeout(LIMIT_S):
        while not await candidate.stand():
            await asyncio.sleep(EVERY_S)
    found = Load(servers, bus, candidate)
    await found.more()
    try:
        yield found
    finally:
        await found.end()
        await bus.close()
        await servers.stop()


async def test_the_leader_of_the_stream_is_moved_while_facts_are_published(load: Load) -> None:
    with load.gap("moved three times"):
        for _ in range(3):
            await load.bus._connection.nats.request(
                f"$JS.API.STREAM.LEADER.STEPDOWN.{FACTS_STREAM}", b"", timeout=10.0
            )
            await load.more()


async def test_the_server_that_leads_the_stream_is_killed(load: Load) -> None:
    server = await load.leader()
    with load.gap("killed"):
        server.kill()
        await load.more()
    await server.start()
    await until(load.leaders.whole)


async def test_the_server_that_leads_the_stream_is_stopped(load: Load) -> None:
    server = await load.leader()
    with load.gap("stopped"):
        with standing_still(server.pid):
            await load.more()
        await load.more()
    await until(load.leaders.whole)


async def test_a_server_that_lost_its_disk_comes_back_empty(load: Load) -> None:
    server = await load.leader()
    with load.gap("its disk lost"):
        server.kill()
        shutil.rmtree(server.folder)
        await server.start()
        await load.more()
    await until(load.leaders.whole)


async def test_after_all_that_no_acknowledged_fact_is_lost_repeated_or_out_of_order(load: Load) -> None:
    await load.end()
    last, found = await load.bus.last_seq(), list[str]()
    async with asyncio.timeout(LIMIT_S):
        async for batch in load.bus.read(0, FACT_SUBJECTS):
            found += [one.event.job_id for one in batch if isinstance(one.event, JobCancelled)]
            if batch.last >= last:
                break
    assert len(set(found)) == len(found)
    assert found[: len(load.acknowledged)] == load.acknowledged  # one more may be stored than was heard of
