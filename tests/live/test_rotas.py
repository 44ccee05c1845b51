"""Jobs that take turns on the same GPUs, on a stack of processes over a real NATS server."""

import asyncio
import os
import signal
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from hopyard.api.client import Client
from hopyard.local.stack import Stack
from schemas.base import Event
from schemas.events import (
    JobCompleted,
    JobPreempted,
    JobStarted,
    NodeJoined,
    PlanPublished,
    PreemptReason,
    TurnsOrdered,
)
from schemas.ids import NodeId
from shared.domain.audit import audit
from tests.live.live_builders import all_ended, stack_and_client, submit_all
from tests.stack_watch import LIMIT_S, log_of, until

POLICY = "tests.simulation.mode_policies:Rotas"
RESTARTED = PreemptReason.AGENT_RESTARTED


async def leader_of_a_full_rota(client: Client) -> NodeId | None:
    """Of one in which a job of two or more has been given other turns; None: a restart has ended a job."""
    async with asyncio.timeout(LIMIT_S):
        while True:
            log = await log_of(client)
            if RESTARTED in reasons(log):
                return None
            nodes = {view.node.node_id: view.jobs for view in (await client.nodes()).nodes}
            leaders = {fact.gang.nodes[0] for fact in log if isinstance(fact, TurnsOrdered)}
            if full := [node_id for node_id in leaders if len(nodes[node_id]) > 1]:
                return full[0]
            await asyncio.sleep(0.2)


async def back(client: Client, node_id: NodeId, lives: int) -> None:
    async with asyncio.timeout(LIMIT_S):
        while len(lives_of(node_id, await log_of(client))) <= lives:
            await asyncio.sleep(0.2)


def reasons(log: Iterable[Event]) -> set[PreemptReason]:
    return {fact.reason for fact in log if isinstance(fact, JobPreempted)}


def lives_of(node_id: NodeId, log: Iterable[Event]) -> set[str]:
    return {fact.life for fact in log if isinstance(fact, NodeJoined) and fact.node_id == node_id}


def kill(stack: Stack, name: str) -> None:
    pid = next(running.process.pid for running in stack.running if running.program.name == name)
    os.killpg(pid, signal.SIGKILL)


async def test_jobs_take_turns_and_outlive_the_agent_that_leads_them(tmp_path: Path) -> None:
    # An agent that is slow to come back is not taken for lost.
    async with stack_and_client(tmp_path, policy=POLICY, node_lease_real_s="60") as (stack, client):
        count = await submit_all(client)
        lives = Counter[NodeId]()
        while leader := await leader_of_a_full_rota(client):  # again where a plan was just ending its jobs
            lives[leader] += 1
            kill(stack, f"agent-{leader}")
            await back(client, leader, lives[leader])
            if RESTARTED not in reasons(await log_of(client)):
                count += await submit_all(client, f"again-{lives.total()}")  # the rest may end soon
        await until(client, all_ended(count))
        lines = [line async for line in client.events()]
    events = [line.fact() for line in lines]
    assert audit(events, drained=True, seqs=[line.seq for line in lines]) == []
    assert len({fact.job_id for fact in events if isinstance(fact, JobCompleted)}) == count
    assert "relaxed" in {fact.gang.mode for fact in events if isinstance(fact, JobStarted)}
    notes = [note for fact in events if isinstance(fact, PlanPublished) for note in fact.notes]
    assert not [note for note in notes if "wrongly" in note]
    assert RESTARTED in reasons(events)
    assert lives
    assert all(len(lives_of(node_id, events)) > killed for node_id, killed in lives.items())
