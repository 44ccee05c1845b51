"""Workers that share a GPU, as processes: one has the turn at a time, and who dies or hangs loses it."""

import asyncio
import json
import os
import signal
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from schemas.events import StartOrdered
from schemas.ids import NodeId, PlacementId, RotaId
from schemas.placement import Gang, Relaxed
from services.agent.tasks import Interrupted, Stopped
from tests.services.agent.agent_bench import HERE
from tests.services.agent.process.process_bench import (
    RunningNode,
    cpu_node,
    killed_agent,
    order,
    running_node,
    short_folder,
)

pytestmark = pytest.mark.asyncio

A, B, C = (PlacementId(name) for name in "abc")
TURN_S = 0.02
Line = dict[str, Any]


def in_rota(
    name: str, *words: str, tasks: Sequence[int] = (1,), turns: int = 1, place: int = 0
) -> StartOrdered:
    """Of a rank that takes turns of a fiftieth of a second for ever, unless `words` say otherwise."""
    gang = Gang.of(
        {HERE: len(tasks)},
        Relaxed(tasks=(tuple(tasks),), rota=RotaId("r"), turns=turns, place=place),
    )
    of = order(*(words or (f"turns={TURN_S}",)), name=name)
    return msgspec.structs.replace(of, gang=gang)


def lines_of(node: RunningNode, gpu: int = 0) -> list[Line]:
    log = node.folders.turns(gpu)
    return [json.loads(line) for line in log.read_text("utf-8").splitlines()] if log.exists() else []


def granted(node: RunningNode, gpu: int = 0) -> list[str]:
    return [line["placement"] for line in lines_of(node, gpu) if line["what"] == "granted"]


def one_at_a_time(lines: list[Line]) -> None:
    """A turn begins when no other has begun and not ended, and only its holder can end it."""
    holder: tuple[str, int] | None = None
    for before, line in zip([{"at": 0.0}, *lines], lines, strict=False):
        turn = line["placement"], line["round"]
        assert line["at"] >= before["at"]
        match line["what"]:
            case "began":
                holder = None
            case "granted" | "found":
                assert holder is None, line
                holder = turn
            case "lost":  # it has it until it is gone
                assert holder == turn, line
            case _:
                assert holder == turn, line
                holder = None


async def turns(node: RunningNode, of: PlacementId, more: int = 5, gpu: int = 0) -> None:
    """Wait until it had so many more."""
    had = granted(node, gpu).count(of)
    await node.until(lambda: node.last(of) is not None or granted(node, gpu).count(of) >= had + more)
    assert node.last(of) is None


async def stopped(node: RunningNode, *placements: PlacementId) -> None:
    for one in placements:
        node.runner.stop(one)
    for one in placements:
        assert isinstance(await node.ended(one), Stopped)
    one_at_a_time(lines_of(node))


async def test_workers_have_the_gpu_by_the_rota() -> None:
    async with running_node() as node:
        for each in (in_rota("a", turns=2), in_rota("b", place=1)):
            await node.trained(each)
        await turns(node, A, 20)
        had = granted(node)
        begin = had.index(B) + 6
        assert 1.5 < had[begin:].count(A) / had[begin:].count(B) < 2.5
        shared = in_rota("b", turns=0, place=1).gang
        node.runner.turn(B, shared)
        await asyncio.sleep(3 * TURN_S)
        of_b = granted(node).count(B)
        await turns(node, A, 20)
        assert granted(node).count(B) <= of_b + 1
        await stopped(node, A, B)


async def test_a_gpu_without_a_task_of_the_job_is_the_others() -> None:
    async with running_node() as node:
        await node.trained(in_rota("a", tasks=(1, 1)))
        await node.trained(in_rota("b", tasks=(0, 2), place=1))
        await turns(node, B, gpu=1)
        assert set(granted(node)) == {A}
        assert set(granted(node, 1)) == {A, B}
        await stopped(node, A, B)


async def test_a_node_of_the_rota_without_a_task_of_the_job_has_no_process_of_it() -> None:
    one = msgspec.structs.replace(cpu_node(1), node_id=NodeId("a-node"))
    gang = Gang.of({one.node_id: 1, HERE: 1}, Relaxed(tasks=((2,), (0,)), rota=RotaId("r")))
    of = msgspec.structs.replace(order("iterations=1", name="a"), gang=gang, nodes=(one, cpu_node(1)))
    async with running_node() as node:
        node.runner.start(of, (0,))
        await node.until(lambda: node.ups(A))
        node.runner.train(A, "10.0.0.1:4711")
        assert node.pids(A) == []
        await node.trained(in_rota("b", place=1))
        await turns(node, B)
        await stopped(node, A, B)


async def test_an_agent_takes_over_a_worker_without_a_process() -> None:
    """Or its placement would be withdrawn, though the job trains on elsewhere."""
    one = msgspec.structs.replace(cpu_node(1), node_id=NodeId("a-node"))
    gang = Gang.of({one.node_id: 1, HERE: 1}, Relaxed(tasks=((2,), (0,)), rota=RotaId("r")))
    of = msgspec.structs.replace(order("iterations=1", name="a"), gang=gang, nodes=(one, cpu_node(1)))
    with short_folder() as folder:
        await killed_agent(folder, of, trains=False)
        node = RunningNode(folder)
        await node.begin()
        try:
            assert node.adopted == (A,)
            await node.until(lambda: node.runner.running() == (A,))
            node.runner.train(A, "10.0.0.1:4711")
            await node.trained(in_rota("b", place=1))
            await turns(node, B)
            assert node.last(A) is None
            await stopped(node, A, B)
            assert [path.name for path in node.folders.workers.iterdir()] == []
        finally:
            await node.end()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
async def test_a_worker_that_dies_or_hangs_in_its_turn_loses_it_and_the_others_go_on(number: int) -> None:
    async with running_node(turn_limit_s=1.0) as node:
        for name in "abc":
            await node.trained(in_rota(name, "turns=0.1"))
        await turns(node, B, 2)

        def has_turn() -> bool:
            newest = lines_of(node)[-1]
            return bool(newest["what"] == "granted" and newest["placement"] == B)

        await node.until(has_turn)
        [pid] = node.pids(B)
        os.kill(pid, number)
        last = await node.ended(B)
        assert isinstance(last, Interrupted)
        of_b = [line["what"] for line in lines_of(node) if line["placement"] == B]
        if number == signal.SIGSTOP:
            assert "kept its turn for more than 1 s" in last.reason
            assert of_b[-2:] == ["lost", "ended"]
        await turns(node, A)
        await turns(node, C)
        assert granted(node).count(B) == of_b.count("granted")
        await stopped(node, A, C)


async def test_a_worker_that_does_not_fit_is_refused_with_the_numbers() -> None:
    async with running_node() as node:
        await node.trained(in_rota("a", "memory-of-gpu=6e9", f"turns={TURN_S}"))
        await turns(node, A)
        await node.trained(in_rota("b", "memory-of-gpu=5e9", f"turns={TURN_S}"))
        last = await node.ended(B)
        assert isinstance(last, Interrupted)
        assert "2 jobs that take turns keep 11.0 GB on a GPU" in last.reason
        assert "of 10.0 GB" in last.reason
        assert B not in granted(node)
        await turns(node, A)
        await stopped(node, A)


async def test_a_worker_whose_memory_does_not_fit_is_ended_after_its_first_turn() -> None:
    async with running_node() as node:
        await node.trained(in_rota("a", "memory-of-gpu=3e9", f"turns={TURN_S}"))
        await turns(node, A)
        await node.trained(in_rota("b", "memory-of-gpu=2e9", "peak-of-gpu=8e9", f"turns={TURN_S}", place=1))
        last = await node.ended(B)
        assert isinstance(last, Interrupted)
        assert "2 jobs that take turns keep 5.0 GB on a GPU" in last.reason
        assert granted(node).count(B) == 1
        await turns(node, A)
        await stopped(node, A)


async def test_others_wait_until_a_rota_is_gone_and_it_for_others() -> None:
    async with running_node() as node:
        await node.trained(in_rota("a"))
        await turns(node, A)
        node.runner.start(order("iterations=1", name="own"), (0,))
        await asyncio.sleep(0.3)
        assert node.ups(PlacementId("own")) == []
        node.runner.stop(A)
        await node.until(lambda: node.ups(PlacementId("own")))
        assert isinstance(node.last(A), Stopped)
        node.runner.stop(PlacementId("own"))
        await node.ended(PlacementId("own"))


async def test_an_agent_that_takes_over_asks_who_has_the_turn() -> None:
    with short_folder() as folder:
        await killed_agent(folder, in_rota("a", "turns=0.3"))
        node = RunningNode(folder)
        await node.begin()
        try:
            assert node.adopted == (A,)
            node.runner.train(A, "")
            await node.trained(in_rota("b", place=1))
            await turns(node, A, 2)
            await turns(node, B, 2)
            await stopped(node, A, B)
        finally:
            await node.end()
