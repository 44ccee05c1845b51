"""Whatever the order in which the cores read and nodes fail: all jobs end, once, and a replay agrees."""

from collections.abc import Iterator

import pytest

from schemas.events import JobCompleted, NodeJoined
from schemas.placement import Forked, Lockstep, Relaxed
from services.placer import folds as placer_folds
from shared.domain.audit import audit
from shared.domain.core import Effects, Publish
from tests.interleaving.cluster import Cluster, Reading
from tests.interleaving.hosts import GPUS

SEEDS = 24
STEPS = 3_000
MODES = (Lockstep, Forked, Relaxed)


def ran(seed: int, *, other_gpus: bool) -> Cluster:
    cluster = Cluster(seed, mode=MODES[seed % len(MODES)], adopt=seed % 4 != 0, other_gpus=other_gpus)
    for _ in range(STEPS):
        cluster.step()
    cluster.settle()
    return cluster


def leftovers(cluster: Cluster) -> Iterator[object]:
    """What is held for jobs or by workers, though all has ended."""
    profiler, estimator, placer, monitor, planner = cluster.cores
    yield from [job for job in monitor.state.ledger.jobs.values() if not job.ended]
    yield from placer.state.jobs
    yield from placer.state.placements
    yield from filter(None, placer.state.stale.values())
    yield from (*profiler.state.jobs, *profiler.state.runs)
    yield from (*estimator.state.jobs, *estimator.state.executions.running)
    yield from planner.jobs
    yield from planner.claims.claimed
    for host in cluster.hosts.values():
        yield from (*host.workers, *host.agent.state.workers)
        yield from monitor.state.ledger.nodes[host.node_id].workers


def news(effects: Effects, cluster: Cluster) -> list[str]:
    """Facts among the effects that nobody has published."""
    facts = [effect.event for effect in effects if isinstance(effect, Publish)]
    return [fact.event_id for fact in facts if not cluster.is_published(fact)]


@pytest.mark.parametrize("other_gpus", [False, True], ids=["same GPUs", "other GPUs"])
@pytest.mark.parametrize("seed", range(SEEDS))
def test_in_any_order_all_jobs_end_and_a_replay_has_the_same_states(seed: int, *, other_gpus: bool) -> None:
    cluster = ran(seed, other_gpus=other_gpus)
    assert list(leftovers(cluster)) == []
    assert audit(cluster.log, drained=True) == []
    again, cores = Reading.begin(), cluster.cores
    for seq, fact in enumerate(cluster.log, start=1):
        again.note(seq, fact)
        again.profiler.handle(fact, fact.at)
        again.estimator.handle(fact, fact.at)
        assert news(again.monitor.handle(fact, fact.at), cluster) == []
        if type(fact) in placer_folds.FOLDS:
            assert news(again.placer.handle(fact, fact.at), cluster) == []
    assert again.profiler.state == cores.profiler.state
    assert again.estimator.state == cores.estimator.state
    assert again.planner == cores.planner
    assert again.monitor.state == cores.monitor.state
    assert again.placer.state == cores.placer.state


def test_the_orders_are_unlike_and_nodes_and_workers_fail_in_them() -> None:
    logs = [ran(seed, other_gpus=True).log for seed in range(10)]
    assert len({tuple(fact.event_id for fact in log) for log in logs}) == len(logs)
    tags = {fact.tag() for log in logs for fact in log}
    assert tags >= {"job.preempted", "placement.refused", "node.lost", "node.returned", "node.gpus-withheld"}
    joined = [fact for log in logs for fact in log if isinstance(fact, NodeJoined)]
    assert any(fact.workers and fact.node.gpus < GPUS for fact in joined)
    assert sum(isinstance(fact, JobCompleted) for log in logs for fact in log) > 5 * len(logs)
