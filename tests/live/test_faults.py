"""What bad input and faults get, on a stack of processes over a real NATS server.

The tests share one stack and its load, and run in their order; the last one looks at the whole log.
"""

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import msgspec
import nats
import pytest
import pytest_asyncio

from hopyard.api.client import ApiRefusal, Client
from hopyard.local.credentials import account_of
from hopyard.local.stack import Stack
from schemas.events import JobCompleted, NodeLost, NodeReturned, PlanPublished
from schemas.ids import NodeId
from schemas.subjects import DEAD_STREAM
from shared.domain.audit import audit
from shared.runtime.bus.accounts import inbox_of
from tests.live.live_builders import SPEED, all_ended, stack_and_client, submit_all
from tests.stack_watch import LIMIT_S, Seconds, busy, log_of, until

pytestmark = pytest.mark.asyncio(loop_scope="module")

Loaded = tuple[Stack, Client, int]
"""a stack, its client, and how many jobs it was given"""


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def loaded(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Loaded]:
    async with stack_and_client(tmp_path_factory.mktemp("stack")) as (stack, client):
        yield stack, client, await submit_all(client)


def pid_of(stack: Stack, name: str) -> int:
    return next(running.process.pid for running in stack.running if running.program.name == name)


def freeze(stack: Stack, name: str) -> None:
    os.killpg(pid_of(stack, name), signal.SIGSTOP)


def thaw(stack: Stack, name: str) -> None:
    os.killpg(pid_of(stack, name), signal.SIGCONT)


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


async def refused(stack: Stack, body: str) -> tuple[int, str | None]:
    """Status and field of the refusal."""
    headers = {"Content-Type": "application/yaml", "Authorization": f"Bearer {stack.token}"}
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{stack.api_url}/v1/jobs", data=body, headers=headers) as answer,
    ):
        problem = await answer.json(content_type="application/problem+json")
        return answer.status, problem.get("field")


GOOD = "{name: a, workload: {model: resnet18, dataset: cifar10, batch_size: 256}, gpus: 1, samples: 1e6}"


async def job_facts(client: Client) -> int:
    return sum(event.tag() == "job.submitted" for event in await log_of(client))


@pytest.mark.parametrize(
    ("old", "new", "status", "field"),
    [
        ("gpus: 1", "gpus: -1", 422, "$.gpus"),
        ("gpus: 1", "gpus: 64", 422, "$.gpus"),
        ("gpus: 1", "gpus: 1, gpu_types: [tpu]", 422, "$.gpu_types[0]"),
        ("samples: 1e6", "samples: .nan", 422, "$.samples"),
        ("samples: 1e6", "samples: .inf", 422, "$.samples"),
        ("samples: 1e6", "sample: 1e6", 422, "$.sample"),
        ("samples: 1e6", "epochs: 3", 422, "$.workload.dataset_samples"),
    ],
)
async def test_an_invalid_job_is_refused_by_field_and_not_stored(
    loaded: Loaded, old: str, new: str, status: int, field: str
) -> None:
    stack, client, _ = loaded
    before = await job_facts(client)
    assert await refused(stack, GOOD.replace(old, new)) == (status, field)
    assert await job_facts(client) == before


async def test_the_same_submission_twice_is_one_job(loaded: Loaded) -> None:
    _, client, count = loaded
    assert await submit_all(client) == count
    assert await job_facts(client) == count


async def test_a_running_job_on_hold_stops_until_it_is_released(loaded: Loaded) -> None:
    _, client, _ = loaded
    async with asyncio.timeout(LIMIT_S):
        while not (running := (await client.jobs(states=["running"])).jobs):
            await asyncio.sleep(0.1)
        job_id = min(running, key=lambda job: job.samples_done / job.spec.samples).job_id
        await client.hold(job_id)
        while (job := await client.job(job_id)).state == "running":
            await asyncio.sleep(0.1)
    assert (job.state, job.hold is not None, (await client.why(job_id)).reason) == (
        "preempted",
        True,
        "on-hold",
    )
    await client.release(job_id)


async def test_an_unreadable_message_is_a_dead_letter_and_the_stack_goes_on(loaded: Loaded) -> None:
    stack, client, _ = loaded
    own = msgspec.json.decode(account_of(stack.data, "admission").read_bytes(), type=dict[str, str])
    connection = await nats.connect(stack.nats.url, **own, inbox_prefix=inbox_of("admission").encode())
    try:
        stream = connection.jetstream()
        await stream.publish("hopyard.job.broken.submitted", b"\xc1 no message of ours")
        async with asyncio.timeout(LIMIT_S):
            while (await stream.stream_info(DEAD_STREAM)).state.messages == 0:
                await asyncio.sleep(0.1)
    finally:
        await connection.close()
    await until(client, busy)


async def test_without_the_estimator_the_next_plan_says_so(loaded: Loaded) -> None:
    stack, client, _ = loaded
    await until(client, busy)
    freeze(stack, "estimator")
    stopped = Seconds()
    try:
        plan = await plan_with_a_note(client, "estimat")
        stopped.say("estimator stopped: a plan without it")
    finally:
        thaw(stack, "estimator")
    assert plan.decision_s < SPEED * 10


async def test_a_killed_solver_costs_only_quality(loaded: Loaded) -> None:
    stack, client, _ = loaded
    before = len(await plans(client))
    killed = Seconds()
    for child in children(pid_of(stack, "planner")):
        os.kill(child, signal.SIGKILL)
    async with asyncio.timeout(LIMIT_S):
        while len(await plans(client)) < before + 2:
            await asyncio.sleep(0.2)
    killed.say("solver killed: two plans more")


async def test_a_node_that_falls_silent_is_lost_and_returns(loaded: Loaded) -> None:
    stack, client, _ = loaded
    nodes = await client.nodes()
    node_id = max(nodes.nodes, key=lambda view: len(view.jobs)).node.node_id
    freeze(stack, f"agent-{node_id}")
    silent = Seconds()
    await until(client, lambda status: status.nodes.get("lost", 0) == 1)
    silent.say("node silent: lost")
    thaw(stack, f"agent-{node_id}")
    heard = Seconds()
    await until(client, lambda status: status.nodes.get("lost", 0) == 0)
    heard.say("node heard again: back")
    events = await log_of(client)
    assert [event.node_id for event in events if isinstance(event, NodeLost)] == [node_id]
    assert [event.node_id for event in events if isinstance(event, NodeReturned)] == [node_id]


async def test_a_lost_node_is_removed_and_is_back_once_it_is_heard(loaded: Loaded) -> None:
    stack, client, _ = loaded
    node_id = (await client.nodes()).nodes[0].node.node_id
    with pytest.raises(ApiRefusal, match="is not lost"):
        await client.remove_node(node_id)
    freeze(stack, f"agent-{node_id}")
    await until(client, lambda status: status.nodes.get("lost", 0) == 1)
    await _removed(client, node_id)
    await until(client, lambda status: status.nodes.get("lost", 0) == 0)
    assert node_id not in {view.node.node_id for view in (await client.nodes()).nodes}
    thaw(stack, f"agent-{node_id}")
    async with asyncio.timeout(LIMIT_S):
        while node_id not in {view.node.node_id for view in (await client.nodes()).nodes}:
            await asyncio.sleep(0.1)


async def _removed(client: Client, node_id: NodeId) -> None:
    """Remove a node that the monitor counts as lost; admission may read of it a little later."""
    async with asyncio.timeout(LIMIT_S):
        while True:
            with contextlib.suppress(ApiRefusal):
                await client.remove_node(node_id)
                return
            await asyncio.sleep(0.1)


async def test_after_all_that_every_job_completes_and_no_rule_was_broken(loaded: Loaded) -> None:
    _, client, count = loaded
    await until(client, all_ended(count))
    lines = [line async for line in client.events()]
    events = [line.fact() for line in lines]
    assert audit(events, drained=True, seqs=[line.seq for line in lines]) == []
    assert len({event.job_id for event in events if isinstance(event, JobCompleted)}) == count


async def plans(client: Client) -> list[PlanPublished]:
    return [event for event in await log_of(client) if isinstance(event, PlanPublished)]


async def plan_with_a_note(client: Client, word: str) -> PlanPublished:
    """Wait for a plan that says something of it."""
    async with asyncio.timeout(LIMIT_S):
        while True:
            for plan in await plans(client):
                if any(word in note for note in plan.notes):
                    return plan
            await asyncio.sleep(0.3)
