"""From a cluster file to nodes, and what can be said of them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.cluster import ClusterFile, GpuTypeFile, NodeGroup
from schemas.ids import GpuType
from shared.domain.cluster import InvalidCluster, gpus_by_type, nodes_of, round_at, round_by, satisfiable
from tests.fact_builders import K80, V100, a_node

PATHS = GpuTypeFile(link_bandwidth=1e10, network_bandwidth=1e9)


def group(prefix: str, *, count: int = 1, gpus: int = 4, gpu_type: GpuType = V100) -> NodeGroup:
    return NodeGroup(prefix=prefix, count=count, gpus=gpus, gpu_type=gpu_type)


def cluster(*groups: NodeGroup) -> ClusterFile:
    return ClusterFile(name="c", gpu_types={V100: PATHS, K80: PATHS}, nodes=list(groups))


def test_nodes_are_numbered_and_in_the_order_of_their_ids() -> None:
    nodes = nodes_of(cluster(group("v", count=11), group("k", gpu_type=K80)))
    assert [node.node_id for node in nodes][:3] == ["k-0", "v-00", "v-01"]
    assert nodes[-1].node_id == "v-10"


def test_a_node_has_the_bandwidths_of_its_type() -> None:
    [node] = nodes_of(cluster(group("v")))
    assert (node.link_bandwidth, node.network_bandwidth) == (1e10, 1e9)


def test_a_gpu_type_without_a_description_is_refused() -> None:
    with pytest.raises(InvalidCluster, match="GPU type t4 is not described"):
        nodes_of(cluster(group("t", gpu_type=GpuType("t4"))))


def test_two_groups_cannot_have_the_same_names() -> None:
    with pytest.raises(InvalidCluster, match="the name v-0 is taken"):
        nodes_of(cluster(group("v"), group("v")))


def test_gpus_are_counted_by_type_in_alphabetical_order() -> None:
    nodes = [a_node("a", gpus=2), a_node("b", gpus=3), a_node("c", gpus=1, gpu_type="k80")]
    assert list(gpus_by_type(nodes).items()) == [("k80", 1), ("v100", 5)]


def test_a_demand_is_satisfiable_if_the_allowed_types_together_have_its_smallest_count() -> None:
    counts = gpus_by_type([a_node("a", gpus=4), a_node("b", gpus=2, gpu_type="k80")])
    assert satisfiable([4, 8], [], counts)
    assert not satisfiable([4, 8], [K80], counts)
    assert satisfiable([6], [], counts)
    assert not satisfiable([7], [], counts)
    assert not satisfiable([1], [GpuType("t4")], counts)


def test_rounds_are_counted_from_cluster_time_zero() -> None:
    assert [round_at(at, 360) for at in (0, 359.9, 360, 1000)] == [0, 0, 1, 2]


@pytest.mark.parametrize(
    ("number", "at", "round_s", "meant"),
    [
        (7, 2520.0, 360.0, 7),
        (7, 2519.9999, 360.0, 7),
        (100, 36_000.0, 720.0, 50),
        (101, 36_720.0, 720.0, 51),
        (50, 36_000.0, 360.0, 50),
        (100, None, 720.0, 100),
    ],
)
def test_a_round_has_no_higher_number_than_its_time_allows(
    number: int, at: float | None, round_s: float, meant: int
) -> None:
    assert round_by(number, at, round_s) == meant


@given(st.integers(0, 10**7), st.floats(1.0, 1e6))
def test_a_round_that_opens_at_its_boundary_keeps_its_number(number: int, round_s: float) -> None:
    assert round_by(number, number * round_s, round_s) == number
