"""Access to a running stack, as `hopyard up` makes it, attempted from outside."""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import msgspec
import pytest
import pytest_asyncio

from hopyard.actions.diagnose import diagnose
from hopyard.api.client import Client
from hopyard.local.accounts import agent_of
from hopyard.local.credentials import account_of, folder_of
from hopyard.local.stack import Stack
from hopyard.local.stack_settings import HOST
from schemas.events import NodeLost
from schemas.ids import NodeId
from schemas.samples import Heartbeat
from schemas.settings import Settings
from shared.domain.audit import audit
from shared.runtime.bus.jetstream import JetStreamBus
from tests.fact_builders import joined, lost, plan
from tests.live.live_builders import all_ended, stack_and_client, submit_all
from tests.stack_watch import log_of, until

pytestmark = pytest.mark.asyncio(loop_scope="module")

Running = tuple[Stack, Client]


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def running(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Running]:
    async with stack_and_client(tmp_path_factory.mktemp("stack") / "data") as (stack, client):
        yield stack, client


def pids(stack: Stack) -> list[int]:
    children = Path("/proc/self/task").glob("*/children")
    started = {int(pid) for each in children for pid in each.read_text().split()}
    return [*started, *(running.process.pid for running in stack.running)]


def secrets_of(stack: Stack) -> list[str]:
    """Every token and password that gives access to the stack."""
    folder = folder_of(stack.data)
    tokens = [(folder / name).read_text().strip() for name in ("operator-token", "viewer-token")]
    accounts = [msgspec.json.decode(file.read_bytes()) for file in (folder / "nats").glob("*.json")]
    return [*tokens, *(account["password"] for account in accounts)]


def seen_from_outside(stack: Stack) -> list[str]:
    """Command lines and environments of the stack's processes, and its logs."""
    files = [Path(f"/proc/{pid}/{what}") for pid in pids(stack) for what in ("cmdline", "environ")]
    seen = []
    for file in (*files, *stack.data.rglob("*.log")):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # of a process that has just ended
            seen.append(file.read_text(errors="replace"))
    return seen


async def test_no_secret_is_on_a_command_line_in_an_environment_or_in_a_log(running: Running) -> None:
    stack, _ = running
    found = secrets_of(stack)
    assert len(found) == 2 + 7 + 4, "two tokens; six services, commands and four nodes"
    seen = seen_from_outside(stack)
    assert any("HOPYARD_NATS_URL" in text for text in seen)
    assert any("services.planner" in text for text in seen)
    assert not [secret for secret in found for text in seen if secret in text]


async def test_no_secret_is_in_diag_metrics_or_public_pages(running: Running) -> None:
    stack, client = running
    said = [repr(await diagnose(stack.api_url, stack.stack_file(), {})), repr(await client.status())]
    async with aiohttp.ClientSession() as session:
        for name, port in stack.ports.items():
            for path in (
                "/metrics",
                "/readyz",
                "/healthz",
                *(["/openapi.json", "/"] * (name == "admission")),
            ):
                async with session.get(f"{stack.scheme}://{HOST}:{port}{path}") as answer:
                    assert answer.status == 200, (name, path)
                    said.append(await answer.text())
    assert not [secret for secret in secrets_of(stack) for text in said if secret in text]


async def test_the_api_changes_nothing_without_a_token(running: Running) -> None:
    stack, client = running
    before = (await client.policy()).policy
    async with aiohttp.ClientSession() as session:
        for headers in ({}, {"Authorization": "Bearer hop_00000000_x"}):
            how = {"json": {"policy": "fifo"}, "headers": headers}
            async with session.put(f"{stack.api_url}/v1/policy", **how) as answer:  # type: ignore[arg-type]
                assert answer.status == 401
            async with session.get(f"{stack.api_url}/v1/jobs", headers=headers) as answer:
                assert answer.status == 401
    assert (await client.policy()).policy == before


async def test_nats_accepts_no_connection_without_an_account(running: Running) -> None:
    stack, _ = running
    with pytest.raises(PermissionError):
        await JetStreamBus.connect(Settings(nats_url=stack.nats.url), "planner", 10.0)


async def test_a_rogue_agent_harms_no_other_node(running: Running) -> None:
    """It has the account of one node, and publishes facts of other nodes while jobs train."""
    stack, client = running
    nodes = sorted(view.node.node_id for view in (await client.nodes()).nodes)
    own, other = nodes[0], NodeId(nodes[1])
    account = str(account_of(stack.data, agent_of(own)))
    count = await submit_all(client)
    bus = await JetStreamBus.connect(
        Settings(nats_url=stack.nats.url, nats_credentials=account), "agent", 10.0
    )
    try:
        for fact in (lost(other), joined(other), plan()):
            with pytest.raises(PermissionError):
                await bus.publish([fact])
        for _ in range(20):
            await bus.send(Heartbeat(at=0.0, node_id=other, life="a lie", workers=()))
        await until(client, all_ended(count))
    finally:
        await bus.close()
    events = await log_of(client)
    assert audit(events, drained=True) == []
    assert not any(isinstance(event, NodeLost) for event in events)
    assert bus.counts.subjects_refused >= 3
