"""The stack as processes over a real NATS server: it runs, is swapped, is killed, and ends well."""

import asyncio
import os
import signal
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import aiohttp
import pytest

from hopyard.actions.scenario import cluster_of
from hopyard.api.client import Client
from hopyard.failures import Failure
from hopyard.local.processes import Restarts
from hopyard.local.stack import Stack, running_stack
from hopyard.local.stack_settings import SERVICES, StackSpec
from loadgen.scenarios import arrivals, load_scenario
from schemas.base import Event
from schemas.events import (
    JobCompleted,
    JobEvent,
    JobStarted,
    JobSubmitted,
    PlanPublished,
    PolicyChosen,
    ProfileEvent,
    ProfileMeasured,
)
from schemas.ids import JobId
from schemas.views import PolicyChoice, StatusView
from shared.domain.audit import audit
from tests.live.live_builders import QUICK, all_ended, stack_and_client, submit_all
from tests.live.replayed import unlike_a_replay
from tests.stack_watch import LIMIT_S, LOOK_AFTER_S, Seconds, busy, log_of, until


async def ready(port: int) -> None:
    """Wait until a service says it is ready."""
    async with asyncio.timeout(LIMIT_S), aiohttp.ClientSession() as session:
        while True:
            try:
                async with session.get(f"http://127.0.0.1:{port}/readyz") as answer:
                    if answer.status == 200:
                        return
            except aiohttp.ClientError:
                pass
            await asyncio.sleep(0.1)


async def kill(stack: Stack, name: str) -> None:
    """kill -9, and wait until its next life is ready."""
    running = next(running for running in stack.running if running.program.name == name)
    before = running.process.pid
    os.kill(before, signal.SIGKILL)
    killed = Seconds()
    async with asyncio.timeout(LIMIT_S):
        while running.process.pid == before:
            await asyncio.sleep(0.05)
    await ready(stack.ports[name])
    killed.say(f"{name} killed: ready")


async def kill_nats(stack: Stack) -> None:
    stack.nats.kill()
    killed = Seconds()
    async with asyncio.timeout(LIMIT_S):
        while not stack.nats.running():
            await asyncio.sleep(0.05)
    await asyncio.gather(*(ready(stack.ports[name]) for name in SERVICES))
    killed.say("NATS killed: every service ready")


def assert_ended_well(events: list[Event], count: int) -> None:
    assert audit(events, drained=True) == []
    assert len({event.job_id for event in events if isinstance(event, JobCompleted)}) == count


def open_to_others(data: Path) -> list[str]:
    """What in a stack's folder anybody but its owner can open."""
    return [str(path) for path in (data, *data.rglob("*")) if path.stat().st_mode & 0o077]


async def test_jobs_go_in_at_one_end_and_train_at_the_other_through_a_swap_of_policy(tmp_path: Path) -> None:
    data = tmp_path / "data"
    async with stack_and_client(data, speed=QUICK) as (_, client):
        held = (await client.submit(arrivals(load_scenario("tiny"), seed=1)[0].job, "held", hold=True)).job_id
        count = await submit_all(client)
        await until(client, busy_or(all_ended(count)))
        for policy in ("fifo", "hops"):
            await client.set_policy(PolicyChoice(policy=policy))
            await until(client, lambda status, policy=policy: status.policy == policy)  # type: ignore[misc]
            count += await submit_all(client, f"under-{policy}", most=1)  # the others may all have ended
            await planned_by(client, policy)
        await until(client, all_ended(count))
        own = [type(fact) for fact in await log_of(client) if is_about(fact, held)]
        assert own[0] is JobSubmitted
        assert not {ProfileMeasured, JobStarted}.intersection(own)
        await client.release(held)
        count += 1
        await until(client, all_ended(count))
        events = await log_of(client)
        for job_id in {event.job_id for event in events if isinstance(event, JobCompleted)}:
            lines = [line async for line in client.output(job_id, newest=1_000, rank=0)]
            assert lines[0].text.startswith("emulated: ")
            assert any(line.text.startswith("complete: ") for line in lines)
        assert open_to_others(data) == []
    assert_ended_well(events, count)
    assert [event.policy for event in events if isinstance(event, PolicyChosen)] == ["fifo", "hops"]
    assert {event.policy for event in events if isinstance(event, PlanPublished)} == {"fifo", "hops"}


def is_about(fact: Event, job_id: JobId) -> bool:
    return isinstance(fact, JobEvent | ProfileEvent) and fact.job_id == job_id


async def planned_by(client: Client, policy: str) -> None:
    """Wait until it has made the newest plan."""
    async with asyncio.timeout(LIMIT_S):
        while await newest_planner(client) != policy:
            await asyncio.sleep(LOOK_AFTER_S)


async def newest_planner(client: Client) -> str:
    events = await log_of(client)
    return next((event.policy for event in reversed(events) if isinstance(event, PlanPublished)), "")


def busy_or(ended: Callable[[StatusView], bool]) -> Callable[[StatusView], bool]:
    return lambda status: busy(status) or ended(status)


async def test_every_part_is_killed_in_turn_under_load_and_every_job_completes(tmp_path: Path) -> None:
    async with stack_and_client(tmp_path, speed=QUICK, snapshot_every="30") as (stack, client):
        count = await submit_all(client)
        agent = next(name for name in stack.ports if name.startswith("agent-"))
        victims: list[tuple[str, Callable[[], Awaitable[None]]]] = [
            *((name, lambda name=name: kill(stack, name)) for name in (*SERVICES, agent)),
            ("nats", lambda: kill_nats(stack)),
        ]
        for name, slay in victims:
            status = await until(client, busy_or(all_ended(count)))
            if not busy(status):  # a machine on which what was killed is slow to come back
                count += await submit_all(client, f"before-{name}")
                await until(client, busy)
            await slay()
        await until(client, all_ended(count))
        events = await log_of(client)
        assert await unlike_a_replay(stack, client) == []
    assert_ended_well(events, count)


async def test_a_service_that_cannot_live_is_an_error_and_leaves_no_process(tmp_path: Path) -> None:
    scenario = load_scenario("tiny")
    spec = StackSpec(
        data=tmp_path,
        cluster=cluster_of(scenario),
        clock_origin=time.time(),
        settings={"round_s": -1},
        restarts=Restarts(most=0),
    )
    with pytest.raises(Failure, match="HOPYARD_ROUND_S"):
        async with running_stack(spec, print):
            pass
