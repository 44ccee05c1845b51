"""A disk below checkpoints that hangs, or is gone and comes back, under real processes. Needs a mount."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path

import pytest

from schemas.events import StartOrdered
from schemas.ids import PlacementId
from services.agent.process.kernel import spawning
from services.agent.process.kernel.spawning import reach
from services.agent.process.own_thread import in_own_thread
from services.agent.tasks import Completed, Interrupted, NotStarted, Saved, Stopped
from tests.live.ext4_disk import Disk, disk_at
from tests.services.agent.process.process_bench import RunningNode, left_of, order, short_folder
from tests.stack_watch import LIMIT_S, Seconds

THERE, AWAY, LATER, NAMED = map(PlacementId, ("there", "away", "later", "named"))
MANY = 12
"""orders: more than asyncio has threads for what waits, on a machine of few cores"""


@pytest.fixture
async def node() -> AsyncIterator[RunningNode]:
    with short_folder() as folder:
        running = RunningNode(folder)
        await running.begin()
        yield running
        await running.end()
        assert left_of(running.folders) == []


@pytest.fixture
def disk(node: RunningNode) -> Iterator[Disk]:
    """Below the checkpoints of all jobs that name no folder."""
    node.folders.jobs.mkdir(exist_ok=True)
    with disk_at(node.folders.jobs, node.folders.run.parent / "image") as disk:
        yield disk


def elsewhere(node: RunningNode, name: PlacementId, *words: str) -> StartOrdered:
    return order(*words, name=name, checkpoint_folder=str(node.folders.run.parent / name))


def on_disk(node: RunningNode, name: PlacementId, *words: str) -> StartOrdered:
    return order(*words, name=name, checkpoint_folder=str(node.folders.jobs / name))


def saves(node: RunningNode, placement_id: PlacementId) -> int:
    return sum(report.placement_id == placement_id for report in node.of(Saved))


async def trained(node: RunningNode, one: StartOrdered, gpu: int) -> None:
    node.runner.start(one, (gpu,))
    await node.until(lambda: node.ups(one.placement_id) or node.last(one.placement_id))
    node.runner.train(one.placement_id, "")


async def saves_again(node: RunningNode, placement_id: PlacementId) -> None:
    saved = saves(node, placement_id)
    await node.until(lambda: saves(node, placement_id) > saved)


async def stopped(node: RunningNode, *places: PlacementId) -> None:
    for place in places:
        node.runner.stop(place)
    for place in places:
        assert isinstance(await node.ended(place), Stopped)


async def test_while_the_disk_hangs_others_start_and_then_all_go_on(node: RunningNode, disk: Disk) -> None:
    waiting = [PlacementId(f"waits-{number}") for number in range(MANY)]
    await trained(node, on_disk(node, THERE, "forever"), gpu=0)
    await trained(node, elsewhere(node, AWAY, "forever"), gpu=1)
    with disk.hanging():
        for gpu, name in enumerate(waiting, start=3):
            node.runner.start(on_disk(node, name, "forever"), (gpu,))
        await saves_again(node, AWAY)
        await trained(node, elsewhere(node, LATER, "iterations=1"), gpu=2)
        assert isinstance(await node.ended(LATER), Completed)
        assert not any(node.last(each) or node.ups(each) for each in waiting)
        assert node.last(THERE) is None
    back = Seconds()
    await saves_again(node, THERE)
    back.say("checkpoints' disk hangs no more: the next checkpoint")
    await node.until(lambda: all(node.ups(each) for each in waiting))
    back.say(f"checkpoints' disk hangs no more: {MANY} jobs started")
    await stopped(node, THERE, AWAY, *waiting)


async def test_while_the_disk_is_gone_starts_are_refused_with_the_reason_and_then_they_work(
    node: RunningNode, disk: Disk
) -> None:
    await trained(node, elsewhere(node, AWAY, "forever"), gpu=0)
    with disk.gone():
        node.runner.start(order("forever", name=THERE), (1,))
        refused = await node.ended(THERE)
        assert isinstance(refused, NotStarted)
        assert refused.reason.startswith(f"{node.folders.jobs}/")
        assert refused.reason.endswith(": Input/output error")
        node.runner.start(on_disk(node, NAMED, "forever"), (1,))
        own = await node.ended(NAMED)
        assert isinstance(own, Interrupted), "another job may have named a folder that is there"
        assert own.reason == f"cannot be started: {node.folders.jobs / NAMED}: Input/output error"
        await saves_again(node, AWAY)
    back = Seconds()
    await trained(node, on_disk(node, LATER, "iterations=1"), gpu=1)
    back.say("checkpoints' disk is back: a job started")
    assert isinstance(await node.ended(LATER), Completed)
    await stopped(node, AWAY)


async def test_a_folder_on_a_hanging_disk_is_a_timeout_though_the_helper_cannot_be_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spawning, "REACH_LIMIT_S", 0.5)
    (folder := tmp_path / "disk").mkdir()
    with disk_at(folder, tmp_path / "image") as disk, disk.hanging():
        async with asyncio.timeout(LIMIT_S):
            with pytest.raises(TimeoutError, match="Connection timed out"):
                await in_own_thread(partial(reach, folder / "made", None, make=True))
