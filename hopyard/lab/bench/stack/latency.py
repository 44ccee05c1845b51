"""Measures how long a job takes from submission to running, on an idle cluster of real processes.

Its workload is known, so nothing is profiled. The emulated processes start and stop in no time: what is
left is the system's own. A reader of the stream notes when each fact arrives. By the facts' own times the
delivery of the last fact is left out, and an order has the time of the plan that it follows.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path

from hopyard.api.client import Client
from hopyard.api.connect import connect
from hopyard.lab.bench.figures import Benchmark, Reading, spread
from hopyard.lab.bench.stack.history import WORKLOAD, end_s, history
from hopyard.lab.bench.stack.services import bus_to, store_log
from hopyard.local.processes import Say
from hopyard.local.stack import running_stack
from hopyard.local.stack_settings import SERVICES, StackSpec, settings_of
from loadgen.scenarios import load_cluster
from schemas.base import Event
from schemas.events import (
    JobEvent,
    JobQueued,
    JobStarted,
    JobSubmitted,
    PlanPublished,
    StartOrdered,
    WorkerStopped,
)
from schemas.ids import JobId
from schemas.jobs import JobFile
from schemas.subjects import FACT_SUBJECTS
from shared.domain.cluster import nodes_of
from shared.runtime.bus.contract import Record

JOBS = 20
CLUSTER = "tiny"
AT_ONCE = {"startup_s": 0.0, "checkpoint_s": 0.0}
FACT_LIMIT_S = 60.0
CALM_S = 0.5
"""between two jobs, beyond `fragment_settle_s`"""

STEPS: Sequence[tuple[str, type[Event], type[Event]]] = (
    ("submitted to queued", JobSubmitted, JobQueued),
    ("queued to planned", JobQueued, PlanPublished),
    ("planned to ordered", PlanPublished, StartOrdered),
    ("ordered to running", StartOrdered, JobStarted),
    ("submitted to running", JobSubmitted, JobStarted),
)


class Watch:
    """When each kind of fact about each job was first read, and the time that it carries. Unix time."""

    def __init__(self, facts: AsyncIterator[list[Record]]) -> None:
        self.seen: dict[tuple[type[Event], JobId], float] = {}
        self.dated: dict[tuple[type[Event], JobId], float] = {}
        self._facts = facts

    async def until(self, kind: type[Event], job_id: JobId) -> None:
        """Read on until such a fact about the job has come. Raises TimeoutError."""
        async with asyncio.timeout(FACT_LIMIT_S):
            while (kind, job_id) not in self.seen:
                batch = await anext(self._facts)
                self.note([record.event for record in batch], time.time())

    def note(self, facts: Sequence[Event], now: float) -> None:
        for fact in facts:
            for job_id in jobs_of(fact):
                self.seen.setdefault((type(fact), job_id), now)
                self.dated.setdefault((type(fact), job_id), fact.at)


def jobs_of(fact: Event) -> list[JobId]:
    """The jobs that a fact moves along."""
    match fact:
        case PlanPublished(placements=placements):
            return [placement.job_id for placement in placements]
        case JobEvent(job_id=job_id) | StartOrdered(job_id=job_id) | WorkerStopped(job_id=job_id):
            return [job_id]
        case _:
            return []


async def latency(data: Path, say: Say, jobs: int = JOBS) -> Benchmark:
    """Submit, wait until it runs, cancel: one job after the other."""
    cluster = load_cluster(CLUSTER)
    nodes = nodes_of(cluster)
    past = history(nodes, 1)
    await store_log(data / "nats", past, len(past), SERVICES)
    spec = StackSpec(data=data, cluster=cluster, clock_origin=time.time() - end_s(nodes, 1), chosen=AT_ONCE)
    calm_s = settings_of(spec).fragment_settle_s + CALM_S
    async with (
        running_stack(spec, say) as stack,
        connect(stack.api_url, stack.token) as client,
        bus_to(stack.nats.each[0], settings=stack.settings()) as bus,
    ):
        watch = Watch(bus.read(await bus.last_seq(), FACT_SUBJECTS))
        names = []
        for number in range(jobs):
            await asyncio.sleep(calm_s)
            names.append(await _one(number, client, watch))
    return Benchmark(
        name="latency",
        conditions=f"{jobs} jobs one by one on the idle cluster {CLUSTER}, workload known, startup_s 0, "
        f"fragment_settle_s {settings_of(spec).fragment_settle_s:g}",
        figures=tuple(figures(watch, names)),
    )


async def _one(number: int, client: Client, watch: Watch) -> JobId:
    """A job's way to running, and off again."""
    job = JobFile(name="bench", workload=WORKLOAD, gpus=[1, 2], samples=1e12)
    job_id = (await client.submit(job, f"bench-{number}")).job_id
    await watch.until(JobStarted, job_id)
    await client.cancel(job_id)
    await watch.until(WorkerStopped, job_id)
    return job_id


def figures(watch: Watch, jobs: Sequence[JobId]) -> list[Reading]:
    """The whole by the facts' own times; each step and the whole as they were seen."""
    ends = JobSubmitted, JobStarted
    return [
        *spread("submitted to running, by the facts' times", _between(watch.dated, *ends, jobs)),
        *(
            figure
            for name, first, last in STEPS
            for figure in spread(f"{name}, as seen", _between(watch.seen, first, last, jobs))
        ),
    ]


def _between(
    times: Mapping[tuple[type[Event], JobId], float],
    first: type[Event],
    last: type[Event],
    jobs: Sequence[JobId],
) -> list[float]:
    return [times[last, job_id] - times[first, job_id] for job_id in jobs]
