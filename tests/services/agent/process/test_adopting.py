"""Workers outlive their agent: the next one finds them, hears them, and sees how they end."""

import asyncio
import errno
import os
import signal

import pytest

from schemas.ids import PlacementId
from services.agent.process.gang.verdicts import MemoryState
from services.agent.process.launcher import Launcher
from services.agent.tasks import Completed, Interrupted, Saved, Started, Stopped
from tests.services.agent.process.process_bench import (
    P1,
    RunningNode,
    killed_agent,
    left_of,
    order,
    processes_of,
    short_folder,
)

P2 = PlacementId("p2")


async def test_a_gang_trains_on_under_the_next_agent() -> None:
    with short_folder() as folder:
        await killed_agent(folder, order("forever", gpus=2))
        node = RunningNode(folder)
        before = node.pids()
        await node.begin()
        assert node.adopted == (P1,)
        await node.until(lambda: node.of(Saved))
        assert node.pids() == before
        node.runner.stop(P1)
        last = await node.ended()
        assert isinstance(last, Stopped)
        assert last.samples_done >= node.of(Saved)[-1].samples_done
        await node.end()
        assert left_of(node.folders) == []


async def test_an_order_that_comes_as_soon_as_it_is_adopted_is_kept() -> None:
    """Before the runner runs, that is: an agent that begins has the orders that it missed."""
    with short_folder() as folder:
        await killed_agent(folder, order("forever"))
        node = RunningNode(folder)
        assert await node.runner.adopt() == (P1,)
        assert node.runner.running() == (P1,)
        node.runner.stop(P1)
        node.runner.start(order("iterations=1", name="p2"), (1,))
        await node.begin(adopts=False)
        assert isinstance(await node.ended(), Stopped)
        await node.until(lambda: node.ups(P2))
        await node.end()
        assert left_of(node.folders) == []


async def test_an_adopted_worker_that_waits_to_train_reports_again_that_it_is_up() -> None:
    with short_folder() as folder:
        await killed_agent(folder, order("iterations=3"), trains=False)
        node = RunningNode(folder)
        await node.begin()
        await node.until(lambda: node.of(Started))
        node.runner.train(P1, "")
        assert await node.ended() == Completed(P1, 1_000.0)
        await node.end()


async def test_a_worker_that_ended_without_an_agent_left_its_result() -> None:
    with short_folder() as folder:
        await killed_agent(folder, order("orphan", "iterations=1"))
        node = RunningNode(folder)
        await node.until(lambda: not processes_of(node.folders))
        await node.begin()
        assert await node.ended() == Completed(P1, 1_000.0)
        await node.end()
        assert left_of(node.folders) == []


async def test_a_worker_that_was_killed_without_an_agent_is_interrupted() -> None:
    with short_folder() as folder:
        await killed_agent(folder, order("forever", gpus=2))
        node = RunningNode(folder)
        os.kill(node.pids()[0], signal.SIGKILL)
        await node.begin()
        last = await node.ended()
        assert isinstance(last, Interrupted)
        assert last.reason.startswith("rank 0 ended unseen")
        await node.end()
        assert left_of(node.folders) == []


async def test_an_error_of_the_node_does_not_make_an_adopted_worker_one_that_never_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def no_memory(_: Launcher) -> MemoryState:
        raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))

    monkeypatch.setattr(Launcher, "memory", no_memory)
    with short_folder() as folder:
        await killed_agent(folder, order("forever"))
        node = RunningNode(folder)
        os.kill(node.pids()[0], signal.SIGKILL)
        await node.begin()
        assert await node.ended() == Interrupted(P1, "Cannot allocate memory")
        await node.end()


async def test_lines_printed_without_an_agent_are_kept() -> None:
    with short_folder() as folder:
        await killed_agent(folder, order("print=before", "orphan", "print=after", "iterations=1"))
        node = RunningNode(folder)
        await node.until(lambda: not processes_of(node.folders))
        await node.begin()
        await node.ended()
        assert node.lines() in (["after"], ["before", "after"])  # the agent that was killed may have read one
        await node.end()


async def test_an_agent_waits_for_the_one_before_it_and_no_longer() -> None:
    with short_folder() as folder:
        first, second = RunningNode(folder), RunningNode(folder)
        await first.begin()
        waiting = asyncio.create_task(second.begin())
        await asyncio.sleep(0.3)
        assert not waiting.done()
        await first.end()
        await waiting
        await second.end()
