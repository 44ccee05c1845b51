"""Access to NATS: what accounts may not do, attempted at a real server."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import structlog

from hopyard.actions.quarantined import found_of, released
from hopyard.failures import Invalid
from hopyard.local.accounts import (
    OF_STACK,
    accounts_in,
    admitted,
    ensure_accounts,
    expel,
    is_expelled,
    permissions_of,
    stamp_of,
)
from hopyard.local.credentials import account_of, folder_of
from schemas.base import Sample
from schemas.codec import encode
from schemas.events import FACTS, NodeJoined, PlanPublished, ProfileFailed, ServiceLed, StopOrdered
from schemas.ids import GpuType, JobId, NodeId, PlacementId, PlanId
from schemas.quarantine import Death, Quarantine, key_of
from schemas.samples import Heartbeat
from schemas.settings import Settings
from schemas.subjects import FACTS_STREAM, SNAPSHOT_BUCKET, STATE_BUCKET, state_subject, subjects_of
from services.table import TABLE
from shared.runtime.bus.accounts import AGENTS, OPERATOR, inbox_of
from shared.runtime.bus.contract import Record, Unavailable
from shared.runtime.bus.jetstream import JetStreamBus
from shared.runtime.bus.jetstream.connection import REFUSED, Connection
from shared.runtime.bus.jetstream.handoff import Handoff
from shared.runtime.clock import ScaledClock
from shared.runtime.leadership import Candidate
from shared.runtime.process.nats_server import NatsServer
from tests.bus_nets import LIMIT_S
from tests.fact_builders import joined, lost, plan, stop_ordered
from tests.guarded_nats import API, NODES, OWN, ROGUE, STREAMS, Guarded, subject_of
from tests.shared.runtime.bus.bus_build import next_records, read_all


async def test_a_service_publishes_only_its_own_facts(guarded: Guarded) -> None:
    everything = {subject_of(kind, "x-1") for kind in FACTS.values()}
    for entry in TABLE:
        if not entry.on_every_node:
            async with guarded.raw(entry.name) as client:
                own = {subject_of(kind, "x-1") for kind in entry.publishes}
                assert await client.refused(everything) == everything - own, entry.name


async def test_an_agent_publishes_only_facts_of_its_node(guarded: Guarded) -> None:
    everything = {subject_of(kind, node) for kind in FACTS.values() for node in (*NODES, "n-3")}
    own = {subject_of(kind, "n-1") for kind in OWN["agent"]}
    async with guarded.raw(ROGUE) as client:
        assert await client.refused(everything) == everything - own
    async with guarded.raw(AGENTS) as client:
        agents = {subject_of(kind, node) for kind in OWN["agent"] for node in (*NODES, "n-3")}
        assert await client.refused(everything) == everything - agents


async def test_commands_publish_no_fact(guarded: Guarded) -> None:
    everything = {subject_of(kind, "x-1") for kind in FACTS.values()}
    async with guarded.raw(OPERATOR) as client:
        assert await client.refused(everything) == everything


SERVICES_OWN = (
    *(
        f"$KV.{STATE_BUCKET}.{kind}/{name}"
        for kind in ("cursor", "service")
        for name in OWN
        if name != "agent"
    ),
    *(f"$KV.{STATE_BUCKET}.{key}" for key in ("lease/planner", "planner/policy", "settings")),
    *(f"{API}.{what}.{name}" for what in ("DELETE", "UPDATE", "PURGE") for name in STREAMS),
    *(f"{API}.{what}.{FACTS_STREAM}" for what in ("CREATE", "MSG.DELETE")),
    *(f"$JS.API.CONSUMER.CREATE.{name}" for name in STREAMS),  # it could have the server send to any subject
    *(f"$JS.API.CONSUMER.CREATE.{name}.x.hopyard.node.n-1.joined" for name in STREAMS),
    f"$JS.API.CONSUMER.DURABLE.CREATE.{FACTS_STREAM}.x",
    f"{API}.CREATE.another",
    f"$O.{SNAPSHOT_BUCKET}.C.x",
    f"$O.{SNAPSHOT_BUCKET}.M.x",
    *(f"{API}.{what}" for what in ("NAMES", f"INFO.{FACTS_STREAM}", f"MSG.GET.{FACTS_STREAM}")),
    *(f"hopyard.ask.{name}" for name in ("estimator", "planner", "monitor", "agent.n-1", "agent.n-2")),
    "hopyard-parts.n-1.x",
    "hopyard-dead.planner",
    "_INBOX.planner.x",
    "$SYS.REQ.SERVER.PING",
)


@pytest.mark.parametrize("user", [ROGUE, AGENTS])
async def test_an_agent_cannot_write_values_of_services(guarded: Guarded, user: str) -> None:
    async with guarded.raw(user) as client:
        assert await client.refused(SERVICES_OWN) == {each.lower() for each in SERVICES_OWN}


async def test_an_agent_cannot_write_values_of_another_node(guarded: Guarded) -> None:
    others = {
        *(state_subject(key) for key in ("cursor/agent-n-2", "claim/n-2", "snapshot/agent-n-2")),
        *(f"hopyard-read.n-2.{what}" for what in ("facts", "place", "value")),
        *(f"hopyard-sample.{kind}.n-2" for kind in ("heartbeat", "throughput")),
    }
    async with guarded.raw(ROGUE) as client:
        assert await client.refused(others) == {each.lower() for each in others}
        assert await client.refused(each.replace("n-2", "n-1") for each in others) == set()


@pytest.mark.parametrize("user", [ROGUE, AGENTS])
async def test_an_agent_has_a_few_values_and_no_more(guarded: Guarded, user: str) -> None:
    """Each is as large as a message may be, so any number of them would fill the disk of NATS."""
    more = {f"$KV.{STATE_BUCKET}.agent.n-1.{key}" for key in ("k1", "service", "claim.x", "claim/x")}
    async with guarded.raw(user) as client:
        assert await client.refused(more) == {each.lower() for each in more}


async def test_no_account_can_read_replies_to_another(guarded: Guarded) -> None:
    for user in (*OF_STACK, ROGUE, AGENTS):
        others = {f"{inbox_of(other)}.>" for other in (*OF_STACK, "agent-n-2") if other != user} | {
            "_INBOX.>",
            ">",
        }
        async with guarded.raw(user) as client:
            assert await client.unheard(others) == {each.lower() for each in others}, user


MAY_CHANGE = {"admission": ("CREATE", "UPDATE"), "monitor": ("PURGE",)}
"""the monitor archives what goes"""


async def test_a_service_changes_no_stream_but_admission_and_the_monitor(guarded: Guarded) -> None:
    changes = {
        f"{API}.{what}.{FACTS_STREAM}" for what in ("CREATE", "UPDATE", "DELETE", "PURGE", "MSG.DELETE")
    }
    for user in (*OF_STACK, ROGUE, AGENTS):
        async with guarded.raw(user) as client:
            left = {f"{API}.{what}.{FACTS_STREAM}" for what in MAY_CHANGE.get(user, ())}
            assert await client.refused(changes) == {each.lower() for each in changes - left}, user


@pytest.mark.parametrize("fact", [plan(), plan(plan_id=PlanId("Plan-A"))])
async def test_a_refused_publication_is_counted_logged_and_raised(
    guarded: Guarded, fact: PlanPublished
) -> None:
    with structlog.testing.capture_logs() as logs:
        async with guarded.bus("placer") as bus:
            with pytest.raises(PermissionError, match=r"may not publish on hopyard\.plan\."):
                async with asyncio.timeout(LIMIT_S):
                    await bus.publish([fact])
            assert bus.counts.subjects_refused == 1
            assert await bus.last_seq() == 0
    assert [log["subject"] for log in logs if log["event"] == "NATS refuses a subject"] == [
        fact.subject.lower()
    ]
    assert "Publish Violation" in (guarded.data / "nats" / "nats-server.log").read_text()


async def test_a_service_that_may_keep_no_facts_leads_all_the_same(guarded: Guarded) -> None:
    async with guarded.bus("placer") as bus:
        assert await Handoff(bus._connection, bus).take_over() == []


async def test_a_fact_on_a_foreign_subject_is_not_read(guarded: Guarded) -> None:
    """An agent that may publish of its node alone puts a plan there."""
    async with guarded.raw(ROGUE) as client, guarded.bus("placer") as bus:
        subject = subject_of(OWN["agent"][0], "n-1")
        for fact in (plan(), lost("n-2"), joined("n-2")):
            await client.client.publish(subject, encode(fact))
        await client.client.publish(subject, encode(joined("n-1")))
        (record,) = await read_all(bus, 1, [subject_of(kind, "*") for kind in OWN["agent"]])
        assert record.event == joined("n-1")
        assert bus.counts.malformed == 3


LIE = ProfileFailed(
    at=0.0,
    job_id=JobId("n-1"),
    placement_id=PlacementId("pf-1"),
    gpu_type=GpuType("v100"),
    node_id=NODES[1],
    reason="a lie",
    final=True,
)
"""of an agent, about a job with its node's name and the measurement of another's"""


async def test_a_measurement_on_the_subject_of_0_1_counts_until_a_service_leads(guarded: Guarded) -> None:
    led = ServiceLed(at=0.0, service="planner", instance=1, token=7, repetition=0)
    async with guarded.raw(ROGUE) as client, guarded.bus("planner") as planner:
        stream = client.client.jetstream()
        await stream.publish("hopyard.profile.n-1.failed", encode(LIE))
        await planner.lead(led, 0)
        await stream.publish("hopyard.profile.n-1.failed", encode(LIE))
        await planner.publish([plan()])
        found = await read_all(planner, 3)
    assert [record.event for record in found] == [LIE, led, plan()]


async def test_the_first_leader_is_known_after_the_stream_dropped_its_fact(guarded: Guarded) -> None:
    """A leader repeats its fact, and older facts go to the archive."""
    led = ServiceLed(at=0.0, service="planner", instance=1, token=7, repetition=0)
    async with guarded.raw(ROGUE) as client, guarded.bus("planner") as planner:
        await planner.lead(led, 0)
        await client.client.jetstream().publish("hopyard.profile.n-1.failed", encode(LIE))
        await planner.renew_lead(msgspec.structs.replace(led, repetition=1), 0)
        async with guarded.bus("monitor") as monitor:
            await monitor.drop(FACTS_STREAM, 1)
            [record] = await read_all(monitor, 1)
            assert (record.seq, monitor.counts.malformed) == (3, 1)


async def test_a_message_with_a_fact_s_id_does_not_keep_the_fact_out_of_a_stream(guarded: Guarded) -> None:
    """The server drops a message with the id of an earlier one of any sender and subject."""
    fact = plan()
    async with (
        guarded.raw(ROGUE) as client,
        guarded.bus("planner") as planner,
        guarded.bus("placer") as placer,
    ):
        stream = client.client.jetstream()
        taken = {"Nats-Msg-Id": fact.event_id}
        await stream.publish(subject_of(OWN["agent"][0], "n-1"), encode(joined("n-1")), headers=taken)
        await planner.publish([fact])
        (record,) = await read_all(placer, 1, [subject_of(type(fact), "*")])
        assert record.event == fact


async def test_a_message_with_a_leader_s_id_does_not_keep_the_service_from_leading(
    guarded: Guarded,
) -> None:
    """Tokens are revisions of the bucket, which an agent sees in replies to its own values."""
    led = ServiceLed(at=0.0, service="planner", instance=1, token=7, repetition=0)
    async with guarded.raw(ROGUE) as client, guarded.bus("planner") as planner:
        taken = {"Nats-Msg-Id": led.event_id}
        subject = subject_of(OWN["agent"][0], "n-1")
        await client.client.jetstream().publish(subject, encode(joined("n-1")), headers=taken)
        await planner.lead(led, 0)
        await planner.publish([plan()])
        assert await planner.still_leads()


async def test_a_fact_that_is_published_twice_is_stored_once(guarded: Guarded) -> None:
    async with guarded.bus("planner") as planner:
        await planner.publish([plan()])
        await planner.publish([plan()])
        assert await planner.last_seq() == 1


async def test_the_heartbeat_of_a_node_comes_from_its_agent_alone(guarded: Guarded) -> None:
    true = Heartbeat(at=1.0, node_id=NODES[0], life="a", workers=())
    lie = Heartbeat(at=1.0, node_id=NODES[1], life="b", workers=())
    async with guarded.bus("monitor") as monitor, guarded.bus(ROGUE) as rogue:
        heard = asyncio.ensure_future(first_two(monitor.listen([Heartbeat])))
        async with asyncio.timeout(LIMIT_S):
            while not heard.done():
                await rogue.send(lie)
                await rogue.send(true)
                await asyncio.sleep(0.05)
        assert heard.result() == (true, true)
        assert monitor.counts.malformed >= 1, "there was a lie between them"


async def first_two(samples: AsyncIterator[Sample]) -> tuple[Sample, Sample]:
    return await anext(samples), await anext(samples)


async def test_all_that_an_agent_does_it_may(guarded: Guarded) -> None:
    name = ROGUE
    async with guarded.bus(ROGUE) as bus:
        await bus.publish([joined("n-1")])
        (record,) = await read_all(bus, 1, subjects_of(OWN["agent"], "n-1"))
        assert record.event == joined("n-1")
        await bus.put(f"cursor/{name}", b"1")
        revision = await bus.put("claim/n-1", b"me", expected=0, ttl_s=5.0)
        assert await bus.get("claim/n-1") == (b"me", revision)
        await bus.save(name, b"state")
        assert await bus.load(name) == b"state"
        await bus.save(name, bytes(2_000_000))
        assert await bus.load(name) == b"state", "one too large is left out"
        ahead, unsure = await bus.time_ahead(time.time)
        assert abs(ahead) <= unsure + 0.1
        assert bus.counts.subjects_refused == 0


async def test_an_agent_reads_facts_about_its_node_in_order_as_they_come(guarded: Guarded) -> None:
    ordered = [stop_ordered(f"job-{number}", place=f"pl-{number}", node_id="n-1") for number in range(250)]
    others = [stop_ordered("job", place=f"pl-{number}", node_id="n-2") for number in range(10)]
    subjects = subjects_of([StopOrdered, NodeJoined], "n-1")
    async with guarded.bus(ROGUE) as bus, guarded.bus("placer") as placer:
        await placer.publish([*ordered[:120], *others, *ordered[120:150]])
        reading = bus.read(20, subjects)
        found: list[Record] = []
        publishing = None
        async with asyncio.timeout(LIMIT_S):
            async for batch in reading:
                found += batch
                if publishing is None and len(found) == 130:
                    publishing = asyncio.create_task(placer.publish(ordered[150:]))
                if len(found) == 230:
                    break
        assert [record.event for record in found] == ordered[20:]
        assert [record.seq for record in found] == sorted({record.seq for record in found})
        assert publishing is not None
        await publishing


async def test_an_agent_reads_on_after_the_server_was_away(guarded: Guarded) -> None:
    async with guarded.bus(ROGUE) as bus, guarded.bus("placer") as placer:
        reading = bus.read(0, subjects_of([StopOrdered], "n-1"))
        await placer.publish([stop_ordered("one", place="pl-1", node_id="n-1")])
        (first,) = await next_records(reading, 1)
        guarded.server.kill()
        await guarded.server.start()
        await placer.publish([stop_ordered("two", place="pl-2", node_id="n-1")])
        (second,) = await next_records(reading, 1)
        assert second.seq == first.seq + 1


async def test_all_that_a_service_does_it_may(guarded: Guarded) -> None:
    async with guarded.bus("planner") as bus:
        await bus.publish([plan()])
        await bus.save("planner", bytes(2_000_000))
        await bus.save("planner", bytes(1_500_000))
        assert await bus.load("planner") == bytes(1_500_000)
        candidate = Candidate(bus, ScaledClock(), Settings(), "planner", first=True)
        assert await candidate.stand()
        await bus.publish([plan()])
        await candidate.release()
        assert bus.counts.subjects_refused == 0


async def test_commands_list_and_release_quarantined_facts(
    guarded: Guarded,
) -> None:
    death = Death(seq=1, subject=joined("n-1").subject, fact="node.joined", error="E: x", deaths=2)
    connection = Connection(guarded.settings(OPERATOR), "cli")
    async with guarded.bus(ROGUE) as agent, guarded.bus("placer") as placer:
        await agent.publish([joined("n-1")])
        for bus, name in ((agent, ROGUE), (placer, "placer")):
            await bus.put(key_of(name), msgspec.json.encode(Quarantine(deaths=(death,))))
        await connection.open(10.0)
        try:
            assert await found_of(connection, ()) == {"placer": (death,), ROGUE: (death,)}
            for name in ("placer", ROGUE):
                assert await released(connection, name, 1)
            assert await found_of(connection, ()) == {}
            with pytest.raises(Invalid, match="there is no service plannr; there are admission, "):
                await released(connection, "plannr", 1)
        finally:
            await connection.close()


@pytest.mark.parametrize(
    "wrong",
    [{}, {"nats_token": "t"}, {"nats_user": "planner", "nats_password": "x"}, {"nats_user": "planner"}],
)
async def test_no_connection_is_accepted_without_credentials(guarded: Guarded, wrong: dict[str, Any]) -> None:
    with pytest.raises(PermissionError, match="refuses these credentials"):
        await JetStreamBus.connect(Settings(nats_url=guarded.server.url, **wrong), "planner", 10.0)


async def test_credentials_that_others_can_read_are_not_shown(guarded: Guarded) -> None:
    account_of(guarded.data, "planner").chmod(0o644)
    with pytest.raises(PermissionError, match="chmod 600"):
        await JetStreamBus.connect(guarded.settings("planner"), "planner", 10.0)


async def test_a_known_account_is_let_in_while_the_server_takes_others(guarded: Guarded) -> None:
    """Some of the connections that began in such a moment were refused."""
    stop = asyncio.Event()

    async def reload() -> None:
        while not stop.is_set():
            guarded.server.take_accounts()
            await asyncio.sleep(0.01)

    async def opened() -> None:
        connection = Connection(guarded.settings("planner"), "planner")
        await connection.open(10.0)
        await connection.close()

    async with asyncio.TaskGroup() as group:
        group.create_task(reload())
        for _ in range(100):
            await asyncio.gather(*(opened() for _ in range(4)))
        stop.set()


async def test_a_node_is_admitted_and_expelled_while_the_server_runs(
    guarded: Guarded, capsys: pytest.CaptureFixture[str]
) -> None:
    before = stamp_of(guarded.data)
    admitted(guarded.data, "n-9")
    assert stamp_of(guarded.data) != before
    with pytest.raises(PermissionError):
        await JetStreamBus.connect(guarded.settings("agent-n-9"), "agent", 10.0)
    for times in (1, 2):
        guarded.server.take_accounts()
        await reloaded(guarded, times)
    settings = guarded.settings("agent-n-9")
    bus = await let_in(settings)
    await bus.publish([joined("n-9")])
    assert expel(guarded.data, "n-9")
    assert not expel(guarded.data, "n-9")
    guarded.server.take_accounts()
    async with asyncio.timeout(LIMIT_S):
        while bus.why_not_stored() != REFUSED:
            await asyncio.sleep(0.05)
    assert not bus.connected()
    others = account_of(guarded.data, "agent-n-9")
    others.touch(mode=0o600)
    others.write_bytes(account_of(guarded.data, AGENTS).read_bytes())
    printed = ""
    async with asyncio.timeout(LIMIT_S):
        while "not of the account agent-n-9" not in printed:
            await asyncio.sleep(0.05)
            printed += capsys.readouterr().out
    others.unlink()
    admitted(guarded.data, "n-9")
    for times in (4, 5):
        guarded.server.take_accounts()
        await reloaded(guarded, times)
    async with asyncio.timeout(LIMIT_S):
        while not bus.connected():  # with the new password, which the same process reads
            await asyncio.sleep(0.05)
        await bus.publish([joined("n-9", life="2")])
    assert not bus.why_not_stored()
    await bus.close()


async def reloaded(guarded: Guarded, times: int) -> None:
    log = guarded.data / "nats" / "nats-server.log"
    async with asyncio.timeout(30.0):
        while log.read_text().count("Reloaded server configuration") < times:
            await asyncio.sleep(0.01)


async def let_in(settings: Settings) -> JetStreamBus:
    """Once the server has looked at its accounts again."""
    async with asyncio.timeout(LIMIT_S):
        while True:
            with contextlib.suppress(PermissionError):
                return await JetStreamBus.connect(settings, "agent", 10.0)
            await asyncio.sleep(0.05)


def test_an_account_has_the_same_credentials_for_as_long_as_it_is_there(tmp_path: Path) -> None:
    first = admitted(tmp_path, "n-1").read_bytes()
    assert admitted(tmp_path, "n-1").read_bytes() == first
    assert first != admitted(tmp_path, "n-2").read_bytes()
    expel(tmp_path, "n-1")
    assert admitted(tmp_path, "n-1").read_bytes() != first


def test_an_expelled_node_stays_out_after_a_restart_until_it_is_admitted(tmp_path: Path) -> None:
    nodes = [NodeId("n-1"), NodeId("n-2")]
    ensure_accounts(tmp_path, nodes)
    assert expel(tmp_path, "n-1")
    ensure_accounts(tmp_path, nodes)
    assert [account_of(tmp_path, f"agent-{node}").exists() for node in nodes] == [False, True]
    assert [is_expelled(tmp_path, node) for node in nodes] == [True, False]
    admitted(tmp_path, "n-1")
    assert not is_expelled(tmp_path, "n-1")


@pytest.mark.parametrize("name", ["../planner", "a.b", "*", ">", "", "N", "a b"])
def test_an_invalid_node_name_is_not_admitted(tmp_path: Path, name: str) -> None:
    with pytest.raises(Invalid, match="the name of a node has"):
        admitted(tmp_path, name)
    assert not folder_of(tmp_path).exists()


def test_an_agent_named_like_a_service_is_one_agent_all_the_same() -> None:
    assert permissions_of("agent-planner").publish != permissions_of("planner").publish
    assert not any(".plan." in subject for subject in permissions_of("agent-planner").publish)


PAIR = Path(__file__).parents[3] / "hopyard" / "api" / "certificate"


async def test_nats_speaks_tls_with_clients_that_trust_its_certificate(tmp_path: Path) -> None:
    certificate, key = str(PAIR / "certificate.pem"), str(PAIR / "key.pem")
    ensure_accounts(tmp_path)
    server = NatsServer(tmp_path / "nats", accounts=lambda: accounts_in(tmp_path), tls=(certificate, key))
    await server.start()
    own = str(account_of(tmp_path, "admission"))
    known = Settings(
        nats_url=server.url, nats_credentials=own, nats_authority=certificate, nats_server_name="localhost"
    )
    try:
        bus = await JetStreamBus.connect(known, "admission", 10.0)
        assert await bus.last_seq() == 0
        await bus.close()
        for unconvinced in (
            {"nats_authority": ""},
            {"nats_server_name": ""},
            {"nats_server_name": "another"},
        ):
            with pytest.raises(Unavailable, match="its certificate is not valid here: "):
                await JetStreamBus.connect(msgspec.structs.replace(known, **unconvinced), "admission", 2.0)
        for unusable in (str(tmp_path / "none"), key):
            with pytest.raises(Unavailable, match=f": {unusable}: "):
                await JetStreamBus.connect(
                    msgspec.structs.replace(known, nats_authority=unusable), "admission", 0.2
                )
    finally:
        await server.stop()
