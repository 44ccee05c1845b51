"""Of the instances of a service one leads, and what another says is refused: over a real server."""

import asyncio

import pytest
from msgspec.structs import replace
from nats.errors import TimeoutError as NatsTimeoutError
from nats.js.api import PubAck

from schemas.base import Event
from schemas.events import JobCancelled, ServiceLed
from schemas.ids import JobId
from schemas.questions import MONITOR, Refused, ShowStatus
from schemas.settings import Settings
from schemas.subjects import FACT_SUBJECTS, FACTS_STREAM
from shared.runtime.bus.contract import Fenced, Unavailable
from shared.runtime.bus.jetstream import JetStreamBus
from shared.runtime.bus.jetstream import leading as leading_module
from shared.runtime.bus.jetstream.encoded_facts import EncodedFact
from shared.runtime.bus.jetstream.leading import Leading
from shared.runtime.clock import ScaledClock
from shared.runtime.leadership import Candidate, Deposed
from shared.runtime.service import Inbox, Ports
from shared.runtime.shell.shell import IN_DOUBT, Shell
from tests.bus_nets import JetStreamNet, LiveNats
from tests.processes import standing_still
from tests.shared.runtime.bus.bus_build import until
from tests.shared.runtime.shell.stages import NAME, Restorer, Set

LEASE_S = 1.0
LIMIT_S = 60.0
PLACER = "placer"


def candidate(bus: JetStreamBus, instance: int = 1, *, first: bool = False) -> Candidate:
    settings = Settings(instance=instance, lease_real_s=LEASE_S)
    return Candidate(bus, ScaledClock(), settings, PLACER, first=first)


def cancelled(job: str) -> JobCancelled:
    return JobCancelled(at=1.0, job_id=JobId(job))


async def leading(one: Candidate) -> None:
    async with asyncio.timeout(LIMIT_S):
        while not await one.stand():
            await asyncio.sleep(0.05)


async def led_by_a_fact_that_is_gone(live: JetStreamNet) -> JetStreamBus:
    bus = await live.client()
    led = ServiceLed(at=1.0, service=PLACER, instance=1, token=1, repetition=0)
    await bus.lead(led, await bus.led_last(PLACER))
    await bus._connection.js.purge_stream(FACTS_STREAM, subject=led.subject)
    return bus


async def log_of(bus: JetStreamBus) -> list[Event]:
    found: list[Event] = []
    last = await bus.last_seq()
    async for batch in bus.read(0, FACT_SUBJECTS):
        found += [record.event for record in batch]
        if batch.last >= last:
            break
    return found


async def test_one_candidate_leads_and_the_other_waits(live: JetStreamNet) -> None:
    one, other = candidate(await live.client()), candidate(await live.client(), 2)
    assert await one.stand()
    assert not await other.stand()
    assert other.follows


async def test_a_leader_that_slept_while_another_led_cannot_publish(live: JetStreamNet) -> None:
    sleeper, waker = await live.client(), await live.client()
    one, other = candidate(sleeper), candidate(waker, 2)
    await leading(one)
    await sleeper.publish([cancelled("job-1")])
    await leading(other)  # after the lease of the one that sleeps has run out
    await waker.publish([cancelled("job-2")])
    for late in (cancelled("job-3"), cancelled("job-2")):  # its own, and one that is stored already
        with pytest.raises(Fenced):
            await sleeper.publish([late])
    async with asyncio.timeout(LIMIT_S):
        with pytest.raises(Deposed):
            await one.hold()
    facts = await log_of(waker)
    assert [fact.job_id for fact in facts if isinstance(fact, JobCancelled)] == ["job-1", "job-2"]
    assert [fact.instance for fact in facts if isinstance(fact, ServiceLed)] == [1, 2]
    tokens = [fact.token for fact in facts if isinstance(fact, ServiceLed)]
    assert tokens == sorted(set(tokens))


async def test_a_candidate_that_began_to_lead_too_late_is_fenced(live: JetStreamNet) -> None:
    """It slept between the lease and the fact that it leads."""
    slow, quick = await live.client(), await live.client()
    before = await slow.led_last(PLACER)
    await leading(candidate(quick, 2))
    with pytest.raises(Fenced):
        await slow.lead(ServiceLed(at=1.0, service=PLACER, instance=1, token=1, repetition=0), before)
    await quick.publish([cancelled("job-1")])


async def test_a_leader_in_doubt_does_nothing_until_it_has_renewed(live: JetStreamNet) -> None:
    one = candidate(await live.client())
    await leading(one)
    await asyncio.sleep(LEASE_S)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await one.until_sure()
    holding = asyncio.create_task(one.hold())
    async with asyncio.timeout(LIMIT_S):
        await one.until_sure()
    holding.cancel()


async def test_a_leader_in_doubt_says_why_it_does_nothing(live: JetStreamNet, nats: LiveNats) -> None:
    given: asyncio.Future[Inbox] = asyncio.get_running_loop().create_future()

    async def take(inbox: Inbox) -> None:
        given.set_result(inbox)
        await asyncio.Future()

    ports = Ports(bus=(bus := await live.client(NAME)), clock=(clock := ScaledClock()))
    settings = Settings(lease_real_s=LEASE_S)
    service = replace(Set().service(Restorer(), ports), tasks=(take,))
    one = Candidate(bus, clock, settings, NAME, first=False)
    running = asyncio.create_task(Shell(service, ports, settings, candidate=one).run())
    inbox = await asyncio.wait_for(given, LIMIT_S)
    await until(lambda: not inbox.why_idle())
    with standing_still(nats.pid):
        await until(lambda: inbox.why_idle() == IN_DOUBT)
    await until(lambda: not inbox.why_idle())
    running.cancel()
    await asyncio.wait({running})


async def test_a_lease_that_ran_out_while_nobody_else_led_is_taken_up_again(live: JetStreamNet) -> None:
    bus = await live.client()
    one = candidate(bus)
    await leading(one)
    async with asyncio.timeout(LIMIT_S):
        while await bus.get(f"lease/{PLACER}") is not None:
            await asyncio.sleep(0.05)
    holding = asyncio.create_task(one.hold())
    async with asyncio.timeout(LIMIT_S):
        await one.until_sure()
    await bus.publish([cancelled("job-1")])
    holding.cancel()


class Uncertain(JetStreamBus):
    """Does not say at once who has led since."""

    asked = 0

    async def still_leads(self) -> bool:
        self.asked += 1
        if self.asked == 1:
            raise Unavailable("no answer")
        return await super().still_leads()


class Unconfirmed(Leading):
    """Its first renewal of the lead is stored, and the confirmation is lost."""

    lost = 0

    async def _send(self, fact: EncodedFact, headers: dict[str, str]) -> PubAck:
        ack = await super()._send(fact, headers)
        if self._connection.fence is not None and not self.lost:
            self.lost += 1
            raise NatsTimeoutError
        return ack


class Slow(Leading):
    """Its renewals of the lead are stored at once, and confirmed when the test says so."""

    was_stored: asyncio.Event
    confirmed: asyncio.Event

    async def _send(self, fact: EncodedFact, headers: dict[str, str]) -> PubAck:
        ack = await super()._send(fact, headers)
        if self._connection.fence is not None:
            self.was_stored.set()
            await self.confirmed.wait()
        return ack


async def test_a_leader_whose_renewal_was_not_confirmed_leads_on(live: JetStreamNet) -> None:
    """One server refuses the second attempt before it looks at its id: that deposed the leader."""
    bus = await live.client()
    leads = bus._leading
    leads.__class__ = Unconfirmed
    led = ServiceLed(at=1.0, service=PLACER, instance=1, token=1, repetition=0)
    await bus.lead(led, await bus.led_last(PLACER))
    assert await bus.renew_lead(replace(led, repetition=1), 0)
    assert isinstance(leads, Unconfirmed)
    assert leads.lost == 1
    await bus.publish([cancelled("job-1")])
    said = [fact.repetition for fact in await log_of(bus) if isinstance(fact, ServiceLed)]
    assert said == [0, 1]


async def test_a_leader_that_renews_its_lead_too_late_is_refused(live: JetStreamNet) -> None:
    slow, quick = await live.client(), await live.client()
    led = ServiceLed(at=1.0, service=PLACER, instance=1, token=1, repetition=0)
    await slow.lead(led, await slow.led_last(PLACER))
    await quick.lead(replace(led, instance=2, token=2), await quick.led_last(PLACER))
    with pytest.raises(Fenced):
        await slow.renew_lead(replace(led, repetition=1), 0)


async def test_a_leader_is_fenced_by_an_unreadable_message_after_its_fact(live: JetStreamNet) -> None:
    """It tried to renew its lead for ever, and published nothing meanwhile."""
    bus = await live.client()
    led = ServiceLed(at=1.0, service=PLACER, instance=1, token=1, repetition=0)
    await bus.lead(led, await bus.led_last(PLACER))
    await bus._connection.js.publish(led.subject, b"\xc1")
    async with asyncio.timeout(LIMIT_S):
        with pytest.raises(Fenced):
            await bus.renew_lead(replace(led, repetition=1), 0)
        with pytest.raises(Fenced):
            await bus.publish([cancelled("job-1")])


async def test_a_leader_without_its_fact_is_in_doubt_for_a_limited_time(
    live: JetStreamNet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server finds nothing for a while where its disk is gone, and for ever where the fact is lost."""
    monkeypatch.setattr(leading_module, "MISSING_S", 0.5)
    bus = await led_by_a_fact_that_is_gone(live)
    with pytest.raises(Unavailable, match="its disk may be gone"):
        await bus.still_leads()
    async with asyncio.timeout(LIMIT_S):
        with pytest.raises(Fenced):
            await bus.publish([cancelled("job-1")])
    assert not await bus.still_leads()


async def test_a_leader_whose_fact_is_gone_does_not_lead_on_because_it_seldom_looks(
    live: JetStreamNet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the server answered so late, each look counted as the first."""
    bus = await led_by_a_fact_that_is_gone(live)
    monkeypatch.setattr(leading_module, "MISSING_S", 0.01)
    for _ in range(leading_module.MISSING_LOOKS):
        with pytest.raises(Unavailable, match="its disk may be gone"):
            await bus.still_leads()
        await asyncio.sleep(0.02)
    assert not await bus.still_leads()


async def test_a_leader_whose_fact_is_gone_does_not_try_for_ever_to_renew_its_lead(
    live: JetStreamNet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leading_module, "MISSING_S", 0.01)
    bus = await led_by_a_fact_that_is_gone(live)
    async with asyncio.timeout(LIMIT_S):
        with pytest.raises(Fenced):
            await bus.renew_lead(ServiceLed(at=2.0, service=PLACER, instance=1, token=1, repetition=1), 0)


async def test_a_fact_that_is_missing_now_and_then_is_no_fact_that_is_gone(
    live: JetStreamNet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between two looks at which it was missing lay an hour, and the leader was deposed at the second."""
    bus = await led_by_a_fact_that_is_gone(live)
    monkeypatch.setattr(leading_module, "MISSING_S", 0.2)
    for _ in range(3):
        with pytest.raises(Unavailable, match="its disk may be gone"):
            await bus.still_leads()
        await asyncio.sleep(0.3)


async def test_a_leader_is_not_deposed_by_its_own_renewal_before_it_is_confirmed(live: JetStreamNet) -> None:
    bus = await live.client()
    leads = bus._leading
    leads.__class__ = Slow
    led = ServiceLed(at=1.0, service=PLACER, instance=1, token=1, repetition=0)
    await bus.lead(led, await bus.led_last(PLACER))
    assert isinstance(leads, Slow)
    leads.was_stored, leads.confirmed = asyncio.Event(), asyncio.Event()
    renewing = asyncio.create_task(bus.renew_lead(replace(led, repetition=1), 0))
    await leads.was_stored.wait()
    with pytest.raises(Unavailable, match="renews its lead"):
        await bus.still_leads()
    leads.confirmed.set()
    assert await renewing
    assert await bus.still_leads()


async def test_winning_the_lease_again_does_not_restore_a_superseded_leader(live: JetStreamNet) -> None:
    """Another led meanwhile and is gone; that it did was not to be learnt at the first attempt."""
    bus = await live.client()
    bus.__class__ = Uncertain
    one, other = candidate(bus), candidate(await live.client(), 2)
    await leading(one)
    await leading(other)
    async with asyncio.timeout(LIMIT_S):
        while await bus.get(f"lease/{PLACER}") is not None:
            await asyncio.sleep(0.05)
    sure = asyncio.create_task(one.until_sure())
    async with asyncio.timeout(LIMIT_S):
        with pytest.raises(Deposed):
            await one.hold()
    assert not sure.done()
    sure.cancel()


class WithoutLeases(JetStreamBus):
    """The servers that hold leases elect a leader; those that hold facts have one."""

    async def put(self, key: str, *_: object, **__: object) -> int:
        raise Unavailable(f"nobody stores {key}")


async def test_a_leader_without_a_renewable_lease_goes_on_while_the_stream_confirms_it(
    live: JetStreamNet,
) -> None:
    bus = await live.client()
    one = candidate(bus)
    await leading(one)
    bus.__class__ = WithoutLeases
    await asyncio.sleep(LEASE_S)
    holding = asyncio.create_task(one.hold())
    async with asyncio.timeout(LIMIT_S):
        await one.until_sure()
        await leading(candidate(await live.client(), 2))
    await asyncio.sleep(LEASE_S)  # longer than it was sure for
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.5):
            await one.until_sure()
    holding.cancel()


async def test_a_leader_that_releases_its_lease_is_replaced_at_once(live: JetStreamNet) -> None:
    one, other = candidate(await live.client()), candidate(await live.client(), 2)
    await leading(one)
    await one.release()
    assert await other.stand()


async def test_the_next_process_of_an_instance_takes_over_from_the_last_one(live: JetStreamNet) -> None:
    before, after = await live.client(), await live.client()
    await leading(candidate(before))
    assert not await candidate(after).stand()
    assert await candidate(after, first=True).stand()
    with pytest.raises(Fenced):
        await before.publish([cancelled("job-1")])


async def test_questions_go_to_the_leader_and_not_to_a_sleeping_instance(live: JetStreamNet) -> None:
    """See tests/live for processes: here the sleeper's subscription stands, and nobody answers behind it."""
    asleep, awake, asker = await live.client(), await live.client(), await live.client()

    async def sleep(_: object) -> Refused:
        await asyncio.sleep(LIMIT_S)
        return Refused(reason="too late")

    async def answer(_: object) -> Refused:
        return Refused(reason="awake")

    await leading(candidate(asleep))
    await asleep.serve("monitor", MONITOR, sleep)
    await leading(candidate(awake, 2))
    await awake.serve("monitor", MONITOR, answer)
    for _ in range(10):
        try:
            assert await asker.ask(ShowStatus(), 10.0) == Refused(reason="awake")
        except Unavailable:
            pytest.fail("the one that sleeps was asked alone")
