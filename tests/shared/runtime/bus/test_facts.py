import asyncio

import pytest
from msgspec.structs import replace

from schemas.codec import encode
from schemas.events import JobCancelled, JobFailed, NodeDrained, NodeLost, WorkerStarted
from schemas.ids import JobId, PlacementId
from schemas.subjects import FACT_SUBJECTS, facts_of, subjects_of
from shared.runtime.bus.contract import Bus, Unavailable
from shared.runtime.bus.jetstream import consumer
from shared.runtime.damage import Damaged
from tests.bus_nets import LIMIT_S, JetStreamNet, LiveNats, Net
from tests.fact_builders import submitted
from tests.shared.runtime.bus.bus_build import (
    cancelled,
    drained,
    jobs,
    next_records,
    opened,
    read_all,
    until,
)


async def test_facts_come_back_in_the_order_they_were_published(net: Net) -> None:
    bus = await net.client()
    await bus.publish([cancelled(n) for n in range(1_200)])
    assert jobs(await read_all(bus, 1_200)) == [str(n) for n in range(1_200)]
    assert bus.counts.readers_restarted == 0


async def test_every_reader_sees_the_same_sequences(net: Net) -> None:
    one, other = await net.client("one"), await net.client("other")
    await asyncio.gather(one.publish([cancelled(1), cancelled(2)]), other.publish([cancelled(3)]))
    assert await read_all(one, 3) == await read_all(other, 3)


async def test_a_fact_reaches_a_waiting_reader_long_before_its_wait_ends(
    net: Net, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumer, "PULL_S", 10 * LIMIT_S)
    bus = await net.client()
    reading = asyncio.create_task(read_all(bus, 1))
    await asyncio.sleep(0.1)
    await bus.publish([cancelled()])
    assert jobs(await reading) == ["j"]


async def test_a_reader_starts_after_the_place_it_names(net: Net) -> None:
    bus = await net.client()
    await bus.publish([cancelled(n) for n in range(5)])
    assert jobs(await next_records(bus.read(3, FACT_SUBJECTS), 2)) == ["3", "4"]


async def test_a_fact_published_twice_is_stored_once(net: Net) -> None:
    bus = await net.client()
    await bus.publish([cancelled("a", at=1.0), cancelled("b")])
    await bus.publish([cancelled("a", at=2.0), cancelled("c")])
    assert jobs(await read_all(bus, 3)) == ["a", "b", "c"]
    assert await bus.last_seq() == 3


async def test_a_reader_gets_only_its_subjects(net: Net) -> None:
    bus = await net.client()
    await bus.publish([cancelled("a"), drained("n"), cancelled("b")])
    assert jobs(await read_all(bus, 2, facts_of("job"))) == ["a", "b"]
    assert [record.seq for record in await read_all(bus, 1, ["hopyard.node.n.*"])] == [2]


async def test_a_reader_of_several_kinds_gets_those_and_no_others(net: Net) -> None:
    bus = await net.client()
    await bus.publish([cancelled("a"), drained("n"), *(opened(n) for n in range(600)), cancelled("b")])
    records = await read_all(bus, 3, facts_of("job", "node"))
    assert [record.seq for record in records] == [1, 2, 603]


async def test_a_reader_of_some_kinds_of_fact_gets_those_and_no_others(net: Net) -> None:
    bus = await net.client()
    await bus.publish([cancelled("a"), opened(1), drained("n"), opened(2), drained("m")])
    of_all = await read_all(bus, 3, subjects_of([JobCancelled, NodeDrained]))
    assert [record.seq for record in of_all] == [1, 3, 5]
    of_one = await read_all(bus, 1, subjects_of([NodeDrained, NodeLost, WorkerStarted], "m"))
    assert [record.seq for record in of_one] == [5]


async def test_facts_on_other_subjects_do_not_wake_a_reader(net: Net) -> None:
    bus = await net.client()
    waiting = asyncio.ensure_future(anext(bus.read(0, ["hopyard.worker.n.*"])))
    await bus.publish([cancelled("a"), drained("n")])
    await asyncio.sleep(0.1)
    assert not waiting.done()
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)


async def test_a_new_client_reads_facts_published_before_it_came(net: Net) -> None:
    first = await net.client()
    await first.publish([cancelled("a")])
    await first.close()
    assert jobs(await read_all(await net.client(), 1)) == ["a"]


async def test_facts_are_fetched_by_their_sequences(net: Net) -> None:
    bus = await net.client()
    await bus.publish([cancelled(n) for n in range(300)])
    wanted = [2, 3, 200, 299, 300]
    found = await bus.fetch(wanted)
    assert [record.seq for record in found] == wanted
    assert found == [record for record in await read_all(bus, 300) if record.seq in wanted]
    assert len(await bus.fetch(range(1, 301))) == 300


async def test_missing_sequences_are_left_out(net: Net) -> None:
    bus = await net.client()
    await bus.publish([cancelled("a")])
    await net.store("hopyard.job.a.cancelled", b"\x01\x02")
    assert jobs(await bus.fetch([0, 1, 2, 3, 1_000])) == ["a"]
    assert await bus.fetch([]) == []


async def test_an_empty_stream_ends_at_zero(net: Net) -> None:
    assert await (await net.client()).last_seq() == 0


async def test_a_fact_above_the_limit_is_refused_and_the_bus_lives_on(net: Net) -> None:
    bus = await net.client()
    noise = "".join(chr(0x4E00 + n * 7919 % 20_000) for n in range(800_000))
    huge = JobFailed(at=0.0, job_id=JobId("a"), placement_id=PlacementId("p"), reason=noise)
    with pytest.raises(ValueError, match=r"job.failed/p is \d+ bytes"):
        await bus.publish([cancelled("b"), huge])
    assert await bus.last_seq() == 0
    await bus.publish([cancelled("c")])
    assert await bus.last_seq() == 1


async def test_a_malformed_message_goes_to_the_dead_letters(net: Net) -> None:
    bus = await net.client()
    await net.store("hopyard.job.a.cancelled", b"\x01\x02")
    await bus.publish([cancelled("b")])
    assert jobs(await read_all(bus, 1)) == ["b"]
    assert bus.counts.malformed == 1
    [(reason, data)] = await net.dead_letters()
    assert reason.startswith("Expected `object`")
    assert data == b"\x01\x02"


async def test_a_foreign_dead_letter_with_the_same_number_takes_no_other_s_place(live: JetStreamNet) -> None:
    bus = await live.client()
    await live.put_letter(b"of another", "service/1")
    await live.store("hopyard.job.a.cancelled", b"\x01\x02")
    for _ in range(2):  # a service that starts again reads it again
        await anext(bus.read(0, facts_of("job")))
    await live.letters(2)
    assert (await live.dead_letters())[-1][1] == b"\x01\x02"


async def test_an_impossible_fact_goes_to_the_dead_letters_and_readers_pass_it(net: Net) -> None:
    bus = await net.client()
    nowhere = encode(submitted("a", demand=()))
    await net.store("hopyard.job.a.submitted", nowhere)
    batch = await anext(bus.read(0, facts_of("job")))
    assert (list(batch), batch.last, bus.counts.malformed) == ([], 1, 1)
    [(reason, data)] = await net.dead_letters()
    assert "demand" in reason
    assert data == nowhere


async def test_how_far_a_reader_comes(net: Net) -> None:
    bus = await net.client()
    assert await bus.newest(facts_of("job")) == 0
    await bus.publish([cancelled("b"), drained("n"), cancelled("c"), drained("m")])
    reaches = await bus.newest(facts_of("job"))
    last = 0
    async for batch in bus.read(0, facts_of("job")):
        last = batch.last
        if last >= reaches:
            break
    assert 3 <= reaches <= last


async def test_a_fact_of_a_later_version_is_counted_and_skipped(net: Net) -> None:
    bus = await net.client()
    await net.store("hopyard.job.a.teleported", encode(cancelled()).replace(b"cancelled", b"confirmed"))
    await bus.publish([cancelled("b")])
    assert jobs(await read_all(bus, 1)) == ["b"]
    assert (bus.counts.facts_unknown, bus.counts.malformed) == (1, 0)


async def test_a_closed_bus_ends_its_readers(net: Net) -> None:
    bus = await net.client()
    waiting = asyncio.ensure_future(anext(bus.read(0, FACT_SUBJECTS)))
    await asyncio.sleep(0.05)
    await bus.close()
    with pytest.raises(Unavailable):
        await asyncio.wait_for(waiting, LIMIT_S)
    assert not bus.connected()


async def _tell_one_by_one(bus: Bus, count: int) -> None:
    for number in range(count):
        await bus.publish([cancelled(number)])


async def test_an_idle_reader_keeps_its_consumer(live: JetStreamNet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumer, "PULL_S", 0.2)
    bus = await live.client()
    reading = asyncio.create_task(read_all(bus, 1))
    await asyncio.sleep(0.7)
    await bus.publish([cancelled("a")])
    assert jobs(await reading) == ["a"]
    assert bus.counts.readers_restarted == 0


async def test_large_facts_come_in_smaller_batches(
    live: JetStreamNet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumer, "PULL_BYTES", 1_000)
    bus = await live.client()
    await bus.publish([cancelled(n) for n in range(50)])
    assert jobs(await read_all(bus, 50)) == [str(n) for n in range(50)]
    assert bus.counts.readers_restarted == 0


async def test_a_killed_server_loses_and_repeats_no_fact(live: JetStreamNet, nats: LiveNats) -> None:
    writer, reader = await live.client("writer"), await live.client("reader")
    batches = reader.read(0, FACT_SUBJECTS)
    telling = asyncio.create_task(_tell_one_by_one(writer, 300))
    records = await next_records(batches, 50)
    await nats.restart()
    records += await next_records(batches, 300 - len(records))
    await telling
    assert jobs(records) == [str(n) for n in range(300)]
    assert [record.seq for record in records] == list(range(1, 301))


async def test_a_batch_cut_by_a_crash_is_stored_in_order(live: JetStreamNet, nats: LiveNats) -> None:
    bus = await live.client()
    telling = asyncio.create_task(bus.publish([cancelled(n) for n in range(1_000)]))
    await next_records(bus.read(0, FACT_SUBJECTS), 100)
    await nats.restart()
    await asyncio.wait_for(telling, LIMIT_S)
    assert jobs(await read_all(bus, 1_000)) == [str(n) for n in range(1_000)]
    assert await bus.last_seq() == 1_000


async def test_publishing_waits_while_the_server_is_away(live: JetStreamNet, nats: LiveNats) -> None:
    bus = await live.client()
    nats.kill()
    await until(lambda: not bus.connected())
    telling = asyncio.create_task(bus.publish([cancelled("a")]))
    with pytest.raises(Unavailable):
        await bus.last_seq()
    assert not telling.done()
    await nats.restart()
    await asyncio.wait_for(telling, LIMIT_S)
    assert jobs(await read_all(bus, 1)) == ["a"]


@pytest.mark.parametrize(
    ("name", "allowed", "error"),
    [("service", False, Damaged), ("service", True, RuntimeError), ("agent-a", False, RuntimeError)],
)
async def test_a_reader_of_another_stream_gets_an_error(
    live: JetStreamNet, name: str, error: type[Exception], *, allowed: bool
) -> None:
    live.settings = replace(live.settings, allow_lost_facts=allowed)
    bus = await live.client(name)
    with pytest.raises(error, match=f"ends at fact 0, and {name} has read it up to 7"):
        await anext(bus.read(7, FACT_SUBJECTS))


async def test_a_reader_of_a_stream_that_was_too_short_does_not_go_on_past_other_facts(
    live: JetStreamNet,
) -> None:
    """It waits for several servers to repair the stream; then its process begins again, and compares."""
    bus, other = await live.client(), await live.client("other")
    bus._connection.settings = replace(live.settings, nats_replicas=3)
    reading = asyncio.ensure_future(anext(bus.read(2, FACT_SUBJECTS)))
    await until(lambda: bus.counts.readers_restarted > 1)
    await other.publish([cancelled("a"), cancelled("b"), cancelled("c")])
    with pytest.raises(RuntimeError, match=r"ended before fact 2 for a while, .* service has to begin again"):
        await asyncio.wait_for(reading, LIMIT_S)
