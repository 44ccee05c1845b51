"""Three NATS servers, and that which leads the stream of facts stands still: what is said meanwhile is safe.

NATS takes at least four seconds to elect another leader: who returns before has not waited for it.
"""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import nats
import pytest
import pytest_asyncio
from nats.aio.client import Client

from schemas.events import JobCancelled, ServiceLed
from schemas.ids import JobId
from schemas.settings import Settings
from schemas.subjects import FACT_SUBJECTS, FACTS_STREAM
from shared.runtime.bus.contract import Fenced
from shared.runtime.bus.jetstream import JetStreamBus
from shared.runtime.process.nats_server import NatsServer
from shared.runtime.process.nats_servers import NatsServers, nats_servers
from tests.live.nats_leaders import LIMIT_S, Leaders, until
from tests.processes import LEAVES_OPEN, standing_still

pytestmark = [pytest.mark.asyncio(loop_scope="module"), LEAVES_OPEN]

SERVICE = "admission"


class Cluster:
    """Three servers, and eyes on who leads what."""

    def __init__(self, servers: NatsServers, eyes: Client) -> None:
        self.leaders = Leaders(servers, eyes.jetstream(timeout=0.5))
        self._servers = servers

    @contextlib.asynccontextmanager
    async def bus(self) -> AsyncIterator[JetStreamBus]:
        settings = Settings(nats_url=self._servers.url, nats_replicas=3, publish_timeout_real_s=2.0)
        bus = await JetStreamBus.connect(settings, SERVICE, LIMIT_S)
        try:
            yield bus
        finally:
            await bus.close()

    @contextlib.asynccontextmanager
    async def without_its_leader(self) -> AsyncIterator[None]:
        """Within, the server stands still that led the stream of facts."""
        await until(self.leaders.whole)
        await until(self.leaders.apart)
        server = await until(lambda: self.leaders.of(FACTS_STREAM))
        assert server is not None
        with standing_still(server.pid):
            yield


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cluster]:
    folder: Path = tmp_path_factory.mktemp("cluster") / "nats"
    servers = nats_servers(folder, 3, lambda path, _, peers: NatsServer(path, peers=peers))
    await servers.start()
    eyes = await nats.connect(
        [server.url for server in servers.each],
        ping_interval=1,
        reconnect_time_wait=0.1,
        max_reconnect_attempts=-1,
    )
    try:
        yield Cluster(servers, eyes)
    finally:
        await eyes.close()
        await servers.stop()


async def leads(bus: JetStreamBus, token: int) -> None:
    led = ServiceLed(at=float(token), service=SERVICE, instance=1, token=token, repetition=0)

    async def tried() -> bool:
        await bus.lead(led, await bus.led_last(SERVICE))
        return True

    await until(tried)


def fact(name: str) -> JobCancelled:
    return JobCancelled(at=1.0, job_id=JobId(name))


async def stored(bus: JetStreamBus) -> list[str]:
    """Jobs of the facts that the stream holds, in its order."""
    last, found = await bus.last_seq(), list[str]()
    async for batch in bus.read(0, FACT_SUBJECTS):
        found += [one.event.job_id for one in batch if isinstance(one.event, JobCancelled)]
        if batch.last >= last:
            break
    return found


async def kept(bus: JetStreamBus) -> int:
    """Bytes of what waits to be handed on."""
    found = await bus.get(f"handoff/{SERVICE}")
    return len(found[0]) if found else 0


async def test_facts_published_while_the_stream_has_no_leader_are_kept_in_order(cluster: Cluster) -> None:
    async with cluster.bus() as bus:
        await leads(bus, 1)
        empty = await kept(bus)
        await bus.publish([fact("a-1")])
        async with cluster.without_its_leader():
            await bus.publish([fact("a-2")])
            assert await cluster.leaders.of(FACTS_STREAM) is None
            await bus.publish([fact("a-3"), fact("a-4")])
            assert await kept(bus) > empty
            assert not bus.why_not_stored()
            await until(lambda: cluster.leaders.of(FACTS_STREAM))
            await bus.publish([fact("a-5")])
        await until(lambda: is_empty(bus, empty))
        assert await until(lambda: stored(bus)) == [f"a-{number}" for number in range(1, 6)]


async def is_empty(bus: JetStreamBus, empty: int) -> bool:
    return await kept(bus) == empty


async def test_the_next_leader_publishes_the_kept_facts_of_an_ended_one(cluster: Cluster) -> None:
    async with cluster.bus() as ended:
        await leads(ended, 2)
        async with cluster.without_its_leader():
            await ended.publish([fact("b-1"), fact("b-2")])
            await ended.close()
            async with cluster.bus() as bus:
                await until(lambda: cluster.leaders.of(FACTS_STREAM))
                assert "b-1" not in await until(lambda: stored(bus))
                await leads(bus, 4)
                assert (await until(lambda: stored(bus)))[-2:] == ["b-1", "b-2"]
                await leads(bus, 5)
                assert (await until(lambda: stored(bus))).count("b-1") == 1


async def test_a_deposed_leader_keeps_no_facts(cluster: Cluster) -> None:
    async with cluster.bus() as before, cluster.bus() as after:
        await leads(before, 6)
        await leads(after, 7)
        async with cluster.without_its_leader():
            with pytest.raises(Fenced):
                await before.publish([fact("c-1")])
            assert await cluster.leaders.of(FACTS_STREAM) is None
            await after.publish([fact("c-2")])
        await until(lambda: has(after, "c-2"))
        assert "c-1" not in await until(lambda: stored(after))


async def has(bus: JetStreamBus, name: str) -> bool:
    return name in await until(lambda: stored(bus))
