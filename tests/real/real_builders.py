"""A stack whose agents run real training jobs, on CPU slots that are paced like unlike GPUs."""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

import msgspec

from hopyard.api.client import Client
from hopyard.api.connect import connect
from hopyard.local.processes import Restarts
from hopyard.local.stack import Stack, running_stack
from hopyard.local.stack_settings import StackSpec, Value
from schemas.accuracy import Execution
from schemas.archive import VERSION as ARCHIVE
from schemas.archive import ExecutionLine, Header, encoded, entry_of
from schemas.base import Message, Question
from schemas.cluster import ClusterFile
from schemas.jobs import JobFile
from schemas.questions import ExportStore, StorePage
from services.agent.process.folders import Folders
from shared.runtime.bus.jetstream.connection import Connection
from shared.runtime.bus.jetstream.questions import JetStreamQuestions
from tests.torch_python import torch_python

M = TypeVar("M", bound=Message)

SCRIPTS = Path(__file__).parent / "scripts"
EPOCH = 2_048
"""samples in the data set of the paced script"""
BATCH = 16
"""samples per GPU and iteration"""

CLUSTER = {
    "name": "paced",
    "gpu_types": {
        "fast": {"link_bandwidth": 1e9, "network_bandwidth": 1e9},
        "slow": {"link_bandwidth": 1e9, "network_bandwidth": 1e9},
    },
    "nodes": [
        {"prefix": "fast", "count": 2, "gpus": 2, "gpu_type": "fast"},
        {"prefix": "slow", "count": 2, "gpus": 1, "gpu_type": "slow"},
    ],
}
"""four agents, six slots; the types' paces stand in the script"""

SETTINGS: Mapping[str, Value] = {
    "runner": "process",
    "round_s": 12.0,
    "observe_every_s": 4.0,
    "heartbeat_real_s": 0.5,
    "minimum_run_restarts": 0.0,
    "restart_share_max": 1.0,
    "restart_prior_s": 2.0,
    "profile_iterations": 12,
    "fragment_settle_s": 0.2,
}
GONE_LIMIT_S = 60.0


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """What one rank wrote of one step."""

    at: float
    """Unix time"""
    samples: float
    """of the gang, before the step"""
    world: int
    loss: float
    """of samples that are always the same, before the step"""
    indices: list[int]
    placement: str
    rank: int


def cluster(**changes: object) -> ClusterFile:
    return msgspec.convert({**CLUSTER, **changes}, ClusterFile)


@asynccontextmanager
async def real_stack(
    data: Path, of: ClusterFile | None = None, **settings: Value
) -> AsyncIterator[tuple[Stack, Client]]:
    spec = StackSpec(
        data=data,
        cluster=of or cluster(),
        clock_origin=time.time(),
        settings={
            **SETTINGS,
            "jobs_folder": str(data / "jobs"),
            "run_folder": str(data / "run"),
            **settings,
        },
        restarts=Restarts(most=20, backoff_s=0.05),
    )
    async with running_stack(spec, print) as stack, connect(stack.api_url, stack.token) as client:
        yield stack, client


def job_file(
    name: str,
    ledger: Path,
    *,
    script: str = "paced.py",
    model: str = "paced",
    environment: Mapping[str, str] | None = None,
    **more: object,
) -> JobFile:
    """A job of one of the scripts; `more`: other fields of the file."""
    written = {
        "name": name,
        "workload": {"model": model, "dataset": "line", "batch_size": BATCH, "dataset_samples": EPOCH},
        "command": [str(torch_python()), str(SCRIPTS / script)],
        "gpus": 1,
        "samples": 2_000,
        "checkpoint": {"interval_s": 5, "grace_s": 10},
        "environment": {"LEDGER": str(ledger / name), "PYTHONUNBUFFERED": "1", **(environment or {})},
        **more,
    }
    return msgspec.convert(written, JobFile)


def steps_of(ledger: Path) -> list[Step]:
    """Steps of every rank and placement of a job, in the order of samples and time."""
    lines = [line for file in sorted(ledger.glob("*.jsonl")) for line in file.read_text().splitlines()]
    steps = [msgspec.json.decode(line, type=Step) for line in lines]
    return sorted(steps, key=lambda step: (step.samples, step.at))


async def asked(stack: Stack, question: Question, kind: type[M]) -> M:
    """The answer of the service that the question is for."""
    connection = Connection(stack.settings(), "tests")
    try:
        await connection.open(5.0)
        reply = await JetStreamQuestions(connection).ask(question, 120.0)
    finally:
        await connection.close()
    assert isinstance(reply, kind), reply
    return reply


async def exported(stack: Stack) -> list[bytes]:
    """What the estimator knows, as the lines of an export."""
    lines = [encoded(Header(version=ARCHIVE))]
    after: int | None = 0
    while after is not None:
        page = await asked(stack, ExportStore(after=after), StorePage)
        lines += page.lines
        after = page.next
    return lines


def executions_in(export: list[bytes]) -> list[Execution]:
    entries = [entry_of(line) for line in export[1:]]
    return [entry.execution for entry in entries if isinstance(entry, ExecutionLine)]


# ---- what a stack leaves behind


def left_behind(data: Path) -> list[str]:
    """Processes, sockets and control groups that belong to the stack of a folder."""
    mark = str(data).encode()
    found = []
    for process in Path("/proc").iterdir():
        if process.name.isdecimal() and int(process.name) != os.getpid():
            try:
                belongs = mark in (process / "environ").read_bytes()
                belongs = belongs or mark in (process / "cmdline").read_bytes()
                if belongs and (process / "stat").read_text().rpartition(")")[2].split()[0] != "Z":
                    found.append((process / "cmdline").read_bytes().replace(b"\0", b" ").decode())
            except OSError:
                continue
    found += [str(path) for path in (data / "run").rglob("*.sock")]
    groups = {Folders(run=run, jobs=data).groups for run in (data / "run").glob("*")}
    return found + [str(path) for path in Path("/sys/fs/cgroup").rglob("hopyard-*") if path.name in groups]


async def nothing_left(data: Path) -> None:
    """Waits for the last processes to go. Raises TimeoutError with what stays."""
    began = time.monotonic()
    while left := left_behind(data):
        if time.monotonic() - began > GONE_LIMIT_S:
            raise TimeoutError(f"left behind: {left}")
        await asyncio.sleep(0.2)
