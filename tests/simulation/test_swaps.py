"""Policies that take turns in one run: gangs of mixed types, unlike shares, copies, and none of it."""

from collections.abc import Sequence
from functools import cache

import msgspec
import pytest

from loadgen.scenarios import load_scenario
from loadgen.simulation import Engine, Simulated, simulate
from schemas.events import JobStarted, PlanPublished, PolicyChosen
from schemas.placement import Forked, Lockstep, Proportional
from schemas.scenarios import PoissonWorkload, PolicyChange, ScenarioFile
from services.planner.policies.registry import UnfitPolicy
from shared.domain.audit import audit
from tests.simulation.storms import JOBS, NARROW, stormy

ENGINES: tuple[Engine, ...] = ("conductor", "loop")
TURNS = ("hops", "hadar", "jps", "hadare", "gavel", "sia")


def in_turns(scenario: ScenarioFile, every_s: float, policies: Sequence[str] = TURNS[1:]) -> ScenarioFile:
    changes = [PolicyChange(at_s=every_s * (place + 1), policy=name) for place, name in enumerate(policies)]
    return msgspec.structs.replace(scenario, policies=changes)


def larger() -> ScenarioFile:
    """40 jobs of two hours' worth on nodes of eight or fewer GPUs; each policy has a sixth of the time."""
    hops = load_scenario("hops-64")
    assert isinstance(hops.workload, PoissonWorkload)
    few = msgspec.structs.replace(hops.workload, count=40)
    return in_turns(msgspec.structs.replace(hops, workload=few), 8000.0)


@cache
def ran(name: str, engine: Engine = "conductor") -> Simulated:
    scenario = in_turns(load_scenario("tiny"), 400.0) if name == "tiny" else larger()
    return simulate(scenario, policy=TURNS[0], engine=engine)


def planners(run: Simulated) -> list[str]:
    """Who planned, in the order of the first plan of each stretch."""
    names = [fact.policy for fact in run.events if isinstance(fact, PlanPublished)]
    return [name for place, name in enumerate(names) if place == 0 or names[place - 1] != name]


@pytest.mark.parametrize("name", ["tiny", "larger"])
def test_policies_take_over_from_one_another(name: str) -> None:
    run = ran(name)
    assert run.result.jobs["completed"] == run.result.jobs["submitted"]
    assert audit(run.events, drained=True, seqs=run.seqs) == []
    chosen = [(fact.at, fact.policy) for fact in run.events if isinstance(fact, PolicyChosen)]
    assert [policy for _, policy in chosen] == list(TURNS[1:])
    assert planners(run) == list(TURNS), "each plans until the next one is chosen, and no stand-in"
    modes = {type(fact.gang.sync) for fact in run.events if isinstance(fact, JobStarted)}
    assert modes >= {Lockstep, Proportional, Forked}


@pytest.mark.parametrize("name", ["tiny", pytest.param("larger", marks=pytest.mark.slow)])
def test_both_engines_change_policies_alike(name: str) -> None:
    one, other = (ran(name, engine).result for engine in ENGINES)
    assert one.event_log_hash == other.event_log_hash


@pytest.mark.parametrize("engine", ENGINES)
def test_policies_take_turns_in_a_storm(engine: Engine) -> None:
    """Admission, too, is killed now and then."""
    run = stormy(3, TURNS[0], engine, in_turns(NARROW, 250.0))
    assert audit(run.events, drained=True, seqs=run.seqs) == []
    assert run.result.jobs == {"submitted": JOBS, "completed": JOBS}
    assert len({fact.policy for fact in run.events if isinstance(fact, PlanPublished)}) > 2


def test_a_policy_of_one_s_own_may_be_chosen_later() -> None:
    name = "tests.simulation.mode_policies:BySpeed"
    run = simulate(in_turns(load_scenario("tiny"), 480.0, [name]), policy="fifo")
    assert planners(run) == ["fifo", name]
    assert run.result.policy == f"fifo, {name} from 480 s"


def test_a_policy_change_after_the_last_job_changes_nothing() -> None:
    plain = simulate(load_scenario("tiny"), policy="fifo").result
    late = simulate(in_turns(load_scenario("tiny"), 1e6, ["hops"]), policy="fifo").result
    assert late.event_log_hash == plain.event_log_hash


def test_a_policy_that_cannot_plan_is_refused_before_anything_runs() -> None:
    with pytest.raises(UnfitPolicy, match="no-such"):
        simulate(in_turns(load_scenario("tiny"), 480.0, ["no-such"]))
