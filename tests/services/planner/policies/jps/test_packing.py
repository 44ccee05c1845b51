"""On which nodes jobs have their GPUs, once it is known how many of each type."""

from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as limits
from hypothesis import strategies as st

from schemas.ids import NodeId
from schemas.placement import Configuration
from services.planner.policies.jps.packing import packing
from tests.services.planner.policies.jps.jps_builders import unlike


def packed(
    nodes: Mapping[str, int], counts: Sequence[int], held: Sequence[Mapping[str, int]] = ()
) -> list[Mapping[str, int]]:
    """Places of jobs on T4 nodes."""
    own: list[Configuration] = [dict.fromkeys([], 0) for _ in counts]
    for job, place in enumerate(held):
        own[job] = {NodeId(name): gpus for name, gpus in place.items()}
    table = np.array(counts, dtype=np.int32)[:, None]
    found = packing([unlike(name, gpus, "t4") for name, gpus in nodes.items()]).places(table, own)
    return [{str(node): gpus for node, gpus in place.items()} for place in found]


def test_a_job_with_as_many_gpus_as_it_shall_have_keeps_them() -> None:
    """Though on fewer nodes it would leave larger holes, and another job comes first by its size."""
    assert packed({"a": 3, "b": 3}, [3, 2], [{}, {"a": 1, "b": 1}]) == [{"a": 2, "b": 1}, {"a": 1, "b": 1}]
    assert packed({"a": 1, "b": 2}, [1], [{"b": 1}]) == [{"b": 1}]
    assert packed({"a": 1, "b": 1, "c": 2}, [2], [{"a": 1, "b": 1}]) == [{"a": 1, "b": 1}]


@pytest.mark.parametrize("held", [1, 3])
def test_a_job_of_another_size_stays_on_its_node_if_that_has_room(held: int) -> None:
    assert packed({"a": 2, "b": 4}, [2], [{"b": held}]) == [{"b": 2}]
    assert packed({"a": 2, "b": 4, "c": 3}, [2], [{"b": held + 1, "c": 1}]) == [{"c": 2}]
    assert packed({"a": 2, "b": 2}, [2], [{"b": held}]) == [{"b": 2}]


def test_a_job_leaves_a_node_that_has_become_too_small() -> None:
    assert packed({"a": 4, "b": 1}, [2], [{"b": 1}]) == [{"a": 2}]
    assert packed({"a": 4, "b": 1}, [2], [{"b": 2}]) == [{"a": 2}]


def test_large_jobs_are_placed_first() -> None:
    assert packed({"a": 3, "b": 3}, [1, 3, 2]) == [{"b": 1}, {"a": 3}, {"b": 2}]
    assert packed({"a": 2, "b": 2}, [2, 2]) == [{"a": 2}, {"b": 2}]


def test_gpus_held_of_another_type_are_no_reason_to_stay() -> None:
    nodes = [unlike("t4-0", 2, "t4"), unlike("v100-0", 2, "v100")]
    [place] = packing(nodes).places(np.array([[1, 1]], dtype=np.int32), [{NodeId("t4-0"): 2}])
    assert place == {"t4-0": 1, "v100-0": 1}


@given(data=st.data(), sizes=st.lists(st.integers(1, 4), min_size=1, max_size=4))
@limits(max_examples=100, deadline=None)
def test_each_job_has_its_gpus_and_the_largest_on_the_fewest_nodes(
    data: st.DataObject, sizes: list[int]
) -> None:
    nodes = {f"t4-{index}": gpus for index, gpus in enumerate(sizes)}
    counts: list[int] = []
    while len(counts) < 3:
        counts.append(data.draw(st.integers(0, min(5, sum(sizes) - sum(counts)))))
    places = packed(nodes, counts)
    assert [sum(place.values()) for place in places] == counts
    for name, gpus in nodes.items():
        assert sum(place.get(name, 0) for place in places) <= gpus
    largest = int(np.argmax(counts))
    in_order = np.cumsum(sorted(sizes, reverse=True))
    assert len(places[largest]) == int(np.searchsorted(in_order, counts[largest])) + (counts[largest] > 0)
