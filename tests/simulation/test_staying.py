"""Whatever the policy: who has just started is left alone, and restarts have a budget."""

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from loadgen.fault_injection import Disturbance, Stack
from loadgen.simulation import Simulated, simulate
from schemas.base import Event
from schemas.events import JobPreempted, JobStarted, NodeLost, PlanPublished, PreemptReason, StopOrdered
from schemas.ids import PlacementId
from shared.domain.audit import audit
from tests.simulation.storms import SMALL

GPUS = 8
RESTART_S = 15.0
"""in the emulated world, and beforehand"""
SLACK = 1.001
RESTLESS = ("tests.simulation.restless:Restless", "tests.simulation.restless:Blind")
POLICIES = (*RESTLESS, "hops", "tiresias", "gavel")


def losing(node: str, at_s: float) -> Disturbance:
    """An agent ends, and comes back a while later."""

    async def disturb(stack: Stack) -> None:
        await stack.sleep(at_s)
        await stack.kill(node)
        await stack.sleep(300.0)
        stack.start(node)

    return disturb


def ran(
    policy: str, least: float, share: float, seed: int = 1, disturb: tuple[Disturbance, ...] = ()
) -> Simulated:
    own = {"minimum_run_restarts": least, "restart_share_max": share, "node_lease_real_s": 20.0}
    overrides = own | {"heartbeat_real_s": 5.0}
    done = simulate(SMALL, policy=policy, seed=seed, overrides=overrides, disturb=disturb)
    assert audit(done.events, drained=True, seqs=done.seqs) == []
    return done


def moved(events: list[Event]) -> Iterator[tuple[float, float, int]]:
    """Of every run that a plan ended: seconds it had run, when it was ordered to stop, and its GPUs."""
    starts: dict[PlacementId, JobStarted] = {}
    stops: dict[PlacementId, float] = {}
    for fact in events:
        match fact:
            case JobStarted():
                starts[fact.placement_id] = fact
            case StopOrdered():
                stops.setdefault(fact.placement_id, fact.at)
            case JobPreempted(reason=PreemptReason.PLAN):
                start, stop = starts[fact.placement_id], stops[fact.placement_id]
                yield stop - start.at, stop, start.gang.gpus
            case _:
                pass


def spent(events: list[Event]) -> list[tuple[float, float]]:
    """By time of the plans that ended runs: GPU-seconds of running that they cost."""
    costs: dict[float, float] = {}
    for _, at, gpus in moved(events):
        costs[at] = costs.get(at, 0.0) + gpus * RESTART_S
    return sorted(costs.items())


@settings(max_examples=12, suppress_health_check=[HealthCheck.too_slow])
@given(
    policy=st.sampled_from(POLICIES),
    least=st.sampled_from([0.0, 2.0, 8.0]),
    share=st.sampled_from([0.02, 0.2, 1.0]),
    seed=st.integers(1, 3),
    lost_at_s=st.sampled_from([None, 200.0, 700.0]),
)
@example(policy=RESTLESS[0], least=2.0, share=1.0, seed=3, lost_at_s=700.0)  # a stop is cut short
def test_the_limits_hold(policy: str, least: float, share: float, seed: int, lost_at_s: float | None) -> None:
    disturb = () if lost_at_s is None else (losing("agent-xp-0", lost_at_s),)
    events = ran(policy, least, share, seed, disturb).events
    lost = [fact.at for fact in events if isinstance(fact, NodeLost)]
    for ran_s, at, _ in moved(events):
        assert ran_s * SLACK >= least * RESTART_S or any(0 <= at - lost_at < RESTART_S for lost_at in lost)
    if share < 1:
        costs = spent(events)
        for first, (began, _) in enumerate(costs):
            for last in range(first + 1, len(costs)):
                until = costs[last][0]
                assert sum(cost for _, cost in costs[first:last]) <= share * GPUS * (until - began) * SLACK


@pytest.mark.parametrize("policy", RESTLESS)
def test_without_the_limits_the_same_policies_break_them(policy: str) -> None:
    events = ran(policy, 0.0, 1.0).events
    assert min(ran_s for ran_s, _, _ in moved(events)) < 2.0 * RESTART_S
    costs = spent(events)
    assert sum(cost for _, cost in costs[:-1]) > 0.1 * GPUS * (costs[-1][0] - costs[0][0])


def test_limits_leave_fewer_restarts_and_the_same_work() -> None:
    free, bound = ran(RESTLESS[0], 0.0, 1.0), ran(RESTLESS[0], 4.0, 0.05)
    assert len(spent(bound.events)) < len(spent(free.events)) / 4
    plans = [fact for fact in bound.events if isinstance(fact, PlanPublished)]
    assert not any(plan.notes for plan in plans)
