"""Gangs in modes that no policy that ships plans: they run, or they are refused and somebody says so."""

from collections import Counter
from functools import cache

import msgspec
import pytest

from loadgen.scenarios import arrivals, load_scenario
from loadgen.simulation import Engine, Simulated, simulate
from schemas.events import (
    JobPreempted,
    JobStarted,
    JobSubmitted,
    NodeJoined,
    Outcome,
    PlanPublished,
    PreemptReason,
    StartOrdered,
    TurnsOrdered,
    WorkerCheckpointed,
    WorkerStopped,
)
from schemas.ids import JobId, NodeId, PlacementId
from schemas.placement import Forked, Lockstep, Mode, Proportional, Relaxed
from schemas.scenarios import ArrivingJob, ListedWorkload, PolicyChange
from schemas.settings import Settings, Switching
from shared.domain import gangs
from shared.domain.accuracy import executions_of
from shared.domain.audit import audit
from shared.domain.ledger import Ledger, fold
from shared.domain.tally import Course
from tests.simulation.storms import CLUSTER, JOBS, NARROW, SMALL, stormy

HERE = "tests.simulation.mode_policies:"
ENGINES: tuple[Engine, ...] = ("conductor", "loop")
STARTUP_S = Settings().startup_s
CROWDED = msgspec.structs.replace(
    NARROW,
    cluster=msgspec.structs.replace(
        CLUSTER, nodes=[msgspec.structs.replace(group, count=1) for group in CLUSTER.nodes]
    ),
)
"""two GPUs of either type, for the same jobs"""


@cache
def ran(policy: str) -> Simulated:
    return simulate(load_scenario("tiny"), policy=f"{HERE}{policy}")


def modes_of(run: Simulated) -> set[type[Mode]]:
    return {type(fact.gang.sync) for fact in run.events if isinstance(fact, JobStarted)}


def notes_of(run: Simulated) -> set[str]:
    return {note for fact in run.events if isinstance(fact, PlanPublished) for note in fact.notes}


@pytest.mark.parametrize(("policy", "mode"), [("BySpeed", Proportional), ("InTurns", Relaxed)])
def test_a_policy_s_gangs_run_in_the_mode_it_plans(policy: str, mode: type[Mode]) -> None:
    run = ran(policy)
    assert run.result.jobs == {"submitted": 8, "completed": 8}
    assert audit(run.events, drained=True, seqs=run.seqs) == []
    assert modes_of(run) == {mode}
    assert notes_of(run) == set()


@pytest.mark.parametrize(("policy", "judged"), [("BySpeed", True), ("InTurns", False)])
def test_the_estimator_is_judged_by_gangs_that_it_answers_for(policy: str, judged: bool) -> None:  # noqa: FBT001
    assert bool(executions_of(ran(policy).events)) == judged


def test_waves_on_half_the_gpus_take_twice_the_time_or_so() -> None:
    starts = [fact for fact in ran("InTurns").events if isinstance(fact, JobStarted)]
    halved = [fact for fact in starts if fact.gang.sync != Relaxed(tasks=((1,) * fact.gang.gpus,))]
    assert halved, "the scenario has even counts"
    assert all(fact.global_batch % (2 * fact.gang.gpus) == 0 for fact in halved)


@cache
def waved(switching: Switching = "hare", engine: Engine = "conductor") -> Simulated:
    overrides = {"switching": switching, "minimum_run_restarts": 0.0, "restart_share_max": 1.0}
    return simulate(CROWDED, policy=f"{HERE}Waves", overrides=overrides, engine=engine)


def starts_of(run: Simulated) -> list[tuple[bool, float]]:
    """Of each start of a job: whether it has run on all these nodes before, and seconds from the order."""
    been: dict[JobId, set[NodeId]] = {}
    ordered: dict[PlacementId, float] = {}
    starts = []
    for fact in run.events:
        match fact:
            case StartOrdered(profile_iterations=0):
                ordered.setdefault(fact.placement_id, fact.at)
            case JobStarted():
                before = been.setdefault(fact.job_id, set())
                starts.append((before.issuperset(fact.gang.nodes), fact.at - ordered[fact.placement_id]))
                before.update(fact.gang.nodes)
            case _:
                pass
    return starts


def test_gangs_of_fewer_gpus_than_tasks_run_over_types_and_are_switched() -> None:
    run = waved()
    assert run.result.jobs == {"submitted": JOBS, "completed": JOBS}
    assert audit(run.events, drained=True, seqs=run.seqs) == []
    assert (modes_of(run), notes_of(run)) == ({Relaxed}, set())
    types = {fact.node.node_id: fact.node.gpu_type for fact in run.events if isinstance(fact, NodeJoined)}
    gangs_run = [fact.gang for fact in run.events if isinstance(fact, JobStarted)]
    assert any(len({types[node] for node in gang.nodes}) > 1 for gang in gangs_run)
    assert executions_of(run.events) == []


def test_only_the_first_start_on_a_node_costs_more_than_a_switch() -> None:
    """A job that comes back to a node with more GPUs than before has processes to start there, too."""
    starts = starts_of(waved())
    first_s = {seconds for been, seconds in starts if not been}
    again_s = [seconds for been, seconds in starts if been]
    assert min(first_s) == pytest.approx(STARTUP_S)
    assert len([seconds for seconds in again_s if seconds < 0.1]) > len(again_s) / 2 > 0


def test_how_jobs_are_switched_to_is_a_setting() -> None:
    quick_s, slow_s = (
        min(seconds for been, seconds in starts_of(waved(switching)) if been)
        for switching in ("hare", "default")
    )
    assert slow_s / quick_s == pytest.approx(5874.8 / 3.14, rel=0.01)


@cache
def turned(engine: Engine = "conductor") -> Simulated:
    return simulate(SMALL, policy=f"{HERE}Rotas", engine=engine)


def test_jobs_of_a_rota_share_gpus_and_take_other_turns_without_a_restart() -> None:
    run = turned()
    assert run.result.jobs == {"submitted": JOBS, "completed": JOBS}
    assert audit(run.events, drained=True, seqs=run.seqs) == []
    assert (modes_of(run), notes_of(run)) == ({Relaxed}, set())
    turned_on = {fact.placement_id for fact in run.events if isinstance(fact, TurnsOrdered)}
    restarts = sum(isinstance(fact, JobPreempted) for fact in run.events)
    assert len(turned_on) > restarts
    ledger = Ledger()
    most = 0
    for fact in run.events:
        fold(ledger, fact)
        for node in ledger.nodes.values():
            assert node.gpus_in_use <= node.node.gpus
            most = max(most, len(node.workers))
    assert most > 2, "on two GPUs"
    assert executions_of(run.events) == []


def test_jobs_of_a_rota_are_served_no_more_than_the_time_of_its_gpus() -> None:
    ledger = Ledger()
    for fact in turned().events:
        fold(ledger, fact)
        shares = Counter[NodeId]()
        for record in ledger.jobs.values():
            if record.present:
                shares.update(dict.fromkeys(record.present.gang.nodes, record.present.share))
        assert all(share <= 1.0 + 1e-6 for share in shares.values())


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("seed", range(6))
def test_a_storm_over_rotas_costs_only_time(seed: int, engine: Engine) -> None:
    """Leaders, followers and the placer are killed while jobs come, go and take other turns."""
    run = stormy(seed, f"{HERE}Rotas", engine)
    assert audit(run.events, drained=True, seqs=run.seqs) == []
    assert run.result.jobs == {"submitted": JOBS, "completed": JOBS}
    assert notes_of(run) == set()
    assert any(isinstance(fact, TurnsOrdered) for fact in run.events)


def test_both_engines_run_rotas_alike() -> None:
    assert turned().result.event_log_hash == turned("loop").result.event_log_hash


@cache
def apart(engine: Engine = "conductor") -> Simulated:
    return simulate(SMALL, policy=f"{HERE}Apart", engine=engine)


def test_jobs_of_a_rota_are_led_where_they_compute() -> None:
    run = apart()
    assert run.result.jobs == {"submitted": JOBS, "completed": JOBS}
    assert audit(run.events, drained=True, seqs=run.seqs) == []
    assert (modes_of(run), notes_of(run)) == ({Relaxed}, set())
    starts = [fact for fact in run.events if isinstance(fact, JobStarted)]
    assert {gangs.leader(fact.gang) == fact.gang.nodes[0] for fact in starts} == {True, False}
    computing = {fact.placement_id: gangs.computing(fact.gang).nodes for fact in starts}
    leaders = {
        (fact.placement_id, fact.node_id)
        for fact in run.events
        if isinstance(fact, WorkerCheckpointed) or (isinstance(fact, WorkerStopped) and fact.leads)
    }
    assert leaders
    assert all(node == computing[placement][0] for placement, node in leaders)


def test_both_engines_run_rotas_of_several_leaders_alike() -> None:
    assert apart().result.event_log_hash == apart("loop").result.event_log_hash


@pytest.mark.parametrize("seed", range(4))
def test_a_storm_over_rotas_of_several_leaders_costs_only_time(seed: int) -> None:
    run = stormy(seed, f"{HERE}Apart")
    assert audit(run.events, drained=True, seqs=run.seqs) == []
    assert run.result.jobs == {"submitted": JOBS, "completed": JOBS}


@cache
def copied(seed: int = 1, engine: Engine = "conductor") -> Simulated:
    return simulate(NARROW, policy=f"{HERE}Copies", seed=seed, engine=engine)


def test_copies_on_all_nodes_train_alone_and_are_merged_in_every_round() -> None:
    run = copied()
    assert run.result.jobs == {"submitted": JOBS, "completed": JOBS}
    assert audit(run.events, drained=True, seqs=run.seqs) == []
    assert (modes_of(run), notes_of(run)) == ({Forked}, set())
    starts = [fact for fact in run.events if isinstance(fact, JobStarted)]
    ends = [fact for fact in run.events if isinstance(fact, JobPreempted)]
    assert max(len(fact.gang.members) for fact in starts) > 2
    assert PreemptReason.MERGE in {fact.reason for fact in ends}
    assert run.result.metrics["restarts"] == sum(fact.reason is not PreemptReason.MERGE for fact in ends)
    outcomes = {fact.outcome for fact in run.events if isinstance(fact, WorkerStopped) and fact.leads}
    assert outcomes == {Outcome.QUOTA, Outcome.CHECKPOINTED}


def test_every_sample_is_done_once() -> None:
    """What the copies of all rounds did sums to each job's samples, but for parts of a batch at its end."""
    done: dict[JobId, float] = {}
    began: dict[tuple[PlacementId, NodeId], float] = {}
    samples = {}
    for fact in copied().events:
        match fact:
            case JobSubmitted(job_id=job_id, spec=spec):
                samples[job_id] = spec.samples
            case StartOrdered(until=float()):
                began[fact.placement_id, fact.node_id] = fact.samples_done
            case WorkerStopped(leads=True, job_id=job_id):
                own = fact.samples_done - began.pop((fact.placement_id, fact.node_id))
                done[job_id] = done.get(job_id, 0.0) + own
            case _:
                pass
    assert not began
    for job_id, whole in samples.items():
        assert whole * (1 - 1e-6) <= done[job_id] < whole + 256


@pytest.mark.parametrize("policy", [f"{HERE}Copies", "hadare", "hadare-literal"])
def test_no_job_has_done_more_than_it_is_to_do(policy: str) -> None:
    run = copied() if policy.startswith(HERE) else simulate(NARROW, policy=policy)
    ledger = Ledger()
    for fact in run.events:
        fold(ledger, fact)
        for job in ledger.jobs.values():
            assert job.samples_done <= job.spec.samples
    ends = [fact for fact in run.events if isinstance(fact, JobPreempted)]
    assert ends
    assert all(fact.samples_done <= ledger.jobs[fact.job_id].spec.samples for fact in ends)


def test_a_copy_is_judged_by_its_own_share_of_the_estimate() -> None:
    executions = executions_of(copied().events)
    copies = [one for one in executions if "/" in one.placement_id]
    assert len({one.placement_id for one in copies}) == len(copies) == len(executions)
    assert all(one.nodes == 1 for one in copies)
    assert all(one.error < 1.0 for one in copies if one.seconds > 60.0)


def test_a_mode_that_no_node_runs_is_refused_in_the_plan_and_never_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gangs, "with_copies", frozenset)
    run = simulate(NARROW, policy=f"{HERE}Copies")
    assert run.result.jobs == {"submitted": JOBS, "completed": JOBS}
    assert audit(run.events, drained=True, seqs=run.seqs) == []
    assert modes_of(run) == {Lockstep}
    assert any("runs no forked gangs; planned by fifo" in note for note in notes_of(run))
    assert not any(
        isinstance(placement.gang.sync, Forked)
        for fact in run.events
        if isinstance(fact, PlanPublished)
        for placement in fact.placements
    )
    assert not any(isinstance(fact, WorkerStopped) and "forked" in fact.reason for fact in run.events)


def test_a_job_that_lacks_the_mode_waits_for_another_policy_with_the_reason() -> None:
    scenario = load_scenario("tiny")
    first, *others = arrivals(scenario, seed=1)
    bound = msgspec.structs.replace(first.job, modes=[])
    listed = [
        ArrivingJob(at_s=first.at_s, job=bound),
        *(ArrivingJob(at_s=one.at_s, job=one.job) for one in others),
    ]
    later = [PolicyChange(at_s=3600.0, policy="fifo")]
    mixed = msgspec.structs.replace(scenario, workload=ListedWorkload(jobs=listed), policies=later)
    run = simulate(mixed, policy="hare")
    assert audit(run.events, drained=True, seqs=run.seqs) == []
    assert run.result.jobs == {"submitted": len(listed), "completed": len(listed)}
    specs = {fact.job_id: fact.spec for fact in run.events if isinstance(fact, JobSubmitted)}
    [own] = [job_id for job_id, spec in specs.items() if spec.modes]
    started = [fact for fact in run.events if isinstance(fact, JobStarted)]
    assert {type(fact.gang.sync) for fact in started if fact.job_id == own} == {Lockstep}
    assert Relaxed in {type(fact.gang.sync) for fact in started if fact.job_id != own}
    reasons = {
        one.detail
        for fact in run.events
        if isinstance(fact, PlanPublished)
        for one in fact.left_out
        if one.job_id == own and one.detail
    }
    assert reasons == {"it runs no relaxed gangs"}


@cache
def copied_in_a_storm(seed: int, engine: Engine) -> Simulated:
    return stormy(seed, f"{HERE}Copies", engine, NARROW)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("seed", range(10))
def test_a_storm_over_copies_costs_only_time(seed: int, engine: Engine) -> None:
    """Copies, agents and the placer that merges them are killed, whatever they are doing."""
    run = copied_in_a_storm(seed, engine)
    assert audit(run.events, drained=True, seqs=run.seqs) == []
    assert run.result.jobs == {"submitted": JOBS, "completed": JOBS}


@pytest.mark.parametrize("policy", ["hadare", "hadare-literal"])
@pytest.mark.parametrize("seed", range(3))
def test_a_storm_over_the_policy_that_forks_costs_only_time(seed: int, policy: str) -> None:
    run = stormy(seed, policy, scenario=NARROW)
    assert audit(run.events, drained=True, seqs=run.seqs) == []
    assert run.result.jobs == {"submitted": JOBS, "completed": JOBS}


def test_storms_take_copies_and_leave_the_others() -> None:
    """Or the storms above would say nothing."""
    ends: Counter[Course] = Counter()
    for seed in range(10):
        run = copied_in_a_storm(seed, "conductor")
        ledger = Ledger()
        for fact in run.events:
            fold(ledger, fact)
            if isinstance(fact, JobPreempted) and fact.reason is PreemptReason.MERGE:
                ends.update(one.course for one in ledger.jobs[fact.job_id].tally.leaders.values())
    assert ends[Course.LOST]
    assert ends[Course.SAVED]
    assert not ends[Course.RUNS]


@pytest.mark.parametrize("seed", [1, 2])
def test_both_engines_run_copies_alike(seed: int) -> None:
    assert copied(seed).result.event_log_hash == copied(seed, "loop").result.event_log_hash


@pytest.mark.parametrize("policy", ["BySpeed", "InTurns", "Waves"])
@pytest.mark.parametrize("seed", range(4))
def test_a_storm_over_other_modes_costs_only_time(seed: int, policy: str) -> None:
    run = stormy(seed, f"{HERE}{policy}")
    assert audit(run.events, drained=True, seqs=run.seqs) == []
    assert run.result.jobs == {"submitted": JOBS, "completed": JOBS}


def test_both_engines_run_the_policy_that_forks_alike() -> None:
    logs = {simulate(NARROW, policy="hadare", engine=engine).result.event_log_hash for engine in ENGINES}
    assert len(logs) == 1


@pytest.mark.parametrize("policy", ["BySpeed", "InTurns", "Waves"])
def test_both_engines_run_other_modes_alike(policy: str) -> None:
    logs = {
        simulate(SMALL, policy=f"{HERE}{policy}", engine=engine).result.event_log_hash for engine in ENGINES
    }
    assert len(logs) == 1
