"""Every kind of unfit policy over the real process: set as the planner runs, and found in its log."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator

import msgspec
import pytest

from schemas.base import Event
from schemas.events import PlanPublished, PolicyChosen
from schemas.plans import Stage
from schemas.questions import ESTIMATOR
from schemas.settings import Settings
from services.planner.build import build
from services.planner.core.tasks import Known, Look, Prepare, Unfit
from services.planner.solver import BACKENDS
from services.planner.solver.effort import Effort
from services.planner.work.policy_process import policy_process
from services.planner.work.workers import Workers
from shared.runtime.bus.memory import MemoryBus
from shared.runtime.clock import LoopClock
from shared.runtime.offload import INLINE, HelperProcess, LiveOffload
from shared.runtime.service import Ports
from shared.runtime.shell.shell import Shell
from tests.fact_builders import config, in_queue, joined, opened
from tests.services.planner.work.workers_builders import SEEN, answer, decided, planned

HERE = "tests.services.planner.unfit."
MISBEHAVES = HERE + "misbehaves:Misbehaves"
PATIENT = Settings(
    policies_allowed="*",
    policy_load_real_s=60.0,
    policy_wants_real_s=60.0,
    estimate_timeout_real_s=60.0,
    solve_deadline_real_s=60.0,
    policy_memory_max_bytes=3 * 2**30,
)
"""No machine is so busy that a policy comes to these limits, unless it hangs."""
HURRIED = msgspec.structs.replace(PATIENT, policy_load_real_s=1.0, policy_wants_real_s=1.0)
PATIENT_VIEW = msgspec.structs.replace(SEEN, effort=Effort(budget_s=60.0))
HURRIED_VIEW = msgspec.structs.replace(SEEN, effort=Effort(budget_s=0.5))
NOT_FOUND = {
    "nonsense": "no such policy nonsense; there are ",
    "no.such.module:Policy": "ModuleNotFoundError",
    "json:no_such_name": "json has no no_such_name",
    "json:loads": "TypeError",
    "json:dumps+indent=2": "has no option indent; it has none",
    "hops+window_factor=wide": "option window_factor: it must be a number",
    HERE + "hangs:Policy": "no answer within 1 s",
    HERE + "dies:Policy": "the process ended with exit code 3",
}
ENDS = {
    "raises": "RuntimeError: out of ideas",
    "hangs": "no answer within",
    "exits": "SystemExit: 3",
    "dies": "the process ended with exit code 3",
    "eats": "the process ended with",
}


@pytest.fixture(scope="module")
def process() -> Iterator[HelperProcess]:
    process = policy_process(PATIENT, LiveOffload())
    yield process
    process.end()


@pytest.fixture
async def patient(process: HelperProcess) -> AsyncIterator[Workers]:
    bus = MemoryBus(LoopClock())
    await bus.serve("estimator", ESTIMATOR, answer)
    yield Workers(PATIENT, Ports(bus=bus, clock=LoopClock()), process, grace_real_s=60.0)
    await bus.close()


@pytest.fixture
async def hurried(process: HelperProcess) -> AsyncIterator[Workers]:
    """Of the same process, for what hangs."""
    bus = MemoryBus(LoopClock())
    await bus.serve("estimator", ESTIMATOR, answer)
    yield Workers(HURRIED, Ports(bus=bus, clock=LoopClock()), process, grace_real_s=0.5)
    await bus.close()


async def is_unfit(workers: Workers, policy: str, reason: str) -> None:
    found = await workers.look(Look(policy=policy))
    assert isinstance(found, Unfit)
    assert found.policy == policy
    assert reason in found.reason


async def is_fit(workers: Workers, policy: str) -> None:
    assert isinstance(await workers.look(Look(policy=policy)), Known)


@pytest.mark.parametrize("policy", NOT_FOUND)
async def test_a_policy_that_cannot_be_found_or_imported_is_unfit(
    patient: Workers, hurried: Workers, policy: str
) -> None:
    await is_unfit(hurried if "hangs" in policy else patient, policy, NOT_FOUND[policy])
    await is_fit(patient, "hops")


@pytest.mark.parametrize("how", ENDS)
async def test_a_policy_that_cannot_be_built_is_unfit(patient: Workers, hurried: Workers, how: str) -> None:
    policy = f"{MISBEHAVES}+when=built+how={how}"
    await is_unfit(hurried if how == "hangs" else patient, policy, ENDS[how])
    await is_fit(patient, "hops")


@pytest.mark.parametrize("how", ENDS)
async def test_a_policy_that_fails_in_its_first_step_is_stood_in_for(
    patient: Workers, hurried: Workers, how: str
) -> None:
    workers = hurried if how == "hangs" else patient
    ready, decision = await planned(workers, f"{MISBEHAVES}+when=wants+how={how}", PATIENT_VIEW)
    assert ready.policy == "fifo"
    assert ENDS[how] in ready.notes[0]
    assert len(decision.choices) == 2


@pytest.mark.parametrize("how", ENDS)
async def test_a_policy_that_cannot_decide_is_stood_in_for(
    patient: Workers, hurried: Workers, how: str
) -> None:
    policy = f"{MISBEHAVES}+when=decides+how={how}"
    ready = await patient.prepare(Prepare(number=1, policy=policy, view=PATIENT_VIEW))
    workers, seen = (hurried, HURRIED_VIEW) if how == "hangs" else (patient, PATIENT_VIEW)
    decision = await decided(workers, ready, seen)
    assert ENDS[how] in decision.notes[-1]
    assert "planned by fifo" in decision.notes[-1]
    assert len(decision.choices) == 2


async def test_a_name_that_the_operator_does_not_allow_is_not_even_imported() -> None:
    """`dies` would end this very process."""
    bus = MemoryBus(LoopClock())
    settings = Settings(policies_allowed="mine:Own")
    own = Workers(settings, Ports(bus=bus, clock=LoopClock()), policy_process(settings, INLINE))
    found = await own.look(Look(policy=HERE + "dies:Policy"))
    await bus.close()
    assert isinstance(found, Unfit)
    assert f"no such policy {HERE}dies:Policy; there are allox, allox-gang, exhaustive, " in found.reason


@pytest.mark.parametrize("backend", BACKENDS)
async def test_every_back_end_solves_within_the_memory_of_the_process(backend: str) -> None:
    bus = MemoryBus(LoopClock())
    await bus.serve("estimator", ESTIMATOR, answer)
    process = policy_process(Settings(solver=backend), LiveOffload())  # type: ignore[arg-type]
    own = Workers(PATIENT, Ports(bus=bus, clock=LoopClock()), process)
    seen = msgspec.structs.replace(SEEN, effort=Effort(gap=0.0, budget_s=60.0, backend=backend))
    _, decision = await planned(own, "hops", seen)
    process.end()
    await bus.close()
    assert (decision.stage, decision.notes) == (Stage.OPTIMAL, ())


# ---- the whole planner


@contextlib.asynccontextmanager
async def planner(bus: MemoryBus, settings: Settings) -> AsyncIterator[None]:
    """A life of the planner, as live: policies in a process of their own."""
    ports = Ports(bus=bus, clock=LoopClock(), offload=LiveOffload())
    service = build(settings, ports)
    life = asyncio.create_task(Shell(service, ports, settings).run())
    try:
        yield
        assert not life.done()
    finally:
        life.cancel()
        await asyncio.gather(life, return_exceptions=True)
        assert service.close is not None
        await service.close()


async def plan_after(bus: MemoryBus, *facts: Event) -> PlanPublished:
    seq = await bus.last_seq()
    await bus.publish(list(facts))
    async with asyncio.timeout(120.0):
        async for batch in bus.read(seq, ("hopyard.plan.*.*",)):
            for record in batch:
                assert isinstance(record.event, PlanPublished)
                return record.event
    raise AssertionError("the stream ended")


ENDLESS_S = 1e8
"""a round that does not end during the test: the next one would plan all jobs again"""


@pytest.mark.parametrize("policy", ["json:loads", HERE + "dies:Policy", f"{MISBEHAVES}+when=built+how=hangs"])
async def test_a_poisoned_planner_plans_on_and_says_so_now_and_after_a_restart(policy: str) -> None:
    bus = MemoryBus(LoopClock())
    await bus.serve("estimator", ESTIMATOR, answer)
    now = LoopClock().now()
    begin = [joined(at=now), *in_queue(at=now, demand=(4,))]
    settings = msgspec.structs.replace(
        PATIENT, policy_load_real_s=4.0 if "hangs" in policy else 60.0, round_s=ENDLESS_S
    )
    async with planner(bus, settings):
        made = await plan_after(bus, *begin, PolicyChosen(at=now, policy=policy), opened(at=now, number=0))
        assert made.placements[0].gang.configuration == config(node_1=4)
        assert (made.policy, len(made.notes)) == ("hops", 1)
        assert f"hops plans in place of {policy}" in made.notes[0]
    async with planner(bus, settings):
        again = await plan_after(bus, *in_queue("job-2", at=now, demand=(2,)))
        assert again.placements[0].gang.configuration == config(node_1=2)
        assert f"hops plans in place of {policy}" in again.notes[0]
        healed = await plan_after(
            bus, PolicyChosen(at=now, policy="fifo"), *in_queue("job-3", at=now, demand=(2,))
        )
        assert healed.policy == "fifo"
    await bus.close()
