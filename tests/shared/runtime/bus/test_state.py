import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import cast

import msgspec
import pytest
from nats.js import JetStreamContext
from nats.js.api import RawStreamMsg

from schemas.events import ServiceLed
from schemas.subjects import SNAPSHOT_BUCKET, state_subject
from shared.runtime.bus.contract import Conflict, Fenced, Unavailable
from shared.runtime.bus.jetstream import JetStreamBus, blobs
from shared.runtime.bus.jetstream.streams import SNAPSHOT_STREAM, STATE_STREAM
from tests.bus_nets import LIMIT_S, JetStreamNet, LiveNats, Net
from tests.shared.runtime.bus.bus_build import cancelled, until

TTL_S = 1.0


async def test_a_value_is_the_last_one_put(net: Net) -> None:
    bus = await net.client()
    await bus.put("cursor/planner", b"1")
    revision = await bus.put("cursor/planner", b"2")
    assert await bus.get("cursor/planner") == (b"2", revision)


async def test_an_empty_value_is_a_value(net: Net) -> None:
    bus = await net.client()
    revision = await bus.put("a", b"")
    assert await bus.get("a") == (b"", revision)


async def test_an_absent_key_has_no_value(net: Net) -> None:
    assert await (await net.client()).get("nothing") is None


async def test_expecting_absence_takes_an_absent_key_only(net: Net) -> None:
    bus, other = await net.client(), await net.client("other")
    await bus.put("lease", b"me", expected=0)
    with pytest.raises(Conflict):
        await other.put("lease", b"you", expected=0)
    assert (await other.get("lease") or (b"", 0))[0] == b"me"


async def test_expecting_a_revision_takes_that_one_only(net: Net) -> None:
    bus = await net.client()
    old = await bus.put("a", b"1")
    new = await bus.put("a", b"2", expected=old)
    with pytest.raises(Conflict):
        await bus.put("a", b"3", expected=old)
    assert await bus.get("a") == (b"2", new)


async def test_revisions_grow_over_all_keys_and_over_deletion(net: Net) -> None:
    bus = await net.client()
    first = await bus.put("a", b"1")
    second = await bus.put("b", b"1")
    await bus.delete("a")
    third = await bus.put("a", b"1", expected=0)
    assert first < second < third


async def test_a_deleted_key_is_absent(net: Net) -> None:
    bus = await net.client()
    await bus.put("a", b"1")
    await bus.delete("a")
    await bus.delete("never-there")
    assert await bus.get("a") is None


async def test_a_lease_that_is_not_renewed_ends(net: Net) -> None:
    bus, other = await net.client(), await net.client("other")
    token = await bus.put("lease", b"me", expected=0, ttl_s=TTL_S)
    await asyncio.sleep(TTL_S + 0.6)
    assert await bus.get("lease") is None
    with pytest.raises(Conflict):
        await bus.put("lease", b"me", expected=token, ttl_s=TTL_S)
    assert await other.put("lease", b"you", expected=0, ttl_s=TTL_S) > token


async def test_a_renewed_lease_stays(net: Net) -> None:
    bus = await net.client()
    token = await bus.put("lease", b"me", expected=0, ttl_s=TTL_S)
    for _ in range(5):
        await asyncio.sleep(TTL_S * 0.4)
        token = await bus.put("lease", b"me", expected=token, ttl_s=TTL_S)
    assert await bus.get("lease") == (b"me", token)


async def test_a_name_that_no_bucket_takes_is_an_error(net: Net) -> None:
    bus = await net.client()
    for name in ("", "a b", "a.*", ">", ".a", "ä"):
        with pytest.raises(ValueError, match="not a key"):
            await bus.put(name, b"")


async def test_a_large_blob_comes_back_whole(net: Net) -> None:
    bus = await net.client()
    blob = bytes(range(256)) * 12_000
    await bus.save("planner", b"old")
    await bus.save("planner", blob)
    assert await bus.load("planner") == blob


async def test_a_blob_that_was_never_saved_is_absent(net: Net) -> None:
    assert await (await net.client()).load("nobody") is None


async def test_a_blob_that_is_replaced_while_it_is_read_is_read_again(live: JetStreamNet) -> None:
    leader, follower = await live.client(), await live.client("follower")
    await leader.save("planner", b"old")
    replacing = Replacing(follower._connection.js, lambda: leader.save("planner", b"new"))
    assert await blobs.read(cast(JetStreamContext, replacing), "planner") == b"new"


async def test_a_save_that_is_cut_off_leaves_nothing_after_the_next(live: JetStreamNet) -> None:
    """Each left its parts for good: a service that is killed often filled the disk."""
    bus = await live.client()
    js, blob = bus._connection.js, bytes(4 * blobs.PART_BYTES)
    await bus.save("planner", blob)
    whole = (await bus.extent(SNAPSHOT_STREAM)).bytes
    for _ in range(3):
        with pytest.raises(asyncio.CancelledError):
            await blobs.write(cast(JetStreamContext, CutOff(js)), "planner", 1, blob, bus._check_leads)
        assert await bus.load("planner") == blob
    await bus.save("planner", blob)
    assert (await bus.extent(SNAPSHOT_STREAM)).bytes == whole
    assert await bus.load("planner") == blob


async def test_a_leader_that_slept_in_a_save_does_not_put_its_blob_in_the_place_of_a_newer_one(
    live: JetStreamNet,
) -> None:
    """Facts between the two may have been trimmed meanwhile."""
    slept, leader = await live.client(), await live.client("next")
    await slept.save("planner", b"old")

    async def lead() -> None:
        leader._connection.settings = msgspec.structs.replace(leader._connection.settings, instance=2)
        await leader.save("planner", b"newer")

    slept._connection.js = cast(JetStreamContext, Replacing(slept._connection.js, lead))
    with pytest.raises(Unavailable, match="another instance has saved one meanwhile"):
        await slept.save("planner", b"late")
    assert await leader.load("planner") == b"newer"
    await slept.save("planner", b"next")
    assert await leader.load("planner") == b"next"


async def test_a_leader_that_slept_before_a_save_does_not_replace_the_blob_of_the_next(
    live: JetStreamNet,
) -> None:
    slept, leader = await live.client(), await live.client("next")
    led = ServiceLed(at=1.0, service="planner", instance=1, token=1, repetition=0)
    await slept.lead(led, 0)
    await slept.save("planner", b"old")
    await leader.lead(msgspec.structs.replace(led, token=2), await leader.led_last("planner"))
    await leader.save("planner", b"newer")
    with pytest.raises(Fenced):
        await slept.save("planner", b"late")
    assert await leader.load("planner") == b"newer"


async def test_the_ordinary_tools_read_a_blob(live: JetStreamNet) -> None:
    bus = await live.client()
    await bus.save("planner", b"state")
    store = await bus._connection.js.object_store(SNAPSHOT_BUCKET)
    assert (await store.get("planner")).data == b"state"


class CutOff:
    """JetStream, with a task that is cancelled after two messages."""

    def __init__(self, js: JetStreamContext) -> None:
        self.get_last_msg, self.purge_stream = js.get_last_msg, js.purge_stream
        self._publish = js.publish
        self._left = 2

    async def publish(self, subject: str, data: bytes) -> None:
        if not self._left:
            raise asyncio.CancelledError
        self._left -= 1
        await self._publish(subject, data)


class Replacing:
    """JetStream, with the blob replaced after the first look at what it is."""

    def __init__(self, js: JetStreamContext, replace: Callable[[], Awaitable[None]]) -> None:
        self.get_msg, self.publish, self.purge_stream = js.get_msg, js.publish, js.purge_stream
        self._get_last_msg = js.get_last_msg
        self._replace: Callable[[], Awaitable[None]] | None = replace

    async def get_last_msg(self, stream: str, subject: str) -> RawStreamMsg:
        found = await self._get_last_msg(stream, subject)
        replace, self._replace = self._replace, None
        if replace is not None:
            await replace()
        return found


async def test_state_survives_a_killed_server(live: JetStreamNet, nats: LiveNats) -> None:
    bus = await live.client()
    revision = await bus.put("cursor/a", b"7")
    await bus.save("a", b"state" * 100_000)
    await nats.restart()
    await until(lambda: bus.counts.reconnects == 1)
    assert await bus.get("cursor/a") == (b"7", revision)
    assert await bus.load("a") == b"state" * 100_000


async def test_state_is_unavailable_while_the_server_is_away(live: JetStreamNet, nats: LiveNats) -> None:
    bus = await live.client()
    nats.kill()
    await until(lambda: not bus.connected())
    with pytest.raises(Unavailable):
        await bus.put("a", b"1")
    with pytest.raises(Unavailable):
        await bus.load("a")
    await nats.restart()
    await bus.publish([cancelled()])
    assert await bus.get("a") is None


async def test_writes_given_up_early_tell_together_that_nothing_is_stored(
    live: JetStreamNet, nats: LiveNats
) -> None:
    """Each attempt to renew a lease, or to move a cursor, has less time than a fact has to be confirmed."""
    limit_s = 1.0
    bus = await JetStreamBus.connect(nats.settings(publish_timeout_real_s=limit_s), "service", LIMIT_S)
    await bus.put("a", b"1")
    async with unconfirmed(live, "a"), asyncio.timeout(LIMIT_S):
        began = time.monotonic()
        while not bus.why_not_stored():
            with suppress(TimeoutError):
                async with asyncio.timeout(limit_s / 5):
                    await bus.put("a", b"2")
        assert time.monotonic() - began >= limit_s
    await bus.put("a", b"3")
    assert not bus.why_not_stored()
    await bus.close()


@asynccontextmanager
async def unconfirmed(live: JetStreamNet, key: str) -> AsyncIterator[None]:
    """Meanwhile a subscriber, which says nothing, takes what is put there in place of the stream."""
    js, subject = live._raw.jetstream(), state_subject(key)
    config = await live.stream(STATE_STREAM)
    await js.delete_stream(STATE_STREAM)
    mute = await live._raw.subscribe(subject)
    await live._raw.flush()
    yield
    await mute.unsubscribe()
    await js.add_stream(config)
