"""A snapshot with facts that the stream has lost is not used, before and after the stream has gone on."""

import asyncio
import zlib

import msgspec
import pytest

from schemas.base import Event
from schemas.subjects import FACTS_STREAM
from shared.runtime.bus.jetstream import JetStreamBus
from shared.runtime.damage import Damaged
from shared.runtime.shell.snapshots import _opened, packed
from tests.bus_nets import JetStreamNet
from tests.shared.runtime.bus.bus_build import until
from tests.shared.runtime.shell.stages import NAME, Seen, drained
from tests.shared.runtime.shell.test_forgotten_facts import life

BEFORE = [drained(f"n-{number}") for number in range(1, 7)]
"""of the stream as the snapshot knows it"""


async def after_loss(live: JetStreamNet, left: list[Event]) -> JetStreamBus:
    """A bus that has these facts, and a snapshot of `BEFORE`."""
    bus = await live.client(NAME)
    await bus.publish(left)
    ids = [fact.event_id for fact in BEFORE]
    await bus.save(NAME, packed(len(BEFORE), Seen(drained=[fact.node_id for fact in BEFORE]), ids))
    return bus


async def test_a_snapshot_of_lost_facts_is_replaced_where_they_may_be_lost(live: JetStreamNet) -> None:
    bus = await after_loss(live, [*BEFORE[:4]])
    for allow in (True, False):  # the second life is one of which nobody knows that facts were lost
        core = await life(bus, allow_lost_facts=allow, upto=4)
        assert core.state.drained == ["n-1", "n-2", "n-3", "n-4"]


async def test_once_the_stream_has_gone_on_the_snapshot_is_still_of_lost_facts(live: JetStreamNet) -> None:
    others = [drained("new-5"), drained("new-6"), drained("new-7")]
    bus = await after_loss(live, [*BEFORE[:4], *others])
    with pytest.raises(Damaged, match=r"snapshot ends with fact 6, and .* has another there") as found:
        await life(bus)
    assert "HOPYARD_ALLOW_LOST_FACTS=1" in str(found.value)
    for allow in (True, False):
        core = await life(bus, allow_lost_facts=allow, upto=7)
        assert core.state.drained == ["n-1", "n-2", "n-3", "n-4", "new-5", "new-6", "new-7"]


async def test_a_snapshot_of_facts_that_the_stream_has_is_used(live: JetStreamNet) -> None:
    bus = await after_loss(live, [*BEFORE, drained("new-7")])
    await bus.save(NAME, packed(6, Seen(drained=[drained("of-before").node_id]), [BEFORE[-1].event_id]))
    assert (await life(bus, upto=7)).state.drained == ["of-before", "new-7"]


@pytest.mark.parametrize("allow", [True, False])
async def test_where_its_last_fact_is_gone_a_snapshot_is_used_before_any_archive_answers(
    live: JetStreamNet, *, allow: bool
) -> None:
    """The archive is the monitor's, which may itself be the service that starts."""
    live.settings = msgspec.structs.replace(live.settings, archive="archive")
    bus = await after_loss(live, [*BEFORE, drained("new-7")])
    await bus._connection.js.delete_msg(FACTS_STREAM, len(BEFORE))
    core = await life(bus, allow_lost_facts=allow, upto=7)
    assert core.state.drained == [*(fact.node_id for fact in BEFORE), "new-7"]


async def test_a_service_on_a_stream_that_ends_before_its_snapshot_says_what_to_do(
    live: JetStreamNet,
) -> None:
    """Also before any archive answers: its monitor may be what starts."""
    live.settings = msgspec.structs.replace(live.settings, archive="archive")
    bus = await after_loss(live, [*BEFORE[:4]])
    with pytest.raises(Damaged, match=r"ends at fact 4, and .* has read it up to 6: .* is lost") as found:
        await life(bus, upto=7)
    assert "HOPYARD_ALLOW_LOST_FACTS=1" in str(found.value)


async def with_several_servers(live: JetStreamNet, come: list[Event]) -> JetStreamBus:
    """A bus after a life that waited for several servers to repair the stream, until these facts came."""
    bus = await after_loss(live, [*BEFORE[:4]])
    bus._connection.settings = msgspec.structs.replace(live.settings, nats_replicas=3)
    living = asyncio.ensure_future(life(bus, upto=7))
    await until(lambda: bus.counts.readers_restarted > 1)
    await (await live.client("other")).publish(come)
    with pytest.raises(RuntimeError, match="may have other facts there now"):
        await living
    return bus


async def test_a_service_does_not_go_on_past_facts_that_came_in_the_place_of_lost_ones(
    live: JetStreamNet,
) -> None:
    bus = await with_several_servers(live, [drained(f"new-{number}") for number in range(5, 8)])
    with pytest.raises(Damaged, match=r"snapshot ends with fact 6, and .* has another there"):
        await life(bus, upto=7)


async def test_a_service_goes_on_once_several_servers_have_repaired_the_stream(live: JetStreamNet) -> None:
    bus = await with_several_servers(live, [*BEFORE[4:], drained("new-7")])
    core = await life(bus, upto=7)
    assert core.state.drained == [*(fact.node_id for fact in BEFORE), "new-7"]


async def test_an_agent_goes_on_where_the_stream_ends_before_its_snapshot(live: JetStreamNet) -> None:
    """No setting of the stack reaches an agent elsewhere; it does what services order from now on."""
    name = "agent-n-1"
    bus = await live.client(name)
    await bus.publish(BEFORE[:4])
    await bus.save(name, packed(len(BEFORE), Seen(drained=[drained("of-lost-facts").node_id]), []))
    core = await life(bus, name, upto=4)
    assert core.state.drained == ["n-1", "n-2", "n-3", "n-4"]


@pytest.mark.parametrize("identities", ["", "of other fields"])
async def test_a_snapshot_of_a_version_with_other_ids_is_used(live: JetStreamNet, identities: str) -> None:
    bus = await after_loss(live, [*BEFORE, drained("new-7")])
    blob = packed(
        len(BEFORE), Seen(drained=[drained("of-before").node_id]), ["node.drained/of-another-version"]
    )
    other = msgspec.structs.replace(_opened(blob), identities=identities)
    await bus.save(NAME, zlib.compress(msgspec.msgpack.encode(other)))
    assert (await life(bus, upto=7)).state.drained == ["of-before", "new-7"]
