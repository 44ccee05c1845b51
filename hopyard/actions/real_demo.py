"""`hopyard demo --real`: four small training jobs on CPU slots of this machine, from start to end."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from hopyard.actions.up import on_terminal
from hopyard.api.client import Client
from hopyard.api.connect import connect, patiently
from hopyard.failures import Failure
from hopyard.local.processes import Say
from hopyard.local.stack import running_stack
from hopyard.local.stack_settings import StackSpec, Value
from hopyard.local.torch_python import TorchInterpreter
from hopyard.show.columns import Column, Listing
from hopyard.show.events import fact_line
from hopyard.show.jobs import place_parts
from hopyard.show.tables import state_text
from hopyard.show.times import Times
from hopyard.show.units import duration, share
from schemas.base import Message
from schemas.cluster import ClusterFile
from schemas.events import JobCompleted, JobFailed, JobPreempted, JobProfiled, JobRejected, JobStarted
from schemas.ids import JobId
from schemas.jobs import JobFile
from schemas.overview import RunView
from schemas.views import JobView
from shared.domain.audit import Violation, audit
from shared.domain.states import ENDED, JobState

LOOK_EVERY_S = 1.0
LONG_ENOUGH_S = 5.0
"""shorter runs are not compared with estimates"""
BYTES_PER_S = 1e9
"""bytes/s of an all-reduce through the memory of one machine"""

CLUSTER = {
    "name": "this-machine",
    "gpu_types": {
        name: {"link_bandwidth": BYTES_PER_S, "network_bandwidth": BYTES_PER_S}
        for name in ("swift", "steady")
    },
    "nodes": [
        {"prefix": "swift", "count": 2, "gpus": 2, "gpu_type": "swift"},
        {"prefix": "steady", "count": 1, "gpus": 2, "gpu_type": "steady"},
    ],
}
"""six CPU slots on three nodes; the jobs' script defines how fast each type is"""
SETTINGS: Mapping[str, Value] = {
    "runner": "process",
    "gpus": "cpu:2",  # slots of the CPU also where the machine has GPUs
    "round_s": 12.0,
    "observe_every_s": 4.0,
    "profile_iterations": 12,
    "restart_prior_s": 3.0,
    "minimum_run_restarts": 2.0,
    "restart_share_max": 0.25,
    "start_timeout_real_s": 180.0,
}
"""rounds and costs for jobs that take a minute, not hours"""


class DemoJob(msgspec.Struct, frozen=True):
    name: str
    after_s: float
    """seconds after the start at which the job is submitted"""
    gpus: tuple[int, ...]
    samples: int


JOBS = (
    DemoJob("shapes", 0.0, (1, 2, 4), 40_000),
    DemoJob("spirals", 3.0, (1, 2), 14_000),
    DemoJob("sums", 18.0, (1, 2), 10_000),
    DemoJob("waves", 24.0, (1,), 8_000),
)
BATCH, EPOCH = 32, 4_096
"""batch size and samples of an epoch, as in the script"""
SHOWN = (JobProfiled, JobStarted, JobPreempted, JobCompleted, JobFailed, JobRejected)


class RealDemoSpec(msgspec.Struct, frozen=True, kw_only=True):
    data: Path
    run: Path
    """folder for sockets, whose paths must be short"""
    found: TorchInterpreter
    limit_s: float


class RealDemoJob(Message, frozen=True, kw_only=True):
    job: JobView
    runs: tuple[RunView, ...]


class RealDemoResult(Message, frozen=True, kw_only=True):
    torch: str
    took_s: float
    facts: int
    jobs: tuple[RealDemoJob, ...]
    violations: tuple[Violation, ...]
    """what the audit of the event log found: nothing, if all is well"""

    def complete(self) -> bool:
        return all(one.job.state == JobState.COMPLETED for one in self.jobs)


async def run_real_demo(spec: RealDemoSpec, say: Say) -> RealDemoResult:
    """Raises Failure; whatever happens, the stack is gone and its jobs with it."""
    try:
        async with asyncio.timeout(spec.limit_s):
            return await _run(spec, say)
    except TimeoutError:
        raise Failure(f"not done after {spec.limit_s:g} s; --limit allows more") from None


async def _run(spec: RealDemoSpec, say: Say) -> RealDemoResult:
    began = time.monotonic()
    async with running_stack(_stack_spec(spec), say) as stack, connect(stack.api_url, stack.token) as client:
        say(f"page to watch in a browser, while it runs: {on_terminal(stack)}")
        ids = await _to_the_end(client, spec, say)
        jobs = [await _job(client, job_id) for job_id in ids]
        lines = [line async for line in client.events()]
    facts = [line.fact() for line in lines]
    return RealDemoResult(
        torch=spec.found.torch,
        took_s=time.monotonic() - began,
        facts=len(facts),
        jobs=tuple(jobs),
        violations=tuple(audit(facts, drained=True, seqs=[line.seq for line in lines])),
    )


def _stack_spec(spec: RealDemoSpec) -> StackSpec:
    chosen = {"jobs_folder": str(spec.data / "jobs"), "run_folder": str(spec.run)}
    return StackSpec(
        data=spec.data,
        cluster=msgspec.convert(CLUSTER, ClusterFile),
        clock_origin=time.time(),
        chosen={**SETTINGS, **chosen},
    )


async def _to_the_end(client: Client, spec: RealDemoSpec, say: Say) -> list[JobId]:
    """Submit the jobs, and print what happens until the last has ended."""
    watching = asyncio.ensure_future(_print(client, say))
    began = time.monotonic()
    try:
        ids = [await _submitted(client, job, began, spec) for job in JOBS]
        while not await _all_ended(client, ids):  # noqa: ASYNC110 - the event is elsewhere
            await asyncio.sleep(LOOK_EVERY_S)
    finally:
        watching.cancel()
    return ids


async def _submitted(client: Client, job: DemoJob, began: float, spec: RealDemoSpec) -> JobId:
    """Submit a job at its time."""
    await asyncio.sleep(max(began + job.after_s - time.monotonic(), 0.0))
    return (await patiently(lambda: client.submit(job_file(job, spec), job.name))).job_id


def job_file(job: DemoJob, spec: RealDemoSpec) -> JobFile:
    written = {
        "name": job.name,
        "workload": {
            "model": job.name,
            "dataset": "made-up",
            "batch_size": BATCH,
            "dataset_samples": EPOCH,
            "optimizer": "adam",
        },
        "gpus": list(job.gpus),
        "samples": job.samples,
        "command": [str(spec.found.python), "-m", "hopjob.demo", job.name],
        "working_directory": str(spec.data),
        "checkpoint": {"interval_s": 5, "grace_s": 5},
    }
    return msgspec.convert(written, JobFile)


async def _all_ended(client: Client, ids: Sequence[JobId]) -> bool:
    page = await patiently(client.jobs)
    return {job.job_id for job in page.jobs if job.state in ENDED}.issuperset(ids)


async def _job(client: Client, job_id: JobId) -> RealDemoJob:
    return RealDemoJob(job=await client.job(job_id), runs=(await client.runs(job_id)).runs)


async def _print(client: Client, say: Say) -> None:
    """Print what happens to jobs, a line a fact. If that fails, the run goes on."""
    try:
        async for line in client.events(follow=True):
            if isinstance(fact := line.fact(), SHOWN):
                say(fact_line(fact, Times(client.clock)))
    except Failure as error:
        say(f"what happens is no longer printed: {error}")


# ---- the table


def real_demo_table(result: RealDemoResult) -> Listing[RealDemoJob]:
    columns = (
        Column[RealDemoJob]("job", lambda one: one.job.job_id),
        Column[RealDemoJob]("outcome", lambda one: state_text(one.job.state)),
        Column[RealDemoJob]("took", _took, right=True),
        Column[RealDemoJob]("ran on", _places, cut=16, parts="places"),
        Column[RealDemoJob](
            "start", lambda one: _mean([run.start_s for run in one.runs]), right=True, spare=3
        ),
        Column[RealDemoJob]("stop", lambda one: _mean([run.stop_s for run in one.runs]), right=True, spare=2),
        Column[RealDemoJob]("accuracy", lambda one: share(accuracy(one.runs)), right=True, spare=1),
    )
    return Listing(columns, result.jobs)


def _took(one: RealDemoJob) -> str:
    ended = one.job.ended_at
    return duration(None if ended is None else ended - one.job.submitted_at)


def _mean(lengths_s: Sequence[float | None]) -> str:
    known = [each for each in lengths_s if each is not None]
    return duration(sum(known) / len(known)) if known else ""


def _places(one: RealDemoJob) -> tuple[str, ...]:
    return tuple("+".join(place_parts(run.gang)) for run in one.runs)


def accuracy(runs: Sequence[RunView]) -> float | None:
    """1 − |estimated − measured| / measured throughput: mean over long enough runs, by length."""
    found = [
        (ran_s, 1 - abs(estimated - measured) / measured)
        for run in runs
        if (measured := run.measured_throughput)
        and (estimated := run.estimated_throughput)
        and (ran_s := (run.ended_at or run.started_at) - run.started_at) >= LONG_ENOUGH_S
    ]
    total_s = sum(ran_s for ran_s, _ in found)
    return sum(ran_s * right for ran_s, right in found) / total_s if total_s else None
