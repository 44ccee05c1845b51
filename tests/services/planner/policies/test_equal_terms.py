"""All policies on equal terms: they are shown the same, and what they decide costs them the same."""

import msgspec
import pytest

from schemas.plans import PlanKind
from schemas.questions import ESTIMATOR
from schemas.settings import Settings
from services.placer.core import Placer
from services.planner.core.planner import Planner
from services.planner.core.tasks import Leadership, Look, Prepare
from services.planner.policies.contract.view import View
from services.planner.policies.registry import Registry, names, options_kind
from services.planner.work.policy_process import policy_process
from services.planner.work.steps import looked_at
from services.planner.work.workers import Workers
from services.profiler.build import build as build_profiler
from shared.domain import gangs
from shared.domain.core import Effects, Work
from shared.runtime.bus.memory import MemoryBus
from shared.runtime.clock import LoopClock
from shared.runtime.offload import INLINE
from shared.runtime.service import Ports
from tests.fact_builders import in_queue, joined, opened, placement, plan, profile_run, queued, submitted
from tests.services.planner.planner_builders import MODELLED, decide, job, node, nodes, view
from tests.services.planner.work.workers_builders import answer, planned

FACTS = [
    joined(),
    joined("node-2"),
    *in_queue("job-1", at=1.0, demand=(2, 4)),
    *in_queue("job-2", at=2.0, demand=(1,), project="other"),
    opened(profile_run("job-3"), at=3.0),
]


def shown(policy: str) -> View:
    """What the policy sees of the same cluster at the opening of a round."""
    settings = Settings(policy=policy)
    core = Planner(settings, effort=MODELLED, grace_s=2.0)
    core.handle(looked_at(Registry(), Look(policy=policy)), 0.0)
    for fact in FACTS:
        core.handle(fact, fact.at)
    effects: Effects = core.handle(Leadership(token=1), 3.0)
    (task,) = (effect.task for effect in effects if isinstance(effect, Work))
    assert isinstance(task, Prepare)
    assert task.view.kind == PlanKind.FIRST
    return task.view


@pytest.mark.parametrize("policy", names())
def test_every_policy_is_shown_the_same(policy: str) -> None:
    assert shown(policy) == shown("hops")


@pytest.mark.parametrize("policy", names())
async def test_every_decision_takes_the_time_that_it_is_reckoned_to_take(policy: str) -> None:
    slept: list[float] = []

    class Clock(LoopClock):
        async def sleep(self, cluster_s: float) -> None:
            slept.append(cluster_s)

    bus = MemoryBus(LoopClock())
    await bus.serve("estimator", ESTIMATOR, answer)
    settings = Settings()
    workers = Workers(settings, Ports(bus=bus, clock=Clock()), policy_process(settings, INLINE))
    seen = view([job("x", (3, 5)), job("y", (3, 5))], nodes(7), effort=MODELLED)
    _, decision = await planned(workers, policy, seen)
    await bus.close()
    assert slept == [decision.solve_s]
    assert decision.solve_s > 0


def test_the_placer_gives_the_same_orders_for_every_policy() -> None:
    """Starts, checkpoints and restarts cost what they cost: the placer orders the same."""
    orders = []
    for policy in ("hops", "fifo"):
        core = Placer(start_timeout_s=60.0, profile_iterations=20)
        known = [joined(), submitted("job-1"), queued("job-1")]
        first = plan(placement("job-1"), policy=policy)
        moved = msgspec.structs.replace(plan(policy=policy, at=9.0), plan_id="plan-2")
        orders.append([core.handle(fact, fact.at) for fact in (*known, first, moved)])
    assert orders[0] == orders[1]
    assert any(orders[0])


async def test_the_profiler_subscribes_to_neither_policies_nor_plans() -> None:
    """Profiling comes before every plan and takes the same GPUs for the same time, whatever the policy."""
    bus = MemoryBus(LoopClock())
    ports = Ports(bus=bus, clock=LoopClock())
    heard = {subject.split(".")[1] for subject in build_profiler(Settings(), ports).facts}
    await bus.close()
    assert heard == {"job", "round", "profile", "placement", "node", "worker"}


RIGID = [name for name in names() if "rigid_demand" in options_kind(name).__struct_fields__]


@pytest.mark.parametrize("policy", RIGID)
def test_a_measurement_makes_no_rigid_job_narrower(policy: str) -> None:
    """One GPU of the node is measured on. A job that is not moved later would keep the smaller count."""
    a0 = msgspec.structs.replace(node("a0", 3, gpus=4), modes=("lockstep", "relaxed", "forked"))
    decision = decide(policy, view([job("x", (2, 3, 4))], [a0]), rigid_demand="max")
    for choice in decision.choices:
        assert gangs.global_batch(choice.gang, 1) == 4
