"""A scenario's hours in seconds: the services themselves, on the memory bus and on virtual time.

Nothing here decides anything. Every service is built by its own `build`; only the bus, the clock and the
place where heavy work runs differ from a live stack.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence

import msgspec

from loadgen.replay import replay
from loadgen.results import run_result
from loadgen.scenarios import arrivals as arrivals_of
from loadgen.scenarios import load_cluster
from loadgen.stack import MemoryStack
from schemas.base import Event
from schemas.cluster import ClusterFile
from schemas.events import JobEvent
from schemas.ids import JobId
from schemas.results import RunResult
from schemas.scenarios import Arrival, ScenarioFile
from schemas.settings import Settings
from schemas.subjects import FACT_SUBJECTS
from schemas.views import Submitted
from services.admission.questions import Submit
from shared.domain.cluster import nodes_of
from shared.domain.states import ENDED, MOVES
from shared.runtime.bus import Record, Unavailable
from shared.runtime.clock import LoopClock
from shared.runtime.memory import Faults, MemoryBus
from shared.runtime.virtual import run

LONGEST_S = 365 * 24 * 3600.0
"""a simulation that is not over by then never will be"""

ENDINGS = frozenset(fact for fact, (_, after) in MOVES.items() if after in ENDED)

RETRY_S = 5.0

LEISURE: Mapping[str, float] = {"heartbeat_real_s": 300.0, "node_lease_real_s": 900.0, "lease_real_s": 300.0}
"""what a simulation does less often than a live stack: seconds that pass in no time cost the same work"""

Disturb = Callable[[MemoryStack], Awaitable[None]]
"""something that happens to the stack while it runs, as a task beside it"""


class Simulated(msgspec.Struct, frozen=True):
    result: RunResult
    events: list[Event]
    """each once, in the order of the stream"""
    seqs: list[int]
    """their sequences in the stream, which may hold repetitions"""


def simulate(
    scenario: ScenarioFile,
    *,
    policy: str | None = None,
    seed: int = 1,
    overrides: Mapping[str, str | float | bool] | None = None,
    faults: Faults | None = None,
    disturb: Disturb | None = None,
) -> Simulated:
    """Run a scenario to the end of its last job. A function of its arguments and the code's version."""
    began = time.perf_counter()
    chosen = {**LEISURE, **scenario.settings, **(overrides or {}), "seed": seed}
    settings = msgspec.convert(chosen | ({"policy": policy} if policy else {}), Settings)
    cluster = load_cluster(scenario.cluster) if isinstance(scenario.cluster, str) else scenario.cluster
    arrivals = arrivals_of(scenario, seed=seed)
    records = run(lambda: _run(settings, cluster, arrivals, faults, disturb))
    events = [record.event for record in records]
    result = run_result(
        events,
        scenario=scenario.name,
        policy=settings.policy,
        seed=seed,
        speed=None,
        settings=settings,
        wall_s=time.perf_counter() - began,
    )
    return Simulated(result, events, [record.seq for record in records])


async def _run(
    settings: Settings,
    cluster: ClusterFile,
    arrivals: Sequence[Arrival],
    faults: Faults | None,
    disturb: Disturb | None,
) -> list[Record]:
    bus = MemoryBus(LoopClock(), faults)
    stack = MemoryStack(bus, settings, nodes_of(cluster))
    for name in stack.names:
        stack.start(name)
    tasks = [asyncio.create_task(stack.watch())]
    if disturb is not None:
        tasks.append(asyncio.create_task(_until_cancelled(disturb(stack))))
    try:
        async with asyncio.timeout(LONGEST_S):
            story = asyncio.create_task(_story(bus, stack, arrivals))
            await asyncio.wait({story, *tasks}, return_when=asyncio.FIRST_COMPLETED)
            for task in (*tasks, story):
                if task.done():
                    task.result()
            return await story
    finally:
        for task in (story, *tasks):
            task.cancel()
        await asyncio.wait({story, *tasks})
        await stack.close()
        await bus.close()


async def _story(bus: MemoryBus, stack: MemoryStack, arrivals: Sequence[Arrival]) -> list[Record]:
    """All facts until every accepted job has ended, each once."""
    accepted: set[JobId] = set()
    submitting = asyncio.create_task(replay(arrivals, _submitter(stack, accepted), LoopClock()))
    records: dict[str, Record] = {}
    ended: set[JobId] = set()
    async for batch in bus.read(0, FACT_SUBJECTS):
        for record in batch:
            records.setdefault(record.event.event_id, record)
            if isinstance(record.event, JobEvent) and type(record.event) in ENDINGS:
                ended.add(record.event.job_id)
        if submitting.done() and accepted <= ended:
            submitting.result()
            break
    return list(records.values())


def _submitter(stack: MemoryStack, accepted: set[JobId]) -> Callable[[Arrival], Awaitable[None]]:
    async def submit(arrival: Arrival) -> None:
        key = f"{arrival.at_s}/{arrival.job.name}"
        while True:
            try:
                answer = await stack.shell("admission").ask(Submit(job=arrival.job, key=key))
            except Unavailable:  # it was killed: the same key makes asking again harmless
                await asyncio.sleep(RETRY_S)
            else:
                break
        if isinstance(answer, Submitted):
            accepted.add(answer.job_id)

    return submit


async def _until_cancelled(disturbance: Awaitable[None]) -> None:
    await disturbance
    await asyncio.get_running_loop().create_future()
