"""A simulation that ends with jobs that nobody places: its figures are about the time before."""

import msgspec
import pytest

from hopyard.lab.runs.outcomes import CURVE_STEP_S, simulated
from loadgen.simulation import Engine, Simulated, simulate
from loadgen.standstill import STUCK_S
from schemas.events import JobEvent
from schemas.scenarios import ArrivingJob, ListedWorkload
from tests.simulation.storms import SMALL, arriving

WIDE = arriving(60.0, "wide", 7, 900.0)
"""a job that fits on several GPU types together only, which gavel does not place"""
OTHERS = [arriving(0.0, "first", 1, 900.0), arriving(0.0, "second", 2, 900.0)]


def ran(*jobs: ArrivingJob) -> Simulated:
    scenario = msgspec.structs.replace(SMALL, workload=ListedWorkload(jobs=[*jobs]))
    return simulate(scenario, policy="gavel")


def test_a_job_that_is_never_placed_adds_no_day_to_figures() -> None:
    stuck, alone = ran(*OTHERS, WIDE), ran(*OTHERS)
    assert len(stuck.result.waiting) == 1
    last_s = max(event.at for event in stuck.events if isinstance(event, JobEvent))
    assert stuck.events[-1].at > last_s + STUCK_S
    for name in ("gru", "cru", "cluster_throughput_mean"):
        assert stuck.result.metrics[name] == pytest.approx(alone.result.metrics[name], rel=0.05)
    outcome = simulated(stuck.result, stuck.events, [])
    assert outcome.curve[-1].at == pytest.approx(last_s, abs=CURVE_STEP_S)
    assert max(plan.at for plan in outcome.plans) <= last_s
    assert len(outcome.plans) == stuck.result.plans.plans
    assert outcome.gpu_time is not None
    offered = sum(getattr(outcome.gpu_time, part) for part in outcome.gpu_time.__struct_fields__)
    assert offered == pytest.approx(len(outcome.gpu_types) * last_s, rel=0.01)


def test_a_run_in_which_every_job_ends_is_about_all_its_plans() -> None:
    whole = ran(*OTHERS)
    outcome = simulated(whole.result, whole.events, [])
    assert not whole.result.waiting
    assert len(outcome.plans) == sum(event.tag() == "plan.published" for event in whole.events)


@pytest.mark.parametrize("engine", ["conductor", "loop"])
def test_a_job_that_waits_for_a_round_longer_than_a_day_is_not_stuck(engine: Engine) -> None:
    scenario = msgspec.structs.replace(SMALL, workload=ListedWorkload(jobs=OTHERS))
    whole = simulate(scenario, policy="gavel", overrides={"round_s": 1.5 * STUCK_S}, engine=engine)
    assert not whole.result.waiting
    assert whole.result.jobs["completed"] == len(OTHERS)
