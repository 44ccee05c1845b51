"""What a plan costs beside the solve, at 512 GPUs. Figures, and a generous bound."""

import time
from collections.abc import Callable
from typing import TypeVar

import pytest
from fact_builders import in_queue, joined
from planner_builders import MODELLED, linear

from schemas.plans import PlanKind
from schemas.settings import Settings
from services.planner.greedy import greedy
from services.planner.policies.hops import Hops
from services.planner.sight import view_of
from services.planner.state import State, fold

T = TypeVar("T")


def timed(name: str, work: Callable[[], T]) -> tuple[float, T]:
    began = time.perf_counter()
    result = work()
    seconds = time.perf_counter() - began
    print(f"{name}: {seconds * 1000:.0f} ms")
    return seconds, result


@pytest.mark.benchmark
def test_planning_150_jobs_on_64_nodes_is_cheap() -> None:
    state = State()
    for index in range(64):
        fold(state, joined(f"node-{index:02d}"))
    for index in range(150):
        for fact in in_queue(f"job-{index:03d}", demand=(1, 2, 3, 4, 6, 8, 12, 16)):
            fold(state, fact)
    policy = Hops(Settings(window_factor=1.0))
    view_s, view = timed(
        "view",
        lambda: view_of(state, kind=PlanKind.FIRST, at=100.0, round_s=360.0, policy="hops", effort=MODELLED),
    )
    wants_s, wanted = timed("configurations", lambda: policy.wants(view))
    estimates = linear(wanted)
    decide_s, decision = timed(
        "gains, program, greedy", lambda: policy.decide(view, wanted, estimates, lambda one, _: greedy(one))
    )
    print(f"{len(wanted)} configurations, {len(decision.choices)} placements")
    assert view_s + wants_s + decide_s < 1.0
