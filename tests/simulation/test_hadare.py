"""HadarE carried out: copies on every node, lone jobs left in peace, storms, and both engines alike."""

from functools import cache

import msgspec
import pytest

from loadgen.scenarios import load_scenario
from loadgen.simulation import Engine, Simulated, simulate
from schemas.events import (
    JobCompleted,
    JobPreempted,
    JobStarted,
    JobSubmitted,
    PlanPublished,
    StartOrdered,
    WorkerStopped,
)
from schemas.ids import NodeId, PlacementId
from schemas.placement import Forked, Lockstep
from schemas.plans import PlanKind
from schemas.scenarios import ListedWorkload
from shared.domain.audit import audit
from shared.domain.ledger import ledger_of
from shared.domain.metrics import makespan_s
from tests.simulation.storms import JOBS, NARROW, stormy

ENGINES: tuple[Engine, ...] = ("conductor", "loop")
POLICIES = ("hadare", "hadare-literal", "hadare+lone=forked")


@cache
def ran(policy: str = "hadare", engine: Engine = "conductor") -> Simulated:
    return simulate(load_scenario("hadare-aws"), policy=policy, engine=engine)


def starts(run: Simulated) -> list[JobStarted]:
    return [fact for fact in run.events if isinstance(fact, JobStarted)]


def test_twelve_jobs_on_five_nodes() -> None:
    run = ran()
    assert run.result.jobs == {"submitted": 12, "completed": 12}
    assert audit(run.events, drained=True, seqs=run.seqs) == []
    modes = {type(fact.gang.sync): fact for fact in starts(run)}
    assert modes.keys() == {Forked, Lockstep}
    assert all(len(fact.gang.members) > 1 for fact in starts(run) if type(fact.gang.sync) is Forked)


def test_merges_and_steps_between_them_can_be_read_from_the_log() -> None:
    """Merges, the steps of copies between them, and the largest share: from what the copies said."""
    run, began, copies = ran(), dict[tuple[PlacementId, NodeId], float](), dict[PlacementId, list[float]]()
    batches = {
        fact.job_id: fact.spec.workload.batch_size for fact in run.events if isinstance(fact, JobSubmitted)
    }
    steps: list[float] = []
    for fact in run.events:
        if isinstance(fact, StartOrdered) and fact.until is not None:
            began[fact.placement_id, fact.node_id] = fact.samples_done
        elif isinstance(fact, WorkerStopped) and (fact.placement_id, fact.node_id) in began:
            own = fact.samples_done - began[fact.placement_id, fact.node_id]
            copies.setdefault(fact.placement_id, []).append(own)
            steps.append(own / batches[fact.job_id])  # one GPU a node
    assert all(len(own) > 1 and min(own) > 0 for own in copies.values())
    found = run.result.metrics
    assert found["merges"] == len(copies) > 2
    assert found["merge_steps_mean"] == pytest.approx(sum(steps) / len(steps))
    assert found["merge_steps_max"] == pytest.approx(max(steps))
    assert found["copy_share_max"] == pytest.approx(max(max(own) / sum(own) for own in copies.values()))
    jobs = run.result.job_results
    assert sum(job.merges for job in jobs) == len(copies)
    assert max(job.copy_share_max or 0.0 for job in jobs) == found["copy_share_max"]


def test_no_node_idles_while_jobs_wait() -> None:
    plans = [fact for fact in ran().events if isinstance(fact, PlanPublished)]
    assert not any(plan.idle_gpus for plan in plans if plan.left_out)


def test_no_schedule_beats_the_bound() -> None:
    """By what is estimated, and estimates are a few percent off."""
    first = next(fact for fact in ran().events if isinstance(fact, PlanPublished) and fact.placements)
    assert first.kind is PlanKind.FIRST
    assert len(first.placements) + len(first.left_out) == 12
    last = max(fact.at for fact in ran().events if isinstance(fact, JobCompleted))
    assert first.horizon_s is not None
    assert 0.5 < first.horizon_s * 0.95 / (last - first.at) <= 1.0


def test_copies_end_a_batch_sooner_than_jobs_on_one_node_each() -> None:
    alone, forked = (makespan_s(ledger_of(ran(policy).events)) for policy in ("hadare+copies=1", "hadare"))
    assert alone is not None
    assert forked is not None
    assert forked < alone


@pytest.mark.parametrize("policy", POLICIES)
def test_every_variant_ends_a_small_scenario(policy: str) -> None:
    run = simulate(NARROW, policy=policy)
    assert run.result.jobs == {"submitted": JOBS, "completed": JOBS}
    assert audit(run.events, drained=True, seqs=run.seqs) == []
    assert not any(fact.notes for fact in run.events if isinstance(fact, PlanPublished))
    assert any(type(fact.gang.sync) is Forked for fact in starts(run))


@pytest.mark.parametrize("policy", POLICIES)
def test_a_job_that_may_not_be_moved_starts_once(policy: str) -> None:
    """No share of its copies waits for a next round, for which it would have to queue."""
    assert isinstance(NARROW.workload, ListedWorkload)
    jobs = [
        msgspec.structs.replace(one, job=msgspec.structs.replace(one.job, preemptible=False))
        for one in NARROW.workload.jobs
    ]
    run = simulate(msgspec.structs.replace(NARROW, workload=ListedWorkload(jobs=jobs)), policy=policy)
    assert audit(run.events, drained=True, seqs=run.seqs) == []
    assert run.result.jobs == {"submitted": JOBS, "completed": JOBS}
    assert not any(isinstance(fact, JobPreempted) for fact in run.events)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("seed", range(4))
def test_a_storm_costs_only_time(seed: int, engine: Engine) -> None:
    """Copies, trackers and nodes are killed, during merges too."""
    run = stormy(seed, POLICIES[seed % len(POLICIES)], engine, NARROW)
    assert audit(run.events, drained=True, seqs=run.seqs) == []
    assert run.result.jobs == {"submitted": JOBS, "completed": JOBS}


def test_both_engines_agree() -> None:
    assert len({ran("hadare", engine).result.event_log_hash for engine in ENGINES}) == 1
