"""A stack of processes in which tests kill, stop and disconnect processes, and cause faults on nodes."""

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import nats
import pytest
from msgspec.structs import replace

from hopyard.actions.diagnose import diagnose
from hopyard.api.client import Client, LoggedEvent
from hopyard.api.connect import patiently
from hopyard.local.credentials import account_of
from hopyard.local.stack import Stack
from schemas.base import Event
from schemas.cluster import ClusterFile, GpuTypeFile, NodeGroup
from schemas.codec import encode
from schemas.events import JobStarted, NodeJoined
from schemas.ids import GpuType, JobId, NodeId
from schemas.jobs import Checkpoint, GpuRange, JobFile, Workload
from schemas.views import PolicyChoice, StatusView
from shared.domain.states import ENDED
from shared.runtime.bus.accounts import inbox_of
from tests.live.cable import Cable, cable
from tests.live.live_builders import stack_and_client
from tests.stack_watch import LIMIT_S, until

E = TypeVar("E", bound=Event)

XP = GpuType("titan-xp")
GPUS_PER_NODE = 2
CLUSTER = ClusterFile(
    name="fault-target",
    gpu_types={XP: GpuTypeFile(link_bandwidth=4.7e9, network_bandwidth=2.7e9)},
    nodes=[NodeGroup(prefix="xp", count=3, gpus=GPUS_PER_NODE, gpu_type=XP, server="w780-g")],
)
POLICY = "fifo-skipping"
LONG = 1e10
"""samples: for longer than any test"""
LOOK_EVERY_S = 0.1


class FaultTarget:
    def __init__(self, stack: Stack, client: Client, faults: Path) -> None:
        """`faults`: the folder of `FaultyRunner`."""
        self.stack = stack
        self.client = client
        self.faults = faults
        self.log: list[Event] = []
        """the facts read so far"""
        self._read = 0

    # ---- facts

    async def facts(self) -> list[Event]:
        """All facts up to now."""
        lines = await patiently(self._lines)
        self._read = lines[-1].seq if lines else self._read
        self.log += [line.fact() for line in lines]
        return self.log

    async def _lines(self) -> list[LoggedEvent]:
        return [line async for line in self.client.events(after=self._read)]

    async def fact(self, kind: type[E], fits: Callable[[E], bool], after: Event | None = None) -> E:
        """Wait for the first fact of a kind that fits, in the log behind `after`."""
        try:
            async with asyncio.timeout(LIMIT_S):
                while True:
                    facts = await self.facts()
                    start = 0 if after is None else facts.index(after) + 1
                    for fact in facts[start:]:
                        if isinstance(fact, kind) and fits(fact):
                            return fact
                    await asyncio.sleep(LOOK_EVERY_S)
        except TimeoutError:
            last = "\n".join(map(str, self.log[-40:]))
            raise AssertionError(f"no {kind.__name__} in {LIMIT_S:g} s; the last facts:\n{last}") from None

    def of(self, kind: type[E], job_id: JobId) -> list[E]:
        """Facts of a kind about a job, of those read so far."""
        return [fact for fact in self.log if isinstance(fact, kind) and getattr(fact, "job_id", "") == job_id]

    def of_kind(self, kind: type[E]) -> list[E]:
        return [fact for fact in self.log if isinstance(fact, kind)]

    async def started(self, job_id: JobId, after: Event | None = None) -> JobStarted:
        return await self.fact(JobStarted, lambda fact: fact.job_id == job_id, after)

    # ---- jobs

    async def submit(
        self,
        name: str,
        gpus: int | list[int] | GpuRange,
        *,
        samples: float = LONG,
        code: str = "known",
        project: str = "default",
        preemptible: bool = True,
    ) -> JobId:
        """`code`: version of the workload's code; `known` has been measured before."""
        job = JobFile(
            name=name,
            workload=Workload(model="resnet18", dataset="cifar10", batch_size=256, code_version=code),
            gpus=gpus,
            samples=samples,
            checkpoint=Checkpoint(interval_s=60.0),
            project=project,
            preemptible=preemptible,
        )
        return (await patiently(lambda: self.client.submit(job, name))).job_id

    async def cancel(self, *job_ids: JobId) -> None:
        for job_id in job_ids:
            await patiently(lambda job_id=job_id: self.client.cancel(job_id))  # type: ignore[misc]

    async def choose(self, policy: str) -> None:
        await patiently(lambda: self.client.set_policy(PolicyChoice(policy=policy)))

    # ---- faults

    def pid(self, name: str) -> int:
        return next(one.process.pid for one in self.stack.running if one.program.name == name)

    def kill(self, name: str) -> None:
        os.killpg(self.pid(name), signal.SIGKILL)

    @contextlib.asynccontextmanager
    async def through_cable(self, node_id: NodeId) -> AsyncIterator[Cable]:
        """A context in which a node's agent, restarted before and after, reaches NATS through a cable."""
        async with cable(self.stack.nats.port) as line:
            await self._restart_agent(node_id, f"nats://127.0.0.1:{line.port}")
            yield line
            line.mend()
            await self._restart_agent(node_id, self.stack.nats.url)

    async def _restart_agent(self, node_id: NodeId, nats_url: str) -> None:
        name, last = node_agent(node_id), (await self.facts())[-1]
        running = next(one for one in self.stack.running if one.program.name == name)
        environ = running.program.environ | {"HOPYARD_NATS_URL": nats_url}
        running.program = replace(running.program, environ=environ)
        self.kill(name)
        await self.fact(NodeJoined, lambda fact: fact.node_id == node_id, after=last)

    @contextlib.contextmanager
    def stopped(self, name: str) -> Iterator[None]:
        """A context in which a process is stopped; it goes on at the end, unless it was killed meanwhile."""
        group = self.pid(name)
        os.killpg(group, signal.SIGSTOP)
        try:
            yield
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(group, signal.SIGCONT)

    def wake(self, name: str) -> None:
        """Let a stopped process go on before the end of that context."""
        os.killpg(self.pid(name), signal.SIGCONT)

    @contextlib.contextmanager
    def faulty(self, what: str, how: object = "") -> Iterator[None]:
        """A context in which a file of `FaultyRunner` is there, unless the runner removes it."""
        written = self.faults / f".{what}"
        written.write_text(str(how))
        written.rename(self.faults / what)
        try:
            yield
        finally:
            (self.faults / what).unlink(missing_ok=True)

    async def publish(self, account: str, fact: Event) -> None:
        """Publish a fact with the credentials of a service."""
        own = msgspec.json.decode(account_of(self.stack.data, account).read_bytes(), type=dict[str, str])
        connection = await nats.connect(self.stack.nats.url, **own, inbox_prefix=inbox_of(account).encode())
        try:
            await connection.jetstream().publish(fact.subject, encode(fact), timeout=LIMIT_S)
        finally:
            await connection.close()

    # ---- afterwards

    async def cleared(self) -> None:
        """Cancel every job that has not ended, and wait until every GPU is free."""
        jobs = (await patiently(lambda: self.client.jobs(limit=1_000))).jobs
        await self.cancel(*(job.job_id for job in jobs if job.state not in ENDED))
        await until(self.client, _idle)

    async def breaks_no_rule(self) -> None:
        """Assert that `hopyard diag` finds no broken rule in the log."""
        with pytest.MonkeyPatch.context() as changes:
            changes.setenv("HOPYARD_API_TOKEN", self.stack.token)
            said = await patiently(lambda: diagnose(self.stack.api_url, self.stack.stack_file(), {}))
        log = next(check for check in said.checks if check.what == "event log")
        assert log.ok, log.detail


def _idle(status: StatusView) -> bool:
    whole = all(count == 0 for state, count in status.nodes.items() if state != "alive")
    return whole and all(used == 0 for used, _ in status.gpus.values())


@contextlib.asynccontextmanager
async def fault_target(folder: Path, **settings: str | float) -> AsyncIterator[FaultTarget]:
    """A running stack with one measured workload and no job."""
    faults = folder / "faults"
    faults.mkdir()
    with pytest.MonkeyPatch.context() as changes:
        changes.setenv("FAULTS_FOLDER", str(faults))
        chosen: dict[str, Any] = {
            "runner": f"{Path(__file__).with_name('faulty_runner.py')}:faulty",
            "policy": POLICY,
            "minimum_run_restarts": 0.0,
            "restart_share_max": 1.0,
            "interruptions_max": 1_000,
            **settings,
        }
        async with stack_and_client(folder / "data", cluster=CLUSTER, **chosen) as (stack, client):
            target = FaultTarget(stack, client, faults)
            await target.started(await target.submit("first", 1))
            await target.cleared()
            yield target


def node_agent(node_id: NodeId) -> str:
    return f"agent-{node_id}"
