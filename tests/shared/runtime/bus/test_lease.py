"""Leases on both buses: one holder at a time, and a token that grows."""

import asyncio

from shared.runtime.bus.contract import Bus, Unavailable
from shared.runtime.lease import Lease
from tests.bus_nets import Net

TTL_S = 1.0
KEY = "lease/test"


def lease(bus: Bus, holder: str) -> Lease:
    return Lease(bus, KEY, holder.encode(), ttl_s=TTL_S)


async def test_a_lease_is_held_until_it_is_released(net: Net) -> None:
    one, other = lease(await net.client(), "one"), lease(await net.client(), "other")
    token = await one.win()
    assert token is not None
    assert await other.win() is None
    assert not other.held
    assert await one.renew()
    await one.release()
    later = await other.win()
    assert later is not None
    assert later > token


async def test_one_of_many_concurrent_candidates_wins(net: Net) -> None:
    clients = [await net.client() for _ in range(4)]
    tokens = await asyncio.gather(*(lease(bus, str(n)).win() for n, bus in enumerate(clients)))
    assert sum(token is not None for token in tokens) == 1


async def test_a_lease_that_ran_out_is_lost_and_may_be_won_again(net: Net) -> None:
    bus = await net.client()
    one = lease(bus, "one")
    first = await one.win()
    async with asyncio.timeout(10 * TTL_S):
        while await bus.get(KEY) is not None:
            await asyncio.sleep(TTL_S / 10)
    assert not await one.renew()
    assert not one.held
    second = await one.win()
    assert first is not None
    assert second is not None
    assert second > first


async def test_a_holder_that_lost_its_lease_does_not_take_it_back(net: Net) -> None:
    bus = await net.client()
    one, other = lease(bus, "one"), lease(bus, "other")
    await one.win()
    await bus.delete(KEY)
    await other.win()
    assert not await one.renew()
    await one.release()
    assert await other.renew()


async def test_a_write_that_was_stored_though_it_seemed_to_fail_is_recognised(net: Net) -> None:
    bus = await net.client()
    one = lease(bus, "one")
    await one.win()
    await bus.put(KEY, b"one", ttl_s=TTL_S)  # as a renewal whose answer was lost leaves it
    assert await one.renew()
    assert await one.renew()


async def test_an_abandoned_lease_is_left_alone(net: Net) -> None:
    bus = await net.client()
    one = lease(bus, "one")
    await one.win()
    one.abandon()
    assert not await one.renew()
    await one.release()
    assert await bus.get(KEY) is not None
    assert await one.win() is not None


async def test_without_the_bus_it_is_held_for_the_rest_of_its_time(net: Net) -> None:
    bus = await net.client()
    one = lease(bus, "one")
    await one.win()
    await bus.close()
    try:
        await one.renew()
    except Unavailable:
        assert one.held
    else:
        raise AssertionError("a closed bus answered")
