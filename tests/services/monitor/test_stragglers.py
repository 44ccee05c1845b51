"""Which nodes are named because their jobs run slower there than elsewhere."""

from collections.abc import Sequence
from itertools import combinations
from random import Random
from time import process_time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.base import Event
from schemas.ids import Fingerprint, GpuType, JobId, NodeId
from schemas.overview import TimelineView
from schemas.placement import LOCKSTEP
from schemas.questions import ListNodes, ShowTimeline
from schemas.views import NodePage, NodeView
from services.monitor.core import COMPARED_REAL_S, COMPARED_S, MARK_S, Monitor
from services.monitor.metrics import metrics
from services.monitor.stragglers import FEWEST, JOBS, SHORTEST_S, WINDOW_S, Kind, Pace, speeds_of
from tests.fact_builders import config, in_queue, joined, lost, preempted, started
from tests.services.monitor.monitor_world import World, heartbeat

NODES = ("a", "b", "c", "d")


def pace(
    job: int, *nodes: str, rate: float = 1.0, gpus: int = 4, workload: str = "w", server: str = "s"
) -> Pace:
    members = ((GpuType("v100"), server, gpus if len(nodes) > 1 else 0),) * len(nodes)
    return Pace(
        job_id=JobId(f"job-{job}"),
        kind=Kind(Fingerprint(workload), LOCKSTEP, members),
        nodes=tuple(map(NodeId, nodes)),
        gpus=gpus * len(nodes),
        rate=rate,
        at=0.0,
    )


def on_each(jobs: int, slow: dict[str, float], noise: float = 0.0, seed: int = 1) -> list[Pace]:
    """Every job ran on every node, at the node's share of 1 sample/s."""
    draw = Random(seed)
    return [
        pace(job, node, rate=slow.get(node, 1.0) * draw.uniform(1 - noise, 1 + noise))
        for job in range(jobs)
        for node in NODES
    ]


def named(paces: Sequence[Pace]) -> dict[str, float]:
    return {node: speed.ratio for node, speed in speeds_of(paces).items() if speed.slow}


@pytest.mark.parametrize("jobs", [FEWEST, 7, 30])
def test_a_node_at_half_speed_is_named_with_its_ratio_and_its_jobs(jobs: int) -> None:
    speeds = speeds_of(on_each(jobs, {"b": 0.5}))
    assert {node: round(speed.ratio, 2) for node, speed in speeds.items() if speed.slow} == {"b": 0.5}
    assert speeds[NodeId("b")].jobs == min(jobs, JOBS)
    assert speeds[NodeId("a")].ratio == pytest.approx(1.0)


def test_two_of_four_slow_nodes_are_named() -> None:
    assert named(on_each(7, {"b": 0.5, "d": 0.6})) == pytest.approx({"b": 0.5, "d": 0.6})


@given(st.integers(0, 10_000), st.floats(0.0, 0.2), st.integers(1, 12))
def test_no_node_of_a_healthy_cluster_is_named_whatever_the_noise(seed: int, noise: float, jobs: int) -> None:
    assert named(on_each(jobs, {}, noise, seed)) == {}


def test_noise_of_thirty_per_cent_rarely_hides_a_node_at_half_the_speed_and_blames_no_other() -> None:
    runs = [named(on_each(JOBS, {"c": 0.5}, 0.3, seed)).keys() for seed in range(200)]
    assert sum("c" in names for names in runs) > 160
    assert all(names <= {"c"} for names in runs)
    assert not any(named(on_each(JOBS, {}, 0.3, seed)) for seed in range(200))


def test_fewer_jobs_give_no_verdict() -> None:
    assert speeds_of(on_each(FEWEST - 1, {"b": 0.1})) == {}


def test_many_jobs_beside_a_single_run_elsewhere_give_no_verdict() -> None:
    assert speeds_of([pace(0, "a"), *(pace(job, "b", rate=0.5) for job in range(1, 9))]) == {}


def test_servers_of_another_model_are_no_measure() -> None:
    unlike = [pace(job, node, rate=0.5, server="old") for job in range(5) for node in ("e", "f")]
    assert named([*on_each(5, {}), *unlike]) == {}


def test_a_workload_that_is_slow_everywhere_blames_no_node() -> None:
    heavy = [pace(10 + job, node, rate=0.01, workload="heavy") for job in range(5) for node in NODES]
    assert named([*on_each(5, {}), *heavy]) == {}


def test_a_gang_of_more_gpus_shows_what_a_gpu_does_at_least() -> None:
    larger = [pace(job, node, gpus=8, rate=0.9) for job in range(4) for node in ("a", "c")]
    smaller = [pace(job, "b", gpus=2, rate=0.5) for job in range(4)]
    assert named([*larger, *smaller]) == pytest.approx({"b": 0.5 / 0.9})
    assert speeds_of([pace(job, "b", gpus=8) for job in range(4)] + smaller) == {}


def gangs_of(pairs: Sequence[tuple[str, str]], slow: str, jobs: int = 4) -> list[Pace]:
    """Some jobs on each pair of nodes."""
    return [
        pace(10 * number + job, *pair, rate=0.4 if slow in pair else 1.0)
        for number, pair in enumerate(pairs)
        for job in range(jobs)
    ]


def test_the_others_of_a_slow_node_s_gangs_are_not_blamed() -> None:
    every = list(combinations("abcdef", 2))
    speeds = speeds_of(gangs_of(every, "c", jobs=2))
    assert [node for node, speed in speeds.items() if speed.slow] == ["c"]
    assert speeds[NodeId("c")].across
    alone = speeds_of([*on_each(4, {"c": 0.4}), *gangs_of([("a", "c"), ("b", "d"), ("b", "c")], "c")])
    assert [(node, speed.across) for node, speed in alone.items() if speed.slow] == [("c", False)]


def test_of_nodes_that_are_always_together_none_is_blamed() -> None:
    assert named(gangs_of([("a", "b"), ("c", "d")], "a")) == {}


def test_a_node_is_not_blamed_for_the_slow_one_that_it_often_ran_with() -> None:
    often = [("a", "b"), ("a", "c"), ("d", "e"), ("d", "f"), ("e", "f")]
    assert "b" not in named(gangs_of(often, "a"))
    mixed = [*gangs_of([("a", "b")], "a"), *(pace(50 + job, "b", "c") for job in range(3))]
    assert named([*mixed, *gangs_of([("d", "e"), ("e", "f"), ("d", "f")], "a")]) == {}


def test_a_network_that_is_slow_shows_only_in_gangs() -> None:
    every = list(combinations("abcdef", 2))
    speeds = speeds_of([*on_each(6, {}), *gangs_of(every, "d", jobs=2)])
    assert [(node, speed.across) for node, speed in speeds.items() if speed.slow] == [("d", True)]


def test_a_repaired_node_is_cleared_by_its_next_jobs() -> None:
    repaired = [pace(100 + job, node) for job in range(JOBS) for node in NODES]
    assert named(on_each(20, {"b": 0.5})).keys() == {"b"}
    assert named([*on_each(20, {"b": 0.5}), *repaired]) == {}


def test_many_jobs_of_one_workload_on_many_nodes_are_soon_compared() -> None:
    """Each was compared with all others, and again for each slow node: a minute in which nothing else ran."""
    draw, slow = Random(1), {f"n{number}" for number in range(100)}
    paces = []
    for job in range(2000):
        node = f"n{job % 512}"
        paces.append(pace(job, node, rate=draw.uniform(0.95, 1.05) * (0.4 if node in slow else 1.0)))
    began = process_time()
    assert named(paces).keys() == slow
    assert process_time() - began < 1.0


# ---- from facts and heartbeats


RUN_S = 600.0


def ran(job: str, node: str, samples: float, *, at: float = 0.0) -> list[Event]:
    """A job that ran on two GPUs of a node for ten minutes."""
    on, place = config(**{node.replace("-", "_"): 2}), f"pl-{job}"
    return [
        *in_queue(job, at=at),
        started(job, at=at, place=place, on=on),
        preempted(job, at=at + RUN_S, place=place, samples_done=samples),
    ]


def both_ran(*, at: float = 0.0) -> list[Event]:
    """Four jobs on each of two nodes, on the second at half the speed."""
    speeds = {"node-1": 600.0, "node-2": 300.0}
    return [
        fact
        for node, samples in speeds.items()
        for number in range(4)
        for fact in ran(f"{node}-{number}-{at:g}", node, samples, at=at)
    ]


def shown(world: World) -> dict[str, NodeView]:
    page = world.ask(ListNodes())
    assert isinstance(page, NodePage)
    return {view.node.node_id: view for view in page.nodes}


def slow(world: World) -> dict[str, float]:
    speeds = {node: view.speed for node, view in shown(world).items()}
    return {node: speed.ratio for node, speed in speeds.items() if speed is not None and speed.slow}


def test_the_list_of_nodes_the_page_and_the_metrics_name_a_slow_node() -> None:
    world = World(joined(), joined("node-2"), *both_ran())
    world.now = RUN_S
    assert slow(world) == pytest.approx({"node-2": 0.5})
    timeline = world.ask(ShowTimeline())
    assert isinstance(timeline, TimelineView)
    assert [lane.slow for lane in timeline.nodes] == [None, pytest.approx(0.5)]
    values = {
        (one.name, one.labels.get("node")): one.value for one in metrics(world.monitor.cluster(world.now))
    }
    assert values["hopyard_nodes_slow", None] == 1
    assert values["hopyard_node_speed_ratio", "node-2"] == pytest.approx(0.5)
    assert ("hopyard_node_speed_ratio", "node-1") not in values, "it has no peer but a slow one"


def test_speeds_are_computed_every_few_real_seconds_however_fast_the_clock_is() -> None:
    speed = 2000.0
    monitor = Monitor(lease_s=1e9, interruptions_max=3, raqlr_window_s=3600.0, speed=speed)
    first = monitor.cluster(RUN_S).speeds()
    assert monitor.cluster(RUN_S + speed * (COMPARED_REAL_S - 0.1)).speeds() is first
    assert monitor.cluster(RUN_S + speed * COMPARED_REAL_S).speeds() is not first


def test_what_a_node_did_with_other_gpus_says_nothing_of_those_it_has_now() -> None:
    """The first node had faster ones, and its jobs would blame the other."""
    faster = joined(gpu_type="a100")
    world = World(faster, joined("node-2"), *both_ran())
    world.tell(lost("node-1", at=RUN_S), joined("node-1", at=RUN_S))
    world.now = RUN_S
    assert slow(world) == {}


def test_runs_of_a_day_ago_and_short_ones_say_nothing() -> None:
    world = World(joined(), joined("node-2"), *both_ran())
    world.now = RUN_S + WINDOW_S
    assert slow(world).keys() == {"node-2"}
    world.now += COMPARED_S
    assert slow(world) == {}
    brief = [ran(f"{node}-{number}", node, 60.0)[:-1] for node in ("node-1", "node-2") for number in range(4)]
    short = World(joined(), joined("node-2"), *(fact for facts in brief for fact in facts))
    for node, number in [(node, number) for node in ("node-1", "node-2") for number in range(4)]:
        job = f"{node}-{number}"
        short.tell(preempted(job, at=SHORTEST_S - 1, place=f"pl-{job}", samples_done=60.0))
    short.now = RUN_S
    assert all(view.speed is None for view in shown(short).values())


def test_a_node_that_becomes_slow_under_its_jobs_is_named_while_they_run() -> None:
    """They have run for ten hours at full speed, and for two at half of it."""
    world = World(joined(), joined("node-2"))
    nodes, since = ("node-1", "node-2"), 10 * 3600.0
    for node in nodes:
        for number in range(4):
            world.tell(*ran(f"{node}-{number}", node, 0.0)[:-1])
    beats = [number * MARK_S / 4 for number in range(1, 50)]
    for at in beats:
        for node in nodes:
            done = at if node == "node-1" else min(at, since) + max(at - since, 0.0) / 2
            world.hear(
                heartbeat(node, progress={JobId(f"{node}-{number}"): done / 100 for number in range(4)}),
                at=at,
            )
        if at == since:
            assert slow(world) == {}
    assert slow(world) == pytest.approx({"node-2": 0.5}, abs=0.02)
