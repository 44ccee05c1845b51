"""Groups from plan to plan: which stay, and which are formed again."""

from collections import Counter

import pytest

from schemas.ids import Fingerprint, GpuType, JobId, NodeId
from services.planner.policies.contract.view import ViewNode
from services.planner.policies.hlas.forming import Formed, formed, group_count
from services.planner.policies.hlas.memory import HlasMemory, RememberedJob
from services.planner.policies.hlas.queues import QueuePlace
from tests.services.planner.policies.hlas.hlas_builders import MODES


def cluster_of(**gpus: int) -> list[ViewNode]:
    """Nodes whose type is their name's first letter."""
    return [
        ViewNode(node_id=NodeId(name), gpu_type=GpuType(name[0]), gpus=count, idle=count, modes=MODES)
        for name, count in sorted(gpus.items())
    ]


def speeds_of(*names: str) -> dict[str, dict[GpuType, float]]:
    return {name: {GpuType("a"): 4.0, GpuType("b"): 1.0 + index} for index, name in enumerate(names)}


def afterwards(shape: Formed, **groups: tuple[int, ...]) -> HlasMemory:
    """A memory in which these jobs have these groups."""
    known = {
        JobId(name): RememberedJob(1, QueuePlace(), held, Fingerprint(""), 0.0, 1.0)
        for name, held in groups.items()
    }
    return HlasMemory(groups=shape.groups, jobs=known)


NODES = cluster_of(a0=4, b0=4)
FIRST = formed(NODES, 2, HlasMemory(), {}, speeds_of("one"))


def places(shape: Formed) -> list[dict[NodeId, int]]:
    return [group.place for group in shape.groups]


def test_as_many_groups_as_the_user_says_else_one_for_every_four_gpus() -> None:
    assert [group_count(gpus, 0) for gpus in (1, 4, 5, 160)] == [1, 1, 2, 40]
    assert group_count(160, 7) == 7
    assert group_count(3, 7) == 3
    assert places(FIRST) == [{"a0": 2, "b0": 2}] * 2


def test_groups_stay_from_plan_to_plan() -> None:
    running = {JobId("x"): {NodeId("a0"): 2}}
    again = formed(NODES, 2, afterwards(FIRST, x=(1,)), running, speeds_of("one"))
    assert again == Formed(FIRST.groups, {JobId("x"): (1,)})
    assert again.idle == [0]


def test_a_new_workload_has_idle_gpus_grouped_again_and_running_groups_later() -> None:
    running = {JobId("x"): {NodeId("a0"): 2}}
    shape = formed(NODES, 2, afterwards(FIRST, x=(1,)), running, speeds_of("one", "two"))
    [kept, fresh] = shape.groups
    assert shape.held == {JobId("x"): (0,)}
    assert kept == FIRST.groups[1]
    assert fresh.place == FIRST.groups[0].place
    assert fresh.basis != kept.basis
    later = formed(NODES, 2, HlasMemory(groups=shape.groups), {}, speeds_of("one", "two"))
    assert {group.basis for group in later.groups} == {fresh.basis}


def test_a_node_that_comes_or_goes_has_groups_formed_again() -> None:
    fewer = cluster_of(a0=4)
    assert places(formed(fewer, 1, HlasMemory(groups=FIRST.groups), {}, speeds_of("one"))) == [{"a0": 4}]
    more = cluster_of(a0=4, b0=4, b1=4)
    shape = formed(more, 3, HlasMemory(groups=FIRST.groups), {}, speeds_of("one"))
    assert sum(map(Counter, places(shape)), Counter()) == {"a0": 4, "b0": 4, "b1": 4}
    assert len(shape.groups) == 3


@pytest.mark.parametrize("place", [{"a0": 3}, {"b0": 4}])
def test_the_gpus_of_a_job_of_another_policy_are_a_group(place: dict[str, int]) -> None:
    """Or of another memory: its GPUs are not those of the groups that it had."""
    own = {NodeId(name): gpus for name, gpus in place.items()}
    shape = formed(NODES, 2, afterwards(FIRST, x=(1,)), {JobId("x"): own}, speeds_of("one"))
    [held] = shape.held[JobId("x")]
    assert shape.groups[held].place == own
    assert sum(map(Counter, places(shape)), Counter()) == {"a0": 4, "b0": 4}


# ---- beside groups in use


@pytest.mark.parametrize(("gpus", "fresh"), [(1, 3), (8, 2), (11, 2), (12, 1), (17, 1)])
def test_there_are_as_many_groups_as_asked_for_with_those_in_use(gpus: int, fresh: int) -> None:
    """Four of 18 GPUs, so 4.5 in the mean; a large job counts as several."""
    nodes = cluster_of(a0=18)
    shape = formed(nodes, 4, HlasMemory(), {JobId("x"): {NodeId("a0"): gpus}}, speeds_of("one"))
    assert shape.groups[0].place == {"a0": gpus}
    assert (shape.held, shape.idle) == ({JobId("x"): (0,)}, list(range(1, 1 + fresh)))
    assert sum(map(Counter, places(shape)), Counter()) == {"a0": 18}


def test_a_job_that_uses_a_part_of_its_groups_keeps_them() -> None:
    running = {JobId("x"): {NodeId("a0"): 2}}
    shape = formed(NODES, 2, afterwards(FIRST, x=(0, 1)), running, speeds_of("one"))
    assert shape == Formed(FIRST.groups, {JobId("x"): (0, 1)})


def test_a_job_has_lost_its_groups_if_another_uses_some_of_their_gpus() -> None:
    running = {JobId("x"): {NodeId("a0"): 2}, JobId("y"): {NodeId("b0"): 3}}
    shape = formed(NODES, 2, afterwards(FIRST, x=(0, 1)), running, speeds_of("one"))
    assert places(shape)[:2] == [{"a0": 2}, {"b0": 3}]
    assert shape.held == {JobId("x"): (0,), JobId("y"): (1,)}


@pytest.mark.parametrize("names", [("one", "two"), ("two", "one"), ("one", "three"), ("three", "one")])
def test_groups_for_other_workloads_are_formed_again(names: tuple[str, str]) -> None:
    first, then = (formed(NODES, 2, HlasMemory(), {}, speeds_of(name)) for name in names)
    again = formed(NODES, 2, HlasMemory(groups=first.groups), {}, speeds_of(names[1]))
    assert again == then != first


def test_a_type_that_a_workload_cannot_use_adds_no_speed_to_a_group() -> None:
    """One fast GPU and three slow ones: dealt in turns, or the fast one alone if the slow ones count."""
    nodes = cluster_of(a0=1, b0=3)
    one: dict[str, dict[GpuType, float]] = {"one": {GpuType("a"): 4.0}}
    assert places(formed(nodes, 2, HlasMemory(), {}, one)) == [{"a0": 1, "b0": 1}, {"b0": 2}]
    assert places(formed(nodes, 2, HlasMemory(), {}, speeds_of("one"))) == [{"a0": 1}, {"b0": 3}]


def test_without_gpus_there_are_no_groups() -> None:
    assert formed([], 0, HlasMemory(groups=FIRST.groups), {}, speeds_of("one")) == Formed((), {})
    full = formed(cluster_of(a0=4), 1, HlasMemory(), {JobId("x"): {NodeId("a0"): 4}}, speeds_of("one"))
    assert (places(full), full.idle) == ([{"a0": 4}], [])
    lost = formed(cluster_of(a0=2), 1, HlasMemory(), {JobId("x"): {NodeId("a0"): 4}}, speeds_of("one"))
    assert (places(lost), lost.idle) == ([{"a0": 4}], [])
