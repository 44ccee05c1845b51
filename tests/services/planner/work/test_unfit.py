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
from services.planner.core.tasks import Known, Look, Unfit
from services.planner.solver import BACKENDS
from services.planner.solver.effort import Effort
from services.planner.work.policy_process import policy_process
from services.planner.work.workers import Workers
from shared.runtime.bus.memory import MemoryBus
from shared.runtime.clock import LoopClock
from shared.runtime.offload import INLINE, Beside, HelperProcess
from shared.runtime.service import Ports
from shared.runtime.shell.shell import Shell
from tests.fact_builders import config, in_queue, joined, opened
from tests.services.planner.work.workers_builders import SEEN, answer, planned

HERE = "tests.services.planner.unfit."
MISBEHAVES = HERE + "misbehaves:Misbehaves"
SETTINGS = Settings(
    policies_allowed="*",
    policy_load_real_s=2.0,
    policy_wants_real_s=1.0,
    solve_deadline_real_s=0.5,
    policy_memory_max_bytes=3 * 2**30,
    ask_timeout_real_s=2.0,
)
SEEN_LIVE = msgspec.structs.replace(SEEN, effort=Effort(budget_s=0.5))
NOT_FOUND = {
    "nonsense": "no such policy nonsense; there are ",
    "no.such.module:Policy": "ModuleNotFoundError",
    "json:no_such_name": "json has no no_such_name",
    "json:loads": "TypeError",
    "json:dumps+indent=2": "has no option indent; it has none",
    "hops+window_factor=wide": "option window_factor: it may be a number",
    HERE + "hangs:Policy": "no answer within 2 s",
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
    process = policy_process(SETTINGS, Beside())
    yield process
    process.end()


@pytest.fixture
async def workers(process: HelperProcess) -> AsyncIterator[Workers]:
    bus = MemoryBus(LoopClock())
    await bus.serve("estimator", ESTIMATOR, answer)
    yield Workers(SETTINGS, Ports(bus=bus, clock=LoopClock()), process)
    await bus.close()


async def looked(workers: Workers, policy: str) -> str:
    """Why it is unfit. Afterwards a fit one is fit."""
    found = await workers.look(Look(policy=policy))
    assert isinstance(found, Unfit)
    assert found.policy == policy
    assert isinstance(await workers.look(Look(policy="hops")), Known)
    return found.reason


@pytest.mark.parametrize("policy", NOT_FOUND)
async def test_a_policy_that_cannot_be_found_or_imported_is_unfit(workers: Workers, policy: str) -> None:
    assert NOT_FOUND[policy] in await looked(workers, policy)


@pytest.mark.parametrize("how", ENDS)
async def test_a_policy_that_cannot_be_built_is_unfit(workers: Workers, how: str) -> None:
    assert ENDS[how] in await looked(workers, f"{MISBEHAVES}+when=built+how={how}")


@pytest.mark.parametrize("how", ENDS)
async def test_a_policy_that_cannot_say_what_it_wants_is_stood_in_for(workers: Workers, how: str) -> None:
    ready, decision = await planned(workers, f"{MISBEHAVES}+when=wants+how={how}", SEEN_LIVE)
    assert ready.policy == "fifo"
    assert ENDS[how] in ready.notes[0]
    assert len(decision.choices) == 2


@pytest.mark.parametrize("how", ENDS)
async def test_a_policy_that_cannot_decide_is_stood_in_for(workers: Workers, how: str) -> None:
    _, decision = await planned(workers, f"{MISBEHAVES}+when=decides+how={how}", SEEN_LIVE)
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
    process = policy_process(Settings(solver=backend), Beside())  # type: ignore[arg-type]
    own = Workers(Settings(), Ports(bus=bus, clock=LoopClock()), process)
    seen = msgspec.structs.replace(SEEN, effort=Effort(gap=0.0, backend=backend))
    _, decision = await planned(own, "hops", seen)
    process.end()
    await bus.close()
    assert (decision.stage, decision.notes) == (Stage.OPTIMAL, ())


# ---- the whole planner


@contextlib.asynccontextmanager
async def planner(bus: MemoryBus) -> AsyncIterator[None]:
    """A life of the planner, as live: policies in a process of their own."""
    ports = Ports(bus=bus, clock=LoopClock(), offload=Beside())
    service = build(SETTINGS, ports)
    life = asyncio.create_task(Shell(service, ports, SETTINGS).run())
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
    async with asyncio.timeout(40.0):
        async for batch in bus.read(seq, ("hopyard.plan.*.*",)):
            for record in batch:
                assert isinstance(record.event, PlanPublished)
                return record.event
    raise AssertionError("the stream ended")


@pytest.mark.parametrize("policy", ["json:loads", HERE + "dies:Policy", f"{MISBEHAVES}+when=built+how=hangs"])
async def test_a_poisoned_planner_plans_on_and_says_so_now_and_after_a_restart(policy: str) -> None:
    bus = MemoryBus(LoopClock())
    await bus.serve("estimator", ESTIMATOR, answer)
    now = LoopClock().now()
    number = int(now // 360.0)
    begin = [joined(at=now), *in_queue(at=now, demand=(4,))]
    async with planner(bus):
        made = await plan_after(
            bus, *begin, PolicyChosen(at=now, policy=policy), opened(at=now, number=number)
        )
        assert made.placements[0].gang.configuration == config(node_1=4)
        assert (made.policy, len(made.notes)) == ("hops", 1)
        assert f"hops plans in place of {policy}" in made.notes[0]
    async with planner(bus):
        again = await plan_after(bus, *in_queue("job-2", at=now, demand=(2,)))
        assert again.placements[0].gang.configuration == config(node_1=2)
        assert f"hops plans in place of {policy}" in again.notes[0]
        healed = await plan_after(
            bus, PolicyChosen(at=now, policy="fifo"), *in_queue("job-3", at=now, demand=(2,))
        )
        assert healed.policy == "fifo"
    await bus.close()
