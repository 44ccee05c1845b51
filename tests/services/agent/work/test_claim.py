"""Claims: every agent its node, one agent a node."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from schemas.cluster import Node
from schemas.ids import NodeId
from schemas.settings import Settings
from services.agent.build import build_standing
from services.agent.work.claim import Claim, ClaimLost, claim
from shared.runtime.bus.contract import Unavailable
from shared.runtime.bus.memory import MemoryBus
from shared.runtime.clock import LoopClock
from shared.runtime.plugins import UnknownPlugin
from shared.runtime.service import Inbox, Ports
from shared.runtime.shell.virtual import run
from tests.services.agent.agent_bench import node

NODES = (node(NodeId("n-0")), node(NodeId("n-1")))
LEASE_S = 6.0


async def _ask(_: object) -> None:
    raise AssertionError("a claim asks nothing")


INBOX = Inbox(put=lambda _: None, ask=_ask, replayed=lambda: True, seq=lambda: 0)


def played(scene: Callable[[MemoryBus], Awaitable[None]]) -> None:
    async def main() -> None:
        await scene(MemoryBus(LoopClock()))

    run(main)


async def take(bus: MemoryBus, life: str, nodes: tuple[Node, ...] = NODES) -> Claim:
    return await claim(bus, LoopClock(), nodes, holder=life, lease_s=LEASE_S)


def test_agents_claim_one_node_each() -> None:
    async def scene(bus: MemoryBus) -> None:
        first, second = await asyncio.gather(take(bus, "a"), take(bus, "b"))
        assert {first.node.node_id, second.node.node_id} == {"n-0", "n-1"}

    played(scene)


def test_a_spare_agent_takes_over_when_a_claim_runs_out() -> None:
    async def scene(bus: MemoryBus) -> None:
        await take(bus, "a", NODES[:1])
        spare = await take(bus, "b", NODES[:1])
        assert spare.node.node_id == "n-0"
        assert LEASE_S <= asyncio.get_running_loop().time() <= LEASE_S * 1.5

    played(scene)


def test_a_claim_that_is_renewed_stays() -> None:
    async def scene(bus: MemoryBus) -> None:
        held = await take(bus, "a", NODES[:1])
        keeping = asyncio.create_task(held.keep(INBOX))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(100.0):
                await take(bus, "b", NODES[:1])
        keeping.cancel()

    played(scene)


def test_a_claim_is_renewed_as_soon_as_the_service_runs() -> None:
    """However long the service took to come up."""

    async def scene(bus: MemoryBus) -> None:
        held = await take(bus, "a", NODES[:1])
        await asyncio.sleep(0.9 * LEASE_S)
        keeping = asyncio.create_task(held.keep(INBOX))
        await asyncio.sleep(0.3 * LEASE_S)
        assert await bus.get("claim/n-0") is not None
        keeping.cancel()

    played(scene)


def test_a_world_that_does_not_load_claims_no_node(tmp_path: Path) -> None:
    async def scene(bus: MemoryBus) -> None:
        cluster = tmp_path / "cluster.json"
        cluster.write_text(
            '{"name": "one", "nodes": [{"prefix": "n", "count": 1, "gpus": 1, "gpu_type": "t"}]}'
        )
        settings = Settings(cluster=str(cluster), world="nowhere")
        with pytest.raises(UnknownPlugin):
            await build_standing(settings, Ports(bus=bus, clock=LoopClock()))
        assert await bus.get("claim/n-0") is None

    played(scene)


def test_a_claim_that_another_agent_took_ends_the_first() -> None:
    async def scene(bus: MemoryBus) -> None:
        held = await take(bus, "a", NODES[:1])
        await asyncio.sleep(LEASE_S)
        await take(bus, "b", NODES[:1])
        with pytest.raises(ClaimLost, match="n-0"):
            await held.keep(INBOX)

    played(scene)


def test_a_claim_that_ran_out_unnoticed_is_taken_again() -> None:
    async def scene(bus: MemoryBus) -> None:
        held = await take(bus, "a", NODES[:1])
        await asyncio.sleep(2 * LEASE_S)
        keeping = asyncio.create_task(held.keep(INBOX))
        await asyncio.sleep(LEASE_S)
        found = await bus.get("claim/n-0")
        assert found is not None
        assert found[0] == b"a"
        keeping.cancel()
        with suppress(asyncio.CancelledError):
            await keeping

    played(scene)


class Away(MemoryBus):
    """Away until a time of the loop."""

    until = 0.0

    async def put(
        self, key: str, value: bytes, expected: int | None = None, ttl_s: float | None = None
    ) -> int:
        if asyncio.get_running_loop().time() < self.until:
            raise Unavailable("NATS is away")
        return await super().put(key, value, expected, ttl_s)


def test_while_the_bus_is_away_that_is_logged_once_and_when_it_is_back() -> None:
    """Every two seconds, for as long as NATS was away."""

    async def main() -> None:
        bus = Away(LoopClock())
        with capture_logs() as logs:
            bus.until = 20.0
            held = await take(bus, "a", NODES[:1])
            keeping = asyncio.create_task(held.keep(INBOX))
            await asyncio.sleep(10.0)
            bus.until = 60.0
            await asyncio.sleep(60.0)
            keeping.cancel()
        said = [line["event"] for line in logs if line["log_level"] != "debug"]
        assert [event for event in said if "every node" not in event] == [
            *("no claim", "node claimed", "claim not renewed", "claim renewed again")
        ]

    run(main)


class Forgetful(MemoryBus):
    """Stores the first write and says that it did not."""

    lied = False

    async def put(
        self, key: str, value: bytes, expected: int | None = None, ttl_s: float | None = None
    ) -> int:
        revision = await super().put(key, value, expected, ttl_s)
        if not self.lied:
            self.lied = True
            raise Unavailable("no answer")
        return revision


def test_a_write_that_seemed_to_fail_is_known_again() -> None:
    async def main() -> None:
        held = await take(Forgetful(LoopClock()), "a", NODES)
        assert held.node.node_id == "n-0"

    run(main)
