import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.errors import TimeoutError as NatsTimeoutError

from schemas.base import Sample
from schemas.samples import Heartbeat, ThroughputObserved
from schemas.subjects import SAMPLE_PREFIX
from shared.runtime.bus.contract import Bus, Unavailable
from tests.bus_nets import LIMIT_S, LISTENER_QUEUE, JetStreamNet, LiveNats, Net
from tests.services.estimator.estimator_builders import observed
from tests.shared.runtime.bus.bus_build import heartbeat, until


async def _listening(bus: Bus, *kinds: type[Heartbeat] | type[ThroughputObserved]) -> AsyncIterator[Sample]:
    """What is sent from now on, of these kinds; it is certain that somebody listens."""
    samples, sent = bus.listen(kinds), 0
    heard = asyncio.ensure_future(anext(samples))
    async with asyncio.timeout(LIMIT_S):
        while not heard.done():
            sent -= 1
            await bus.send(heartbeat(at=sent) if kinds[0] is Heartbeat else observed(at=sent))
            await asyncio.wait([heard], timeout=0.05)
        while (await heard).at != sent:
            heard = asyncio.ensure_future(anext(samples))
    return samples


async def _next_of(samples: AsyncIterator[Sample]) -> Sample:
    async with asyncio.timeout(LIMIT_S):
        return await anext(samples)


async def test_a_listener_hears_the_kinds_it_asks_for(net: Net) -> None:
    bus, other = await net.client(), await net.client("other")
    deaf = asyncio.ensure_future(anext(await _listening(other, ThroughputObserved)))
    samples = await _listening(bus, Heartbeat, ThroughputObserved)
    await bus.send(heartbeat(at=3.0))
    assert await _next_of(samples) == heartbeat(at=3.0)
    assert not deaf.done()
    deaf.cancel()
    await asyncio.gather(deaf, return_exceptions=True)


async def test_a_slow_listener_loses_the_oldest_and_counts_them(net: Net) -> None:
    bus, sender = await net.client(), await net.client("sender")
    samples = await _listening(bus, Heartbeat)
    for number in range(LISTENER_QUEUE + 10):
        await sender.send(heartbeat(at=float(number)))
    await until(lambda: bus.counts.samples_lost == 10)
    assert (await _next_of(samples)).at == 10.0


async def test_a_malformed_sample_goes_to_the_dead_letters(live: JetStreamNet) -> None:
    bus = await live.client()
    samples = await _listening(bus, Heartbeat)
    await live.store(f"{SAMPLE_PREFIX}.heartbeat.n-1", b"\x01")
    async with asyncio.timeout(LIMIT_S):
        while not bus.counts.malformed:  # what another connection sends may overtake it
            await bus.send(heartbeat())
            assert await _next_of(samples) == heartbeat()
    assert bus.counts.malformed == 1
    assert [data for _, data in await live.dead_letters()] == [b"\x01"]


async def test_samples_are_lost_in_silence_while_the_server_is_away(
    live: JetStreamNet, nats: LiveNats
) -> None:
    bus = await live.client()
    samples = await _listening(bus, Heartbeat)
    nats.kill()
    await until(lambda: not bus.connected())
    await bus.send(heartbeat(at=1.0))
    assert bus.counts.samples_lost == 1
    await nats.restart()
    await until(bus.connected)
    await bus.send(heartbeat(at=2.0))
    assert await _next_of(samples) == heartbeat(at=2.0)


async def test_a_listener_that_cannot_begin_leaves_no_subscription(
    live: JetStreamNet, monkeypatch: pytest.MonkeyPatch
) -> None:
    bus = await live.client()
    client = bus._connection.nats
    before, subscribe = set(client._subs), client.subscribe
    made: list[Subscription] = []

    async def once(subject: str, cb: Callable[[Msg], Awaitable[None]]) -> Subscription:
        if made:
            raise NatsTimeoutError
        made.append(await subscribe(subject, cb=cb))
        return made[0]

    monkeypatch.setattr(client, "subscribe", once)
    with pytest.raises(Unavailable, match="listen"):
        await anext(bus.listen([Heartbeat, ThroughputObserved]))
    assert made
    assert set(client._subs) == before
