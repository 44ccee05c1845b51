"""Replies, and headers of messages, as ways round what an account may publish: tried at a real server."""

import asyncio

import msgspec
import pytest
from nats.aio.msg import Msg
from nats.js.errors import APIError

from schemas.base import Message, Question
from schemas.codec import Malformed, encode_plain
from schemas.ids import JobId
from schemas.questions import ReadOutput, Refused, agent_of
from schemas.subjects import FACTS_STREAM, STATE_BUCKET
from shared.runtime.bus.accounts import AGENTS, OPERATOR, inbox_of
from shared.runtime.bus.contract import Unavailable
from shared.runtime.bus.jetstream.large_messages import HEADER
from tests.fact_builders import plan
from tests.guarded_nats import API, NODES, OWN, ROGUE, Guarded, subject_of

ANYWHERE = (
    "hopyard.job.j-1.cancelled",
    f"{API}.PURGE.{FACTS_STREAM}",
    f"$KV.{STATE_BUCKET}.lease/planner",
    f"{inbox_of('planner')}.x",
    f"{inbox_of('planner')}.from.n-2.x",
)


@pytest.mark.parametrize("user", [ROGUE, AGENTS])
async def test_an_agent_that_asks_itself_may_reply_nowhere_else(guarded: Guarded, user: str) -> None:
    mine = agent_of(NODES[0])
    forbidden = [subject for subject in ANYWHERE if user == ROGUE or ".from." not in subject]
    async with guarded.raw(user) as client:
        heard = await client.client.subscribe(mine)
        for subject in forbidden:
            await client.client.publish(mine, b"x", reply=subject)
            assert (await heard.next_msg(10.0)).reply == subject
        assert await client.refused(forbidden) == {each.lower() for each in forbidden}


OUTPUT = ReadOutput(node_id=NODES[0], job_id=JobId("j-1"))


LARGE = [(asker, 3_000_000) for asker in ("admission", "estimator", OPERATOR)]


@pytest.mark.parametrize(("asker", "size"), [*LARGE, ("admission", 10), ("agent-n-2", 10)])
async def test_an_agent_answers_whoever_asks(guarded: Guarded, asker: str, size: int) -> None:
    async def answer(_: Question) -> Message:
        return Refused(reason="x" * size)

    async with guarded.bus(ROGUE) as agent, guarded.bus(asker) as bus:
        await agent.serve("agent", agent_of(NODES[0]), answer)
        assert await bus.ask(OUTPUT, 20.0) == Refused(reason="x" * size)
        assert (agent.counts.subjects_refused, bus.counts.subjects_refused) == (0, 0)
        with pytest.raises(Unavailable):
            await bus.ask(msgspec.structs.replace(OUTPUT, node_id=NODES[1]), 5.0)


async def test_nobody_is_asked_to_reply_where_no_inbox_is(guarded: Guarded) -> None:
    """Else who asks has another write on what is that other's own."""
    asked = asyncio.Event()

    async def answer(_: Question) -> Message:
        asked.set()
        return Refused(reason="no")

    async with guarded.bus("agent-n-2") as agent, guarded.raw(ROGUE) as client:
        await agent.put("cursor/agent-n-2", b"7")
        await agent.serve("agent", agent_of(NODES[1]), answer)
        question = msgspec.structs.replace(OUTPUT, node_id=NODES[1])
        its_own = f"$KV.{STATE_BUCKET}.cursor/agent-n-2"
        await client.client.publish(agent_of(NODES[1]), encode_plain(question), reply=its_own)
        async with guarded.bus("admission") as bus:
            await bus.ask(question, 10.0)
        assert await agent.get("cursor/agent-n-2") is not None
        assert (await agent.get("cursor/agent-n-2") or (b"", 0))[0] == b"7"
        assert agent.counts.malformed == 1


async def test_who_announces_a_large_reply_chooses_no_subject_of_who_asked(guarded: Guarded) -> None:
    subject = f"$KV.{STATE_BUCKET}.settings"
    async with guarded.bus("admission") as bus, guarded.raw(ROGUE) as client:
        revision = await bus.put("settings", b"{}")

        async def announce(msg: Msg) -> None:
            await client.client.publish(msg.reply, headers={HEADER: f"{subject} 1"})

        await client.client.subscribe(agent_of(NODES[0]), cb=announce)
        await client.client.flush()
        with pytest.raises(Malformed, match="in no inbox"):
            await bus.ask(OUTPUT, 10.0)
        assert await bus.get("settings") == (b"{}", revision)


async def test_an_agent_rolls_up_nothing(guarded: Guarded) -> None:
    """A header of a message can have the server delete all others of a stream."""
    own = (
        f"$KV.{STATE_BUCKET}.claim/n-1",
        subject_of(OWN["agent"][0], "n-1"),
        "hopyard-sample.heartbeat.n-1",
    )
    async with guarded.bus("planner") as planner, guarded.raw(ROGUE) as client:
        await planner.put("lease/planner", b"me")
        await planner.publish([plan()])
        stream = client.client.jetstream()
        for subject in own:
            for how in ("all", "sub"):
                with pytest.raises(APIError, match="rollup not permitted"):
                    await stream.publish(subject, b"x", headers={"Nats-Rollup": how})
        assert await planner.get("lease/planner") is not None
        assert await planner.last_seq() == 1


async def test_a_bucket_that_took_such_headers_takes_them_no_more(guarded: Guarded) -> None:
    """Of an earlier version."""
    async with guarded.raw("admission") as client:
        stream = client.client.jetstream()
        config = (await stream.stream_info(f"KV_{STATE_BUCKET}")).config
        await stream.update_stream(config, allow_rollup_hdrs=True)
        async with guarded.bus("admission"):
            assert not (await stream.stream_info(f"KV_{STATE_BUCKET}")).config.allow_rollup_hdrs
