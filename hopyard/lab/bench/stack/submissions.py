"""Measures how many jobs a second the HTTP API accepts, each on the disk before it is answered.

All six services run and read what comes; there are no agents, so that no job can start.
"""

import asyncio
import itertools
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import NamedTuple

from hopyard.api.client import Client
from hopyard.api.connect import connect
from hopyard.failures import Failure
from hopyard.lab.bench.figures import Benchmark, rate, spread
from hopyard.lab.bench.stack.guard import Guard, with_tokens
from hopyard.lab.bench.stack.history import WORKLOAD
from hopyard.lab.bench.stack.services import Life, address, begin, bus_to, cpu_s, nats_server
from hopyard.local.stack_settings import SERVICES, StackSpec
from loadgen.scenarios import load_cluster
from schemas.events import JobSubmitted
from schemas.jobs import JobFile
from schemas.subjects import facts_of
from shared.runtime.bus.accounts import ADMISSION
from shared.runtime.bus.contract import Facts
from shared.runtime.process.nats_server import NatsServer

JOBS = 2_000
IN_FLIGHT = 64
CLUSTER = "tiny"
STORED_LIMIT_S = 30.0


class SubmissionTimes(NamedTuple):
    """How long all jobs took to be answered."""

    jobs: int
    times_s: list[float]
    """seconds to the answer, for each job"""
    took_s: float
    cpu_s: float
    """CPU seconds of NATS, the services and the client"""


async def submissions(data: Path, jobs: int = JOBS) -> Benchmark:
    taken = await submit_and_time(data, jobs, with_tokens(data))
    return Benchmark(
        name="submissions",
        conditions=f"{jobs} jobs, {IN_FLIGHT} requests in flight from one client, six services, no agents",
        figures=(rate("durable submissions", jobs / taken.took_s), *spread("answer", taken.times_s)),
    )


async def submit_and_time(data: Path, jobs: int, guard: Guard) -> SubmissionTimes:
    async with accepting_jobs(data, guard) as take:
        return await take(jobs)


@asynccontextmanager
async def accepting_jobs(
    data: Path, guard: Guard
) -> AsyncIterator[Callable[[int], Awaitable[SubmissionTimes]]]:
    """A function that submits a number of jobs and times them; at the end the stream must have them all."""
    spec = StackSpec(data=data, cluster=load_cluster(CLUSTER), clock_origin=time.time())
    numbers = itertools.count()
    async with nats_server(data / "nats", guard=guard) as server, _services(spec, server, guard) as lives:
        assert server.pid is not None
        pids = (server.pid, os.getpid(), *(life.pid for life in lives))
        async with connect(address(lives[0].port), guard.token()) as client:

            async def take(jobs: int) -> SubmissionTimes:
                before_s, began = sum(map(cpu_s, pids)), time.perf_counter()
                times_s = await submit_all(client, itertools.islice(numbers, jobs))
                took_s = time.perf_counter() - began
                return SubmissionTimes(jobs, times_s, took_s, sum(map(cpu_s, pids)) - before_s)

            yield take
        async with bus_to(server, settings=guard.settings(server.url, ADMISSION)) as bus:
            await _check_stored(bus, next(numbers))


@asynccontextmanager
async def _services(spec: StackSpec, server: NatsServer, guard: Guard) -> AsyncIterator[Sequence[Life]]:
    """A context in which all services run; yields them, admission first."""
    async with AsyncExitStack() as stack:
        async with asyncio.TaskGroup() as group:
            starting = [group.create_task(begin(name, spec, server, guard)) for name in SERVICES]
        lives = [task.result() for task in starting]
        for life in lives:
            stack.push_async_callback(life.stop)
        yield lives


async def submit_all(client: Client, numbers: Iterator[int]) -> list[float]:
    """Seconds until the answer, for each job."""
    times_s = list[float]()
    async with asyncio.TaskGroup() as group:
        for _ in range(IN_FLIGHT):
            group.create_task(_submit_some(client, numbers, times_s))
    return times_s


async def _submit_some(client: Client, numbers: Iterator[int], times_s: list[float]) -> None:
    job = JobFile(name="bench", workload=WORKLOAD, gpus=1, samples=1e6)
    for number in numbers:
        began = time.perf_counter()
        await client.submit(job, f"bench-{number}")
        times_s.append(time.perf_counter() - began)


async def _check_stored(facts: Facts, jobs: int) -> None:
    """Raises Failure unless the stream has every job."""
    stored = itertools.count()
    try:
        async with asyncio.timeout(STORED_LIMIT_S):
            async for batch in facts.read(0, facts_of("job")):
                ours = [next(stored) for record in batch if isinstance(record.event, JobSubmitted)]
                if ours and ours[-1] + 1 >= jobs:
                    return
    except TimeoutError:
        raise Failure(f"{jobs} submissions were answered, {next(stored)} are stored") from None
