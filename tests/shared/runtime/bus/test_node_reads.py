"""What services read for agents, asked by more than one."""

import asyncio
from pathlib import Path

import msgspec
import pytest
from nats.aio.msg import Msg
from nats.errors import Error

from shared.runtime.bus.jetstream.asking_again import first_answer
from shared.runtime.bus.jetstream.node_reads import NodeFacts, ReadFacts
from tests.bus_nets import LIMIT_S
from tests.fact_builders import joined
from tests.guarded_nats import NODES, ROGUE, Guarded

FLOOD = 30_000
BODY = msgspec.msgpack.encode(ReadFacts(after=0))


async def test_a_node_that_reads_without_end_keeps_no_other_waiting(guarded: Guarded) -> None:
    """Another that asks after all that has its answer before most of it is looked up."""
    answered = 0

    async def count(_: Msg) -> None:
        nonlocal answered
        answered += 1

    async with guarded.raw(ROGUE) as flood, guarded.bus("agent-n-2") as other:
        await other.publish([joined(NODES[1])])
        inbox = flood.client.new_inbox()
        await flood.client.subscribe(inbox, cb=count)
        for _ in range(FLOOD):
            await flood.client.publish("hopyard-read.n-1.facts", BODY, reply=inbox)
        await flood.client.flush()
        reply = await other._connection.nats.request("hopyard-read.n-2.facts", BODY, timeout=LIMIT_S)
        await flood.client.flush()
    rows = msgspec.msgpack.decode(reply.data, type=NodeFacts).rows
    assert [row.subject for row in rows] == [joined(NODES[1]).subject]
    assert 0 < answered < FLOOD / 10


async def test_a_service_that_hangs_is_passed_over(guarded: Guarded) -> None:
    """It takes one request, as a stopped process does; the next one goes to another service."""
    taken = asyncio.Event()

    async def hang(_: Msg) -> None:
        taken.set()

    async with guarded.raw("planner") as hung, guarded.bus("agent-n-1") as agent, asyncio.timeout(LIMIT_S):
        member = await hung.client.subscribe("hopyard-read.>", queue="reads", cb=hang)
        await member.unsubscribe(limit=1)
        await hung.client.flush()
        while not taken.is_set():
            assert await agent.get("quarantine/agent-n-1") is None
        assert await agent.get("quarantine/agent-n-1") is None


async def test_services_that_all_hang_are_said_to_be_silent(tmp_path: Path) -> None:
    stack = Guarded(tmp_path)
    await stack.server.start()
    try:
        async with stack.raw("planner") as hung, stack.raw(ROGUE) as agent:
            await hung.client.subscribe("hopyard-read.>", queue="reads")
            await hung.client.flush()
            with pytest.raises(Error, match="no service answered within 2 s"):
                await first_answer(agent.client, "hopyard-read.n-1.place", b"")
    finally:
        await stack.server.stop()
