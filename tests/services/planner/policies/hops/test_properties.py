"""What holds of the Hops policy whatever the queue and the cluster; vectorised code against plain loops."""

from collections.abc import Iterator
from itertools import product

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.ids import NodeId
from services.planner.policies.contract.configurations import Configurations, configurations_for
from services.planner.policies.contract.estimates import Estimated
from services.planner.policies.contract.view import ViewJob, ViewNode
from services.planner.policies.hops.policy import gains
from services.planner.policies.kit.priority import ranked, weights
from services.planner.policies.kit.window import adjusted, service_window
from shared.domain.sums import plain_sum
from tests.services.planner.planner_builders import FAST, MODELLED, SLOW, decide, job, node, view

SIGMA = 1.4
Place = tuple[tuple[NodeId, int], ...]
Cluster = tuple[ViewNode, ...]
Queue = list[ViewJob]


@st.composite
def queues(draw: st.DrawFn, most: int = 6, largest: int = 20) -> Queue:
    size = draw(st.integers(0, most))
    return [
        job(
            f"j{index}",
            sorted(draw(st.sets(st.integers(1, largest), min_size=1, max_size=3))),
            sensitivity=draw(st.sampled_from([1.0, 1.1, 1.3, 1.4, 1.5, 2.0])),
            gpu_types=draw(st.sampled_from([(FAST,), (SLOW,), (FAST, SLOW)])),
            wait_s=float(draw(st.integers(0, 50))),
        )
        for index in range(size)
    ]


@st.composite
def clusters(draw: st.DrawFn, most: int = 7) -> Cluster:
    size = draw(st.integers(0, most))
    return tuple(
        node(
            f"n{index}",
            draw(st.integers(0, gpus := draw(st.sampled_from([2, 4, 8])))),
            gpus=gpus,
            gpu_type=draw(st.sampled_from([FAST, SLOW])),
        )
        for index in range(size)
    )


# ---- the queue


@given(queues(most=20), st.integers(1, 100))
def test_the_window_is_the_shortest_head_that_could_use_the_gpus(queue: Queue, gpus: int) -> None:
    length = service_window(queue, gpus)
    least = [entry.demand[0] for entry in queue]
    assert sum(least[:length]) >= gpus or length == len(queue)
    assert sum(least[: length - 1]) < gpus


@given(queues(most=20), st.integers(1, 100), st.integers(0, 40))
def test_the_adjusted_window_is_the_window_and_then_fitting_jobs_in_the_order_of_the_queue(
    queue: Queue, gpus: int, idle: int
) -> None:
    length = service_window(queue, gpus)
    window = adjusted(queue, length, idle)
    admitted = window[length:]
    mean = plain_sum(entry.sensitivity for entry in queue) / max(len(queue), 1)
    eligible = [entry for entry in queue[length:] if entry.sensitivity < mean and entry.demand[0] <= idle]
    assert window[:length] == queue[:length]
    assert admitted == eligible[: len(admitted)]
    too_sensitive = window and plain_sum(entry.sensitivity for entry in window) / len(window) > mean
    assert admitted == eligible or not too_sensitive


@given(
    st.lists(st.integers(-100_000, 100_000).map(lambda hundredths: hundredths / 100), min_size=1),
    st.floats(0, 5),
)
def test_weights_are_positive_and_follow_the_priorities(priorities: list[float], power: float) -> None:
    found = weights(priorities, power)
    assert (found > 0).all()
    assert (np.diff(found[np.argsort(priorities)]) >= 0).all()


# ---- configurations


def runs(nodes: Cluster, gpus: int) -> Iterator[Place]:
    """Distributed configurations by the words of the rule: nodes of one type, in order."""
    used = [(each.node_id, each.idle) for each in nodes if each.idle]
    for length in range(2, len(used) + 1):
        windows = [used[first : first + length] for first in range(len(used) - length + 1)]
        enough = [found for found in windows if sum(idle for _, idle in found) >= gpus]
        for found in enough:
            rest = gpus - sum(idle for _, idle in found[:-1])
            if rest > 0:
                yield (*found[:-1], (found[-1][0], rest))
        if enough:
            return


def expected(one: ViewJob, cluster: Cluster) -> Iterator[Place]:
    for gpu_type, gpus in product(one.gpu_types, one.demand):
        nodes = tuple(each for each in cluster if each.gpu_type == gpu_type)
        yield from (((each.node_id, gpus),) for each in nodes if gpus <= each.idle)
        largest = max((each.gpus for each in nodes), default=0)
        if one.sensitivity <= SIGMA or gpus > largest:
            yield from runs(nodes, gpus)


@given(queues(), clusters())
def test_configurations_are_those_that_the_rules_name_each_once(queue: Queue, cluster: Cluster) -> None:
    columns = configurations_for(queue, cluster, SIGMA)
    found = [(columns.jobs[columns.job[row]], tuple(columns.at(row).items())) for row in range(len(columns))]
    named = [(one.job_id, place) for one in queue for place in expected(one, cluster)]
    assert sorted(found) == sorted(named)


@given(queues(), clusters())
def test_every_configuration_can_be_had_and_none_of_its_nodes_could_be_spared(
    queue: Queue, cluster: Cluster
) -> None:
    columns = configurations_for(queue, cluster, SIGMA)
    nodes, jobs = {each.node_id: each for each in cluster}, {one.job_id: one for one in queue}
    for row in range(len(columns)):
        one, place = jobs[columns.jobs[columns.job[row]]], columns.at(row)
        assert sum(place.values()) in one.demand
        assert len({nodes[node_id].gpu_type for node_id in place}) == 1
        assert all(1 <= gpus <= nodes[node_id].idle for node_id, gpus in place.items())
        *filled, _ = place
        assert all(place[node_id] == nodes[node_id].idle for node_id in filled)


# ---- gain and program


def speeds(wanted: Configurations, seed: int) -> Estimated:
    drawn = np.random.default_rng(seed).integers(1, 100, len(wanted)).astype(np.float64)
    drawn[drawn > 90] = np.nan  # a few that nobody knows
    return Estimated(throughput=drawn, layer=np.zeros(len(wanted), dtype=np.uint8))


@given(queues(), clusters(), st.integers(0, 1000))
def test_gain_is_one_for_the_slowest_configuration_of_a_job_and_more_for_others(
    queue: Queue, cluster: Cluster, seed: int
) -> None:
    wanted = configurations_for(queue, cluster, SIGMA)
    throughput = speeds(wanted, seed).throughput
    gain = gains(wanted, throughput)
    assert (np.isnan(gain) == np.isnan(throughput)).all()
    for index in np.unique(wanted.job[~np.isnan(gain)]):
        assert np.nanmin(gain[wanted.job == index]) == 1.0


def best(wanted: Configurations, value: dict[int, float], capacity: dict[int, int]) -> float:
    """Eq. 11–13 by trying everything."""
    rows = [[row for row in value if wanted.job[row] == index] for index in range(len(wanted.jobs))]
    most = 0.0
    for choice in product(*([None, *own] for own in rows)):
        taken = [row for row in choice if row is not None]
        used = dict.fromkeys(capacity, 0)
        for row in taken:
            for position, gpus in wanted.cells(row).items():
                used[position] += gpus
        if all(used[position] <= capacity[position] for position in used):
            most = max(most, sum(value[row] for row in taken))
    return most


@given(queues(most=3, largest=6), clusters(most=3), st.integers(0, 1000), st.sampled_from([0.0, 1.0, 2.0]))
def test_no_choice_is_worth_more_than_the_decision(
    queue: Queue, cluster: Cluster, seed: int, power: float
) -> None:
    """Of the jobs in the window, which no job fills that not even the empty cluster has a place for."""
    seen = view(queue, cluster, effort=msgspec.structs.replace(MODELLED, gap=0.0))
    empty = tuple(msgspec.structs.replace(each, idle=each.gpus) for each in cluster)
    order = [entry for entry, _ in ranked(seen, "lr") if any(expected(entry, empty))]
    window = order[: service_window(order, seen.idle_gpus)]
    wanted = configurations_for(window, cluster, SIGMA)
    throughput = speeds(wanted, seed).throughput
    weight = weights([entry.wait_s / entry.age_s for entry in window], power)
    worth = weight[wanted.job] * gains(wanted, throughput)
    value = {row: float(worth[row]) for row in range(len(wanted)) if worth[row] > 0}
    capacity = {position: each.idle for position, each in enumerate(cluster)}
    decision = decide("hops", seen, lambda asked: speeds(asked, seed), priority_power=power)
    assert decision.objective == pytest.approx(best(wanted, value, capacity))
