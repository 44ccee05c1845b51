"""Gangs in modes that no policy that ships plans: they run, or they are refused and somebody says so."""

from functools import cache

import pytest

from loadgen.scenarios import load_scenario
from loadgen.simulation import Engine, Simulated, simulate
from schemas.events import JobStarted, PlanPublished, WorkerStopped
from schemas.placement import Forked, Lockstep, Mode, Proportional, Relaxed
from shared.domain.accuracy import executions_of
from shared.domain.audit import audit
from tests.simulation.storms import JOBS, SMALL, stormy

HERE = "tests.simulation.mode_policies:"
ENGINES: tuple[Engine, ...] = ("conductor", "loop")


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


def test_a_mode_that_no_node_runs_is_refused_in_the_plan_and_never_runs() -> None:
    run = ran("Copies")
    assert run.result.jobs == {"submitted": 8, "completed": 8}
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


@pytest.mark.parametrize("policy", ["BySpeed", "InTurns", "Copies"])
@pytest.mark.parametrize("seed", range(4))
def test_a_storm_over_other_modes_costs_time_and_nothing_else(seed: int, policy: str) -> None:
    run = stormy(seed, f"{HERE}{policy}")
    assert audit(run.events, drained=True, seqs=run.seqs) == []
    assert run.result.jobs == {"submitted": JOBS, "completed": JOBS}


@pytest.mark.parametrize("policy", ["BySpeed", "InTurns"])
def test_both_engines_run_other_modes_alike(policy: str) -> None:
    logs = {
        simulate(SMALL, policy=f"{HERE}{policy}", engine=engine).result.event_log_hash for engine in ENGINES
    }
    assert len(logs) == 1
