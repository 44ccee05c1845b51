"""When a node is lost, and when it is back."""

from msgspec.structs import replace

from schemas.events import NodeLost, NodeReturned
from schemas.ids import NodeId
from services.monitor.core import TROUBLES_MAX, TROUBLES_NAMED
from shared.domain.core import Behind
from tests.fact_builders import NODE, joined, lost, returned
from tests.services.monitor.monitor_world import LEASE_S, World, heartbeat


def test_a_node_that_stays_silent_for_its_lease_is_lost() -> None:
    world = World(joined())
    assert world.until(LEASE_S - 0.1) == []
    assert world.until(LEASE_S) == [NodeLost(at=LEASE_S, node_id=NODE)]


def test_a_node_is_lost_once() -> None:
    world = World(joined())
    world.until(1000)
    assert [type(fact) for fact in world.published] == [NodeLost]


def test_every_heartbeat_begins_the_lease_again() -> None:
    world = World(joined())
    world.hear(heartbeat(), at=5)
    assert world.until(10.9) == []
    assert world.until(11) == [NodeLost(at=11, node_id=NODE)]


def test_each_node_has_a_lease_of_its_own() -> None:
    world = World(joined(), joined("node-2"))
    world.hear(heartbeat("node-1"), at=3)
    assert [fact.event_id for fact in world.until(8)] == ["node.lost/node-2/6.0"]
    assert [fact.event_id for fact in world.until(9)] == ["node.lost/node-1/9.0"]


def test_heartbeats_of_an_earlier_life_keep_no_node_alive() -> None:
    world = World(joined(life="2"))
    world.hear(heartbeat(life="1"), at=5)
    assert len(world.until(LEASE_S)) == 1


def test_heartbeats_of_an_unknown_node_are_ignored() -> None:
    world = World()
    assert world.hear(heartbeat(), at=1) == []
    assert world.monitor.next_wakeup() is None


def test_the_troubles_of_a_node_are_named_until_they_end_or_it_is_lost() -> None:
    world = World(joined(), joined("node-2"))
    troubled = replace(heartbeat(), troubles=tuple(f"disk {number}" for number in range(9)))
    named = [f"node-1: disk {number}" for number in range(TROUBLES_MAX)]
    world.hear(troubled, at=1)
    assert world.monitor.troubles() == named
    world.hear(heartbeat(), at=2)
    assert world.monitor.troubles() == []
    world.hear(troubled, at=3)
    assert world.monitor.troubles() == named
    world.until(3 + LEASE_S)
    assert world.monitor.troubles() == []


def test_of_many_nodes_with_troubles_the_first_are_named_and_the_others_counted() -> None:
    nodes = [f"node-{number:04}" for number in range(2_000)]
    world = World(*(joined(node) for node in nodes))
    for node in nodes:
        world.hear(replace(heartbeat(), node_id=NodeId(node), troubles=("x" * 400,)), at=1)
    *named, more = world.monitor.troubles()
    assert [one.partition(":")[0] for one in named] == nodes[:TROUBLES_NAMED]
    assert more == f"and {2_000 - TROUBLES_NAMED} more"


def test_a_lost_node_that_is_heard_in_the_same_life_has_returned() -> None:
    world = World(joined())
    world.until(10)
    assert world.hear(heartbeat(), at=12) == [NodeReturned(at=12, node_id=NODE)]
    assert world.until(17.9) == []


def test_a_return_is_published_once_while_its_fact_is_on_its_way() -> None:
    world = World(joined(), lost())
    first = world.monitor.handle(heartbeat(), 1.0)
    second = world.monitor.handle(heartbeat(), 2.0)
    assert (len(first), len(second)) == (1, 0)


def test_a_lost_node_that_begins_a_new_life_needs_no_return() -> None:
    world = World(joined(), lost(), joined(life="2"))
    assert world.hear(heartbeat(life="2"), at=1) == []
    assert world.monitor.state.ledger.nodes[NODE].alive


def test_a_node_can_be_lost_again() -> None:
    world = World(joined(), lost(at=1), returned(at=2))
    assert len(world.until(LEASE_S)) == 1


def test_after_a_restart_every_node_has_a_full_lease() -> None:
    world = World(joined(), joined("node-2"))
    assert world.restart(at=100, snapshot=True) == []
    assert world.until(100 + LEASE_S - 0.1) == []
    assert len(world.until(100 + LEASE_S)) == 2


def test_a_node_that_was_lost_before_a_restart_is_not_lost_again() -> None:
    world = World(joined())
    world.until(10)
    world.restart(at=100, snapshot=False)
    assert world.until(200) == []


def test_no_node_is_lost_by_silence_while_the_bus_is_away() -> None:
    world = World(joined())
    for at in (4.0, 8.0, 12.0):
        world.now = at
        world.monitor.handle(Behind(), at)
    assert world.until(12 + LEASE_S - 0.1) == []
    assert len(world.until(12 + LEASE_S)) == 1


def test_a_monitor_that_overslept_blames_itself_and_not_the_nodes() -> None:
    world = World(joined())
    assert world.wake_late(LEASE_S * 2) == []
    assert world.monitor.next_wakeup() == LEASE_S * 3
