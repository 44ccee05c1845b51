"""An account cannot publish more than it may by reply subjects or headers: tried at a real server."""

import asyncio

import msgspec
import pytest
from nats.aio.msg import Msg
from nats.js.errors import APIError

from schemas.base import Message, Question
from schemas.codec import Malformed, encode_plain
from schemas.events import JobCancelled, NodeJoined, PlanPublished, StopOrdered
from schemas.ids import JobId
from schemas.questions import ReadOutput, Refused, ShowStatus, agent_of
from schemas.subjects import FACTS_STREAM, STATE_BUCKET, state_subject
from shared.runtime.bus.accounts import AGENTS, OPERATOR, inbox_of
from shared.runtime.bus.contract import Unavailable
from shared.runtime.bus.jetstream.large_messages import HEADER
from shared.runtime.bus.jetstream.node_reads import NodeFacts
from tests.fact_builders import cancelled, plan, stop_ordered
from tests.guarded_nats import API, NODES, OWN, ROGUE, Guarded, subject_of

SERVICES_OWN = (
    state_subject("lease/planner"),
    state_subject("cursor/planner"),
    subject_of(PlanPublished, "p-1"),
    subject_of(JobCancelled, "j-1"),
    f"{API}.PURGE.{FACTS_STREAM}",
    f"{inbox_of('planner')}.x",
    "hopyard.ask.monitor",
)
OF_ANOTHER_NODE = (
    state_subject("claim/n-2"),
    state_subject("cursor/agent-n-2"),
    subject_of(StopOrdered, "n-2"),
    subject_of(NodeJoined, "n-2"),
    "hopyard-sample.heartbeat.n-2",
    f"{inbox_of('agent-n-2')}.x",
    agent_of(NODES[1]),
)
ANSWERED = (subject_of(NodeJoined, "n-1"), state_subject("claim/n-1"), "hopyard-read.n-1.place")
"""to each of which a server or a service replies"""


@pytest.mark.parametrize(
    ("user", "steered"), [(ROGUE, (*SERVICES_OWN, *OF_ANOTHER_NODE)), (AGENTS, SERVICES_OWN)]
)
async def test_no_reply_comes_where_an_agent_steers_it(
    guarded: Guarded, user: str, steered: tuple[str, ...]
) -> None:
    """The server asks no permission for its acknowledgements: they stay in the agent's account."""
    heard: list[str] = []

    async def hear(msg: Msg) -> None:
        heard.append(msg.subject)

    async with (
        guarded.raw("admission") as service,
        guarded.raw("agent-n-2") as other,
        guarded.raw(user) as client,
        guarded.bus("planner") as planner,
    ):
        await planner.put("lease/planner", b"me")
        await planner.put("cursor/planner", b"7")
        for subject in ("hopyard-sample.>", "hopyard-read.>"):
            await service.client.subscribe(subject, cb=hear)
        for subject in (f"{inbox_of('agent-n-2')}.>", agent_of(NODES[1]), "hopyard.*.n-2.*"):
            await other.client.subscribe(subject, cb=hear)
        await service.refused(())
        await other.refused(())
        for published in ANSWERED:
            for subject in steered:
                await client.client.publish(published, b"x", reply=subject)
            await client.client.request(published, b"x", timeout=10.0)
        assert await client.refused(()) == set()
        assert await planner.get("lease/planner") == (b"me", 1)
        assert await planner.get("cursor/planner") == (b"7", 2)
        assert await planner.get("claim/n-2") is None
        assert await planner.get("cursor/agent-n-2") is None
        await other.refused(())
        subjects = (
            await service.client.jetstream().stream_info(FACTS_STREAM, subjects_filter=">")
        ).state.subjects
        assert set(subjects or ()) == {ANSWERED[0]}
        assert set(heard) == {ANSWERED[2]}


async def test_an_agent_reads_facts_about_its_node_and_its_own_values(guarded: Guarded) -> None:
    async with (
        guarded.bus("admission") as admission,
        guarded.bus("placer") as placer,
        guarded.bus("agent-n-2") as other,
        guarded.raw(ROGUE) as client,
    ):
        await other.put("cursor/agent-n-2", b"7")
        await placer.publish([stop_ordered("j-2", place="pl-2", node_id="n-2")])
        await admission.publish([cancelled("n-1")])  # a job with the name of a node
        await placer.publish([stop_ordered("j-1", place="pl-1", node_id="n-1")])

        async def read(what: str, body: object) -> bytes:
            data = msgspec.msgpack.encode(body)
            return (await client.client.request(f"hopyard-read.n-1.{what}", data, timeout=10.0)).data

        rows = msgspec.msgpack.decode(await read("facts", {"after": 0}), type=NodeFacts).rows
        assert [(row.seq, row.subject) for row in rows] == [(3, subject_of(StopOrdered, "n-1"))]
        refused = msgspec.msgpack.encode(None)
        for wrong in ("cursor/agent-n-2", "lease/planner", "claim/n-2", "../x", "cursor/agent-*"):
            assert await read("value", {"key": wrong}) == refused
        for what, body in (("facts", {"after": -1}), ("facts", []), ("everything", {}), ("value", {})):
            assert await read(what, body) == refused
        assert await client.refused(("hopyard-read.n-2.facts", "hopyard-read.*.facts")) == {
            "hopyard-read.n-2.facts",
            "hopyard-read.*.facts",
        }


OUTPUT = ReadOutput(node_id=NODES[0], job_id=JobId("j-1"))


STATUS = ShowStatus()
LARGE = [(asker, 3_000_000) for asker in ("admission", "estimator", OPERATOR)]


@pytest.mark.parametrize(("asker", "size"), [*LARGE, ("admission", 10)])
async def test_an_agent_answers_every_asker(guarded: Guarded, asker: str, size: int) -> None:
    async def answer(_: Question) -> Message:
        return Refused(reason="x" * size)

    async with guarded.bus(ROGUE) as agent, guarded.bus(asker) as bus:
        await agent.serve("agent", agent_of(NODES[0]), answer)
        assert await bus.ask(OUTPUT, 20.0) == Refused(reason="x" * size)
        assert (agent.counts.subjects_refused, bus.counts.subjects_refused) == (0, 0)
        with pytest.raises(Unavailable):
            await bus.ask(msgspec.structs.replace(OUTPUT, node_id=NODES[1]), 5.0)


async def test_a_question_with_a_reply_subject_outside_the_inboxes_is_not_answered(guarded: Guarded) -> None:
    """Else who asks has another write on what is that other's own."""

    async def answer(_: Question) -> Message:
        return Refused(reason="no")

    async with (
        guarded.bus("agent-n-2") as agent,
        guarded.raw("admission") as client,
        guarded.bus("monitor") as bus,
    ):
        await bus.put("cursor/monitor", b"7")
        await bus.serve("monitor", STATUS.subject, answer)
        await client.client.publish(
            STATUS.subject, encode_plain(STATUS), reply=state_subject("cursor/monitor")
        )
        await agent.serve("agent", agent_of(NODES[1]), answer)
        async with guarded.bus("admission") as asker:
            await asker.ask(STATUS, 10.0)
        assert (await bus.get("cursor/monitor") or (b"", 0))[0] == b"7"
        assert bus.counts.malformed == 1


async def test_no_agent_asks_another(guarded: Guarded) -> None:
    asked = asyncio.Event()

    async def answer(_: Question) -> Message:
        asked.set()
        return Refused(reason="no")

    async with (
        guarded.bus("agent-n-2") as agent,
        guarded.bus(ROGUE) as rogue,
        guarded.bus(AGENTS) as any_node,
    ):
        await agent.serve("agent", agent_of(NODES[1]), answer)
        for bus in (rogue, any_node):
            with pytest.raises(Unavailable):
                await bus.ask(msgspec.structs.replace(OUTPUT, node_id=NODES[1]), 1.0)
            assert bus.counts.subjects_refused == 1
        assert not asked.is_set()


async def test_a_large_reply_cannot_be_announced_on_a_subject_of_the_asker(guarded: Guarded) -> None:
    subject = f"$KV.{STATE_BUCKET}.settings"
    async with guarded.bus("admission") as bus, guarded.raw(ROGUE) as client:
        revision = await bus.put("settings", b"{}")

        async def announce(msg: Msg) -> None:
            await client.client.publish(msg.reply, headers={HEADER: f"{subject} 1"})

        await client.client.subscribe(agent_of(NODES[0]), cb=announce)
        await client.refused(())
        with pytest.raises(Malformed, match="are not below"):
            await bus.ask(OUTPUT, 10.0)
        assert await bus.get("settings") == (b"{}", revision)


async def test_an_agent_cannot_roll_up_a_subject(guarded: Guarded) -> None:
    """A header of a message can have the server delete all others of a stream."""
    own = (
        state_subject("claim/n-1"),
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
    """A bucket made by an earlier version."""
    async with guarded.raw("admission") as client:
        stream = client.client.jetstream()
        config = (await stream.stream_info(f"KV_{STATE_BUCKET}")).config
        await stream.update_stream(config, allow_rollup_hdrs=True)
        async with guarded.bus("admission"):
            assert not (await stream.stream_info(f"KV_{STATE_BUCKET}")).config.allow_rollup_hdrs
