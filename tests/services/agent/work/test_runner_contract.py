"""What every runner must keep to, whatever it runs. One that is added to `NODES` is held to it."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Protocol

import pytest

from schemas.events import StartOrdered
from schemas.ids import JobId, PlacementId
from services.agent.tasks import (
    Completed,
    Failed,
    LastReport,
    Profiled,
    Report,
    Started,
    Stopped,
)
from services.agent.work.emulated import EmulatedRunner
from services.agent.work.runner import Runner
from shared.runtime.clock import LoopClock
from tests.services.agent.agent_bench import FixedWorld, job, start
from tests.services.agent.process import process_bench

P1, P2 = PlacementId("p1"), PlacementId("p2")
LIMIT_S = 240.0


class ANode(Protocol):
    """A node with a runner that runs, and orders that it understands. A job has 1000 samples, or 1e9."""

    runner: Runner
    reports: list[Report]

    def short(self, name: str = "p1") -> StartOrdered:
        """Of a job that completes soon."""
        ...

    def endless(self, name: str = "p1") -> StartOrdered: ...

    def unfit(self, name: str = "p1") -> StartOrdered:
        """Of a job that fails."""
        ...

    def measured(self, iterations: int) -> StartOrdered: ...

    async def end(self) -> None:
        """Cancel `run`, and wait until it is over."""
        ...


class EmulatedNode:
    """Hundreds of samples in a moment; a model named `huge` fits nowhere."""

    def __init__(self) -> None:
        self.reports: list[Report] = []
        self.runner: Runner = EmulatedRunner(
            FixedWorld(), LoopClock(), startup_s=0.01, checkpoint_s=0.01, observe_every_s=0.05
        )
        self._running: asyncio.Task[None]

    async def begin(self) -> None:
        assert await self.runner.adopt() == ()
        self._running = asyncio.create_task(self.runner.run(self.reports.append, None))
        await asyncio.sleep(0)

    async def end(self) -> None:
        self._running.cancel()
        await asyncio.wait({self._running})

    def short(self, name: str = "p1") -> StartOrdered:
        return start(name, spec=job(samples=0.05))

    def endless(self, name: str = "p1") -> StartOrdered:
        return start(name, spec=job(samples=1e9))

    def unfit(self, name: str = "p1") -> StartOrdered:
        return start(name, spec=job(model="huge"))

    def measured(self, iterations: int) -> StartOrdered:
        return start(profile_iterations=iterations)


class ProcessNode:
    """Ranks in plain Python that speak as the plug-in does."""

    def __init__(self, node: process_bench.RunningNode) -> None:
        self.runner: Runner = node.runner
        self.reports = node.reports
        self._node = node

    async def end(self) -> None:
        await self._node.end()

    def short(self, name: str = "p1") -> StartOrdered:
        return process_bench.order("iterations=3", name=name)

    def endless(self, name: str = "p1") -> StartOrdered:
        return process_bench.order("forever", name=name)

    def unfit(self, name: str = "p1") -> StartOrdered:
        return process_bench.order("exit=3", name=name)

    def measured(self, iterations: int) -> StartOrdered:
        return process_bench.order(profile_iterations=iterations)


@asynccontextmanager
async def emulated() -> AsyncIterator[ANode]:
    node = EmulatedNode()
    await node.begin()
    yield node
    await node.end()


@asynccontextmanager
async def process() -> AsyncIterator[ANode]:
    async with process_bench.running_node() as node:
        yield ProcessNode(node)


Begin = Callable[[], AbstractAsyncContextManager[ANode]]
NODES: dict[str, Begin] = {
    "emulated": emulated,
    "process": process,
}


@pytest.fixture(params=NODES)
async def node(request: pytest.FixtureRequest) -> AsyncIterator[ANode]:
    async with NODES[request.param]() as there:
        yield there


async def until(there: Callable[[], object]) -> None:
    async with asyncio.timeout(LIMIT_S):
        while not there():
            await asyncio.sleep(0.005)


def about(node: ANode, placement_id: PlacementId = P1) -> list[Report]:
    return [report for report in node.reports if report.placement_id == placement_id]


def ended(node: ANode, placement_id: PlacementId = P1) -> bool:
    return any(isinstance(report, LastReport) for report in about(node, placement_id))


async def up(node: ANode, order: StartOrdered, gpu: int = 0) -> Started:
    node.runner.start(order, (gpu,))
    await until(lambda: about(node, order.placement_id))
    first = about(node, order.placement_id)[0]
    assert isinstance(first, Started)
    return first


async def trains(node: ANode, order: StartOrdered, gpu: int = 0) -> None:
    started = await up(node, order, gpu)
    node.runner.train(order.placement_id, started.meeting)


async def quiet(node: ANode) -> None:
    """Nothing is said of a worker after its last report."""
    await until(lambda: node.runner.running() == ())
    reports = list(node.reports)
    await asyncio.sleep(0.1)
    assert node.reports == reports
    last = [report.placement_id for report in reports if isinstance(report, LastReport)]
    assert len(set(last)) == len(last)


async def test_a_job_comes_up_trains_and_completes(node: ANode) -> None:
    order = node.short()
    await trains(node, order)
    await until(lambda: ended(node))
    assert about(node)[-1] == Completed(P1, order.spec.samples)
    await quiet(node)


async def test_a_job_does_not_train_before_its_gang_is_whole(node: ANode) -> None:
    await up(node, node.short())
    await asyncio.sleep(0.3)
    assert not ended(node)
    assert node.runner.running() == (P1,)


async def test_a_stopped_job_reports_its_saved_samples(node: ANode) -> None:
    await trains(node, node.endless())
    await until(lambda: node.runner.progress().get(JobId("job-of-p1"), 0.0) > 0.0)
    node.runner.stop(P1)
    await until(lambda: ended(node))
    last = about(node)[-1]
    assert isinstance(last, Stopped)
    assert 0.0 < last.samples_done < 1e9
    await quiet(node)
    assert node.runner.progress() == {}


async def test_a_job_that_is_stopped_before_it_is_up_has_a_last_report_too(node: ANode) -> None:
    node.runner.start(node.endless(), (0,))
    node.runner.stop(P1)
    await until(lambda: ended(node))
    assert about(node)[-1] == Stopped(P1, 0.0)
    await quiet(node)


async def test_a_job_that_fails_says_why(node: ANode) -> None:
    await trains(node, node.unfit())
    await until(lambda: ended(node))
    last = about(node)[-1]
    assert isinstance(last, Failed)
    assert last.reason
    await quiet(node)


async def test_a_measurement_needs_no_gang(node: ANode) -> None:
    node.runner.start(node.measured(7), (0,))
    await until(lambda: ended(node))
    last = about(node)[-1]
    assert isinstance(last, Profiled)
    assert len(last.measured.iteration_s) == 7
    await quiet(node)


async def test_a_repeated_call_changes_nothing(node: ANode) -> None:
    order = node.endless()
    started = await up(node, order)
    node.runner.start(order, (0,))
    for _ in range(2):
        node.runner.train(P1, started.meeting)
    await until(node.runner.progress)
    node.runner.train(P1, started.meeting)
    for _ in range(2):
        node.runner.stop(P1)
    node.runner.train(P1, started.meeting)
    await until(lambda: ended(node))
    assert sum(isinstance(report, Started) for report in about(node)) == 1
    await quiet(node)


async def test_a_call_about_an_unknown_worker_is_ignored(node: ANode) -> None:
    node.runner.train(P2, "")
    node.runner.stop(P2)
    await trains(node, node.short())
    await until(lambda: ended(node))
    node.runner.train(P1, "")
    node.runner.stop(P1)
    await quiet(node)
    assert about(node, P2) == []


async def test_workers_are_independent_of_one_another(node: ANode) -> None:
    await trains(node, node.endless("p2"), gpu=1)
    await trains(node, node.unfit())
    await until(lambda: ended(node))
    assert not ended(node, P2)
    assert P2 in node.runner.running()
    node.runner.stop(P2)
    await until(lambda: ended(node, P2))
    await quiet(node)


async def test_the_end_of_a_runner_is_the_end_of_its_workers(node: ANode) -> None:
    await trains(node, node.endless())
    await until(node.runner.progress)
    await node.end()
    assert node.runner.running() == ()
