import msgspec
from hypothesis import given
from hypothesis import strategies as st

from schemas.events import (
    GpusWithheld,
    NodeDrained,
    NodeEvent,
    NodeJoined,
    NodeLost,
    NodeRemoved,
    NodeRestored,
    NodeReturned,
)
from schemas.ids import NodeId
from shared.domain.nodes import NODE_FOLDS, KnownNode, fold_node, known_node
from tests.fact_builders import a_node

HERE = NodeId("n-1")


def joined(life: str = "one") -> NodeJoined:
    return NodeJoined(at=1.0, node_id=HERE, node=a_node(HERE), life=life)


def after(*facts: NodeEvent) -> KnownNode:
    nodes: dict[NodeId, KnownNode] = {}
    for fact in facts:
        fold_node(nodes, fact, known_node)
    return nodes[HERE]


def test_a_node_that_joined_is_usable() -> None:
    assert after(joined()) == KnownNode(whole=a_node(HERE), life="one")
    assert after(joined()).usable


def test_a_lost_node_is_usable_once_it_is_back() -> None:
    lost = NodeLost(at=2.0, node_id=HERE)
    assert not after(joined(), lost).usable
    assert after(joined(), lost, NodeReturned(at=3.0, node_id=HERE)).usable
    assert after(joined(), lost, joined("two")).usable


def test_a_drain_outlives_a_loss_and_a_new_life() -> None:
    drained = (joined(), NodeDrained(at=2.0, node_id=HERE), NodeLost(at=3.0, node_id=HERE), joined("two"))
    assert after(*drained) == KnownNode(whole=a_node(HERE), life="two", draining=True)
    assert not after(*drained).usable
    assert after(*drained, NodeRestored(at=4.0, node_id=HERE)).usable


LOST = NodeLost(at=3.0, node_id=HERE)
REMOVED = NodeRemoved(at=4.0, node_id=HERE)


def test_a_removed_node_is_as_before_once_it_is_heard_again() -> None:
    assert after(joined(), LOST, REMOVED).removed
    assert after(joined(), LOST, REMOVED, NodeReturned(at=5.0, node_id=HERE)) == after(joined())
    assert after(joined(), LOST, REMOVED, joined("two")) == after(joined("two"))


def test_a_node_that_came_back_before_it_was_removed_stays() -> None:
    drained = (joined(), NodeDrained(at=2.0, node_id=HERE), LOST, NodeReturned(at=3.5, node_id=HERE))
    assert after(*drained, REMOVED) == after(*drained)


def test_the_drain_of_a_node_ends_with_its_removal() -> None:
    drained = NodeDrained(at=2.0, node_id=HERE, reason="moves to another lab")
    assert after(joined(), drained, LOST, REMOVED, joined("two")) == after(joined("two"))


def withheld(*gpus: int, at: float = 2.0) -> GpusWithheld:
    return GpusWithheld(at=at, node_id=HERE, gpus=dict.fromkeys(gpus, "in use"))


def test_gpus_that_are_withheld_are_not_there_to_be_had() -> None:
    known = after(joined(), withheld(3, 0))
    assert known.node.gpus == a_node(HERE).gpus - 2
    assert known.whole == a_node(HERE)
    assert list(known.withheld) == [0, 3]
    assert after(joined(), withheld(0, 3), withheld(1)).node.gpus == a_node(HERE).gpus - 1
    assert after(joined(), withheld(0, 3), withheld()) == after(joined())


def test_a_node_with_no_gpu_to_be_had_is_not_usable() -> None:
    everything = range(a_node(HERE).gpus)
    assert not after(joined(), withheld(*everything)).usable
    assert after(joined(), withheld(*everything), withheld(0)).usable


def test_a_node_with_no_gpu_to_be_had_is_read_back_from_a_snapshot() -> None:
    known = after(joined(), withheld(*range(a_node(HERE).gpus)))
    again = msgspec.msgpack.decode(msgspec.msgpack.encode(known), type=KnownNode)
    assert again == known
    assert again.node.gpus == 0


def test_a_new_life_replaces_the_withheld_gpus() -> None:
    again = msgspec.structs.replace(joined("two"), withheld={1: "broken"})
    assert after(joined(), withheld(0, 3), joined("two")) == after(joined("two"))
    assert after(joined(), withheld(0, 3), again).withheld == {1: "broken"}
    assert after(again).node.gpus == a_node(HERE).gpus - 1


def test_gpus_that_a_node_has_not_cannot_be_withheld() -> None:
    assert after(joined(), withheld(0, 99, -1)).withheld == {0: "in use"}


def test_why_a_node_drains_is_known_until_it_is_restored() -> None:
    drained = (joined(), NodeDrained(at=2.0, node_id=HERE, reason="GPU 3: broken"))
    assert after(*drained).drained_for == "GPU 3: broken"
    assert after(*drained, NodeRestored(at=4.0, node_id=HERE)).drained_for == ""


def leaves(life: str = "one") -> NodeDrained:
    return NodeDrained(at=2.0, node_id=HERE, life=life, reason="its time is over")


def test_a_drain_of_a_life_that_is_over_changes_nothing() -> None:
    assert after(joined("two"), leaves("one")) == after(joined("two"))


def test_a_drain_and_a_leave_keep_their_reasons_apart() -> None:
    both = (joined(), NodeDrained(at=2.0, node_id=HERE, reason="GPU 3: broken"), leaves())
    assert (after(*both).drained_for, after(*both).leaving_for) == ("GPU 3: broken", "its time is over")
    assert after(*both, NodeRestored(at=4.0, node_id=HERE)) == after(joined(), leaves())
    assert after(*both, joined("two")) == after(joined("two"), both[1])


def test_facts_about_a_node_that_never_joined_change_nothing() -> None:
    nodes: dict[NodeId, KnownNode] = {}
    for kind in set(NODE_FOLDS) - {NodeJoined}:
        raw = {"fact": kind.tag(), "at": 1.0, "node_id": HERE, "gpus": {}}
        fold_node(nodes, msgspec.convert(raw, kind), known_node)
    assert nodes == {}


def test_the_table_has_every_fact_about_nodes() -> None:
    assert set(NODE_FOLDS) == set(NodeEvent.__subclasses__())


class Counted(KnownNode):
    workers: int = 0


@given(st.lists(st.sampled_from(["one", "two"])))
def test_fields_of_a_caller_s_own_survive_a_new_life(lives: list[str]) -> None:
    nodes = {HERE: Counted(whole=a_node(HERE), workers=3)}
    for life in lives:
        fold_node(nodes, joined(life), lambda fact: Counted(whole=fact.node))
    assert nodes[HERE].workers == 3
