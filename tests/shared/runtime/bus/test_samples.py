import asyncio

from schemas.base import Sample
from schemas.samples import Heartbeat, ThroughputObserved
from schemas.subjects import SAMPLE_PREFIX
from shared.runtime.bus.contract import Bus
from tests.bus_nets import LIMIT_S, LISTENER_QUEUE, JetStreamNet, LiveNats, Net
from tests.shared.runtime.bus.bus_build import heartbeat, until


async def _listening(bus: Bus, *kinds: type[Heartbeat] | type[ThroughputObserved]) -> asyncio.Future[Sample]:
    """The first sample a listener hears; returns once it listens."""
    first = asyncio.ensure_future(anext(bus.listen(kinds)))
    await asyncio.sleep(0.05)
    return first


async def test_a_listener_hears_the_kinds_it_asks_for(net: Net) -> None:
    bus, other = await net.client(), await net.client("other")
    deaf = await _listening(other, ThroughputObserved)
    heard = await _listening(bus, Heartbeat, ThroughputObserved)
    await bus.send(heartbeat(at=3.0))
    assert await asyncio.wait_for(heard, LIMIT_S) == heartbeat(at=3.0)
    assert not deaf.done()
    deaf.cancel()
    await asyncio.gather(deaf, return_exceptions=True)


async def test_a_slow_listener_loses_the_oldest_and_counts_them(net: Net) -> None:
    bus, sender = await net.client(), await net.client("sender")
    samples = bus.listen([Heartbeat])
    first = asyncio.ensure_future(anext(samples))
    await asyncio.sleep(0.05)
    await sender.send(heartbeat(at=-1.0))
    await asyncio.wait_for(first, LIMIT_S)
    for number in range(LISTENER_QUEUE + 10):
        await sender.send(heartbeat(at=float(number)))
    await until(lambda: bus.counts.samples_lost == 10)
    assert (await anext(samples)).at == 10.0


async def test_a_malformed_sample_goes_to_the_dead_letters(live: JetStreamNet) -> None:
    bus = await live.client()
    heard = await _listening(bus, Heartbeat)
    await live.store(f"{SAMPLE_PREFIX}.heartbeat.n-1", b"\x01")
    await bus.send(heartbeat())
    assert await asyncio.wait_for(heard, LIMIT_S) == heartbeat()
    assert bus.counts.malformed == 1
    assert [data for _, data in await live.dead_letters()] == [b"\x01"]


async def test_samples_are_lost_in_silence_while_the_server_is_away(
    live: JetStreamNet, nats: LiveNats
) -> None:
    bus = await live.client()
    heard = await _listening(bus, Heartbeat)
    nats.kill()
    await until(lambda: not bus.connected())
    await bus.send(heartbeat(at=1.0))
    assert bus.counts.samples_lost == 1
    await nats.restart()
    await until(bus.connected)
    await bus.send(heartbeat(at=2.0))
    assert await asyncio.wait_for(heard, LIMIT_S) == heartbeat(at=2.0)
