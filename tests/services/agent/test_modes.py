"""The agent's core: modes of synchronisation, and what gangs of them show the estimator."""

import msgspec
import pytest

from schemas.cluster import Node
from schemas.events import (
    Outcome,
    WorkerStopped,
)
from schemas.ids import GpuType, NodeId, PlacementId
from schemas.measurements import Stretch
from schemas.placement import Forked, Proportional, Relaxed
from schemas.samples import ThroughputObserved
from services.agent.tasks import (
    Observed,
)
from tests.services.agent.agent_bench import (
    HERE,
    THERE,
    Bench,
    node,
    only,
    start,
)

P1 = PlacementId("p1")


FORKED = Forked(shares=(0.5, 0.5))


def test_a_mode_that_the_runner_does_not_run_is_refused_with_its_name() -> None:
    bench = Bench()
    refused = only(bench.tell(start(gang=[(node(), 1), (node(THERE), 1)], sync=FORKED)), WorkerStopped)
    assert refused.outcome is Outcome.REFUSED
    assert refused.reason == "the runner on here runs no forked gangs"
    assert bench.core.state.workers == {}


def test_an_order_refused_for_its_mode_claims_no_gpus() -> None:
    bench = Bench()
    bench.tell(start("p1", gang=[(node(), 4), (node(THERE), 4)], sync=FORKED))
    assert bench.tell(start("p2", gpus=4)) == []
    assert set(bench.owners()) == {0, 1, 2, 3}


def test_a_relaxed_gang_is_run_and_sends_no_observations() -> None:
    bench = Bench()
    bench.tell(start(gang=[(node(), 2)], sync=Relaxed(tasks=((3, 1),))))
    assert bench.work
    bench.tell(Observed(P1, 120.0, Stretch(throughput=8.0, data_s={HERE: (0.1,)}, wait_s={})), at=150.0)
    assert bench.sent == []


def test_a_gang_of_unlike_shares_sends_one_observation_of_the_whole_gang() -> None:
    bench = Bench()
    bench.tell(start(gang=[(node(), 1), (node(THERE), 1)], sync=Proportional(samples=(40, 24))))
    stretch = Stretch(throughput=64.0, data_s={}, wait_s={HERE: (0.5,), THERE: (0.0,)})
    bench.tell(Observed(P1, 120.0, stretch), at=150.0)
    [sample] = [sample for sample in bench.sent if isinstance(sample, ThroughputObserved)]
    assert (sample.node_id, sample.throughput) == (HERE, 32.0)
    assert sample.gang.sync == Proportional(samples=(40, 24))


OTHER_TYPE = msgspec.structs.replace(node(THERE), gpu_type=GpuType("k80"))
OTHER_SERVER = msgspec.structs.replace(node(THERE), server="of few cores")


def mixed(
    wait_s: dict[NodeId, tuple[float, ...]], slow: Node = OTHER_TYPE
) -> dict[NodeId, ThroughputObserved]:
    """By node, what 64 samples/s of two GPUs on unlike nodes and batches of 32 teach."""
    bench = Bench()
    bench.tell(start(gang=[(node(), 1), (slow, 1)]))
    bench.tell(Observed(P1, 120.0, Stretch(throughput=64.0, data_s={}, wait_s=wait_s)), at=150.0)
    return {sample.node_id: sample for sample in bench.sent if isinstance(sample, ThroughputObserved)}


@pytest.mark.parametrize("slow", [OTHER_TYPE, OTHER_SERVER])
def test_a_fast_node_beside_a_slow_one_does_not_pass_for_slow(slow: Node) -> None:
    seen = mixed({HERE: (0.5, 0.7), THERE: (0.0, 0.0)}, slow)
    assert seen[HERE].throughput == pytest.approx(32 / 0.4)
    assert seen[THERE].throughput == 32.0


def test_waiting_that_even_the_slowest_gpu_has_is_not_subtracted() -> None:
    seen = mixed({HERE: (0.5, 0.7), THERE: (0.1,)})
    assert seen[HERE].throughput == pytest.approx(32 / 0.5)
    assert seen[THERE].throughput == 32.0


def test_a_node_that_exchanges_over_a_slower_path_than_its_own_is_not_observed() -> None:
    far = msgspec.structs.replace(OTHER_TYPE, network_bandwidth=0.5 * OTHER_TYPE.network_bandwidth)
    assert list(mixed({HERE: (0.0,), THERE: (0.0,)}, far)) == [THERE]


@pytest.mark.parametrize("slow", [OTHER_TYPE, OTHER_SERVER])
def test_waiting_for_an_unlike_node_is_not_reported_as_loading(slow: Node) -> None:
    seen = mixed({HERE: (0.5, 0.7), THERE: (0.0, 0.0)}, slow)
    assert [sample.wait_s for sample in seen.values()] == [(), ()]


@pytest.mark.parametrize("slow", [OTHER_TYPE, OTHER_SERVER])
@pytest.mark.parametrize("wait_s", [{}, {HERE: (0.5,)}, {HERE: (0.5,), THERE: ()}])
def test_a_gang_of_unlike_nodes_without_waiting_times_is_not_observed(
    wait_s: dict[NodeId, tuple[float, ...]], slow: Node
) -> None:
    assert mixed(wait_s, slow) == {}


def test_a_wait_longer_than_an_iteration_is_not_observed() -> None:
    assert list(mixed({HERE: (1.5,), THERE: (0.0,)})) == [THERE]
