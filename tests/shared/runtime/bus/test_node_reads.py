"""What services read for agents, asked by more than one."""

import msgspec
from nats.aio.msg import Msg

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
