"""What services read for agents, asked by more than one."""

import msgspec

from shared.runtime.bus.jetstream.node_reads import ReadFacts, facts_after
from tests.fact_builders import joined
from tests.guarded_nats import NODES, ROGUE, Guarded

FLOOD = 30_000
"""reads that one process takes much longer for than an agent waits"""
BODY = msgspec.msgpack.encode(ReadFacts(after=0))


async def test_a_node_that_reads_without_end_keeps_no_other_waiting(guarded: Guarded) -> None:
    async with guarded.raw(ROGUE) as flood, guarded.bus("agent-n-2") as other:
        await other.publish([joined(NODES[1])])
        for _ in range(FLOOD):
            await flood.client.publish("hopyard-read.n-1.facts", BODY, reply=flood.client.new_inbox())
        await flood.client.flush()
        rows = await facts_after(other._connection, NODES[1], 0)  # it waits 2 s
        assert [row.subject for row in rows] == [joined(NODES[1]).subject]
