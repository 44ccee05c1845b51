"""Runs a simulation on asyncio: the shells of a live stack, over the memory bus, on a virtual event loop."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from loadgen.fault_injection import Disturbance
from loadgen.open_jobs import OpenJobs
from loadgen.replay import replay
from loadgen.stack import (
    EMULATED,
    RETRY_S,
    MemoryStack,
    Runners,
    WrapFactory,
    until_s,
    unwrapped,
)
from loadgen.submissions import Submissions
from schemas.cluster import Node
from schemas.scenarios import Arrival, PolicyChange
from schemas.settings import Settings
from schemas.subjects import FACT_SUBJECTS
from schemas.views import PolicyChoice
from services.admission.questions import OwnQuestion, SetPolicy
from shared.runtime.bus.contract import Record, Unavailable
from shared.runtime.bus.memory import Faults, MemoryBus
from shared.runtime.clock import LoopClock
from shared.runtime.shell import virtual


def run(
    settings: Settings,
    nodes: Sequence[Node],
    arrivals: Sequence[Arrival],
    faults: Faults | None,
    disturb: Sequence[Disturbance],
    *,
    policies: Sequence[PolicyChange] = (),
    runners: Runners = EMULATED,
    wrap: WrapFactory = unwrapped,
    submissions: Submissions,
) -> list[Record]:
    """All facts until every accepted job has ended, and to the end of that instant; each once."""
    return virtual.run(
        lambda: _run(
            settings,
            nodes,
            arrivals,
            faults,
            disturb,
            policies=policies,
            runners=runners,
            wrap=wrap,
            submissions=submissions,
        )
    )


async def _run(
    settings: Settings,
    nodes: Sequence[Node],
    arrivals: Sequence[Arrival],
    faults: Faults | None,
    disturb: Sequence[Disturbance],
    *,
    policies: Sequence[PolicyChange],
    runners: Runners,
    wrap: WrapFactory,
    submissions: Submissions,
) -> list[Record]:
    bus = MemoryBus(LoopClock(), faults)
    stack = MemoryStack(bus, settings, nodes, runners, wrap)
    for name in stack.names:
        stack.start(name)
    tasks = [asyncio.create_task(stack.watch())]
    beside = [replay(policies, _chooser(stack), LoopClock()), *(one(stack) for one in disturb)]
    tasks += [asyncio.create_task(_until_cancelled(one)) for one in beside]
    try:
        async with asyncio.timeout(until_s(arrivals)):
            workload = asyncio.create_task(_run_workload(bus, stack, settings, arrivals, submissions))
            await asyncio.wait({workload, *tasks}, return_when=asyncio.FIRST_COMPLETED)
            for task in (*tasks, workload):
                if task.done():
                    task.result()
            return await workload
    finally:
        for task in (workload, *tasks):
            task.cancel()
        await asyncio.wait({workload, *tasks})
        await stack.close()
        await bus.close()


async def _run_workload(
    bus: MemoryBus,
    stack: MemoryStack,
    settings: Settings,
    arrivals: Sequence[Arrival],
    submissions: Submissions,
) -> list[Record]:
    jobs = OpenJobs(settings.round_s)
    submitting = asyncio.create_task(replay(arrivals, _submitter(stack, submissions), LoopClock()))
    records: dict[str, Record] = {}
    seq, stored = 0, bus.read(0, FACT_SUBJECTS)
    while not (submitting.done() and jobs.over) or seq < await bus.last_seq():
        batch = await anext(stored)
        seq = batch.last
        for record in batch:
            records.setdefault(record.event.event_id, record)
            jobs.hear(record.event)
        if submitting.done() and jobs.over:
            await virtual.turn(virtual.LAST)
    submitting.result()
    return list(records.values())


def _submitter(stack: MemoryStack, submissions: Submissions) -> Callable[[Arrival], Awaitable[None]]:
    async def submit(arrival: Arrival) -> None:
        submissions.answered(arrival, await _ask(stack, submissions.of(arrival)))

    return submit


def _chooser(stack: MemoryStack) -> Callable[[PolicyChange], Awaitable[None]]:
    async def choose(change: PolicyChange) -> None:
        answer = await _ask(stack, SetPolicy(policy=change.policy))
        assert isinstance(answer, PolicyChoice), "the policies of a scenario are found before it begins"

    return choose


async def _ask(stack: MemoryStack, question: OwnQuestion) -> object:
    while True:
        try:
            return await stack.put_to("admission", question)
        except Unavailable:  # it was killed: asking again is harmless
            await asyncio.sleep(RETRY_S)


async def _until_cancelled(disturbance: Awaitable[None]) -> None:
    await disturbance
    await asyncio.get_running_loop().create_future()
