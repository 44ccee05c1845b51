"""A stack that runs, backed up and restored elsewhere: it is the same, and its jobs go on to their end."""

import asyncio
import stat
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from hopyard.actions.backup import BackedUp, BesideNats, back_up
from hopyard.actions.restore import SETTINGS, restore
from hopyard.api.client import Client
from hopyard.api.connect import connect
from hopyard.failures import Invalid
from hopyard.local import stack as stacks
from hopyard.local.credentials import tokens_of
from hopyard.local.data_folder import ClockFile
from hopyard.local.processes import Restarts
from schemas.cluster import ClusterFile
from schemas.events import JobCompleted, JobSubmitted
from schemas.tokens import Role
from shared.domain.audit import audit
from shared.runtime.bus.jetstream.connection import Connection
from shared.runtime.tokens import Keyring, change_tokens, issued
from tests.live.live_builders import SPEED, all_ended, stack_and_client, submit_all
from tests.stack_watch import busy, log_of, until

MADE_S = 5.0
SAME = ("speed", "clock_origin", "seed", "policy", "round_s", "cluster_name")


async def test_a_restored_stack_is_the_same_and_its_jobs_end(tmp_path: Path) -> None:
    first, file = tmp_path / "first", tmp_path / "backup.tar"
    token, entry = issued(Role.SUBMITTER, user="ada", now=time.time())
    async with stack_and_client(first) as (stack, client):
        change_tokens(tokens_of(first), lambda there: (*there, entry))
        count = await submit_all(client)
        await until(client, busy)
        done = await _backed_up(stack, client, file)
        before = await _known(client)
        facts = [line async for line in client.events()][: done.facts]
    assert done.facts == done.last_seq == len(facts)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    for secret in _secrets(first):
        assert secret not in file.read_bytes()

    second = tmp_path / "second"
    made = await asyncio.to_thread(restore, file, second)
    assert made.last_seq == done.last_seq
    assert made.store_lines == done.store_lines
    assert Keyring(str(tokens_of(second))).holder(token, time.time()) is not None
    async with _again(second) as (stack, client):
        again = [line async for line in client.events()]
        assert [(line.seq, line.fact()) for line in again[: len(facts)]] == [
            (line.seq, line.fact()) for line in facts
        ]
        assert await _known(client) == before
        await until(client, all_ended(count))
        events = await log_of(client)
    assert audit(events, drained=True) == []
    ended = [fact.job_id for fact in events if isinstance(fact, JobCompleted)]
    assert len(ended) == len(set(ended)) == count
    assert sum(isinstance(fact, JobSubmitted) for fact in events) == count


async def _backed_up(stack: stacks.Stack, client: Client, file: Path) -> BackedUp:
    connection = Connection(stack.settings(), "test")
    await connection.open(MADE_S)
    try:
        whole = BesideNats(data=stack.data, settings=await client.settings(), version="1")
        return await back_up(connection, file, whole)
    finally:
        await connection.close()


@asynccontextmanager
async def _again(data: Path) -> AsyncIterator[tuple[stacks.Stack, Client]]:
    """As `hopyard up` starts it by what `hopyard restore` prints."""
    chosen = msgspec.json.decode((data / SETTINGS).read_bytes())
    clock = msgspec.json.decode((data / "clock.json").read_bytes(), type=ClockFile)
    spec = stacks.StackSpec(
        data=data,
        cluster=msgspec.json.decode((data / "cluster.json").read_bytes(), type=ClusterFile),
        clock_origin=clock.origin,
        speed=clock.speed,
        settings=chosen,
        restarts=Restarts(most=0, backoff_s=0.05),
    )
    assert (clock.speed, chosen["seed"]) == (SPEED, 1)
    async with stacks.running_stack(spec, print) as stack, connect(stack.api_url, stack.token) as client:
        yield stack, client


async def _known(client: Client) -> dict[str, object]:
    """What does not change while jobs run."""
    jobs = (await client.jobs(limit=100)).jobs
    nodes = (await client.nodes()).nodes
    return {
        "jobs": {job.job_id: (job.spec, job.submitted_at) for job in jobs},
        "nodes": [view.node for view in nodes],
        "policy": (await client.policy()).policy,
        "settings": {one.name: one.value for one in (await client.settings()).settings if one.name in SAME},
    }


def _secrets(data: Path) -> list[bytes]:
    folder = data / "credentials"
    passwords = [
        msgspec.json.decode(file.read_bytes())["password"].encode()
        for file in (folder / "nats").glob("*.json")
    ]
    return [*passwords, *((folder / f"{role}-token").read_bytes().strip() for role in ("operator", "viewer"))]


def test_a_folder_that_holds_something_is_no_place_for_a_backup(tmp_path: Path) -> None:
    (tmp_path / "clock.json").write_text("{}")
    with pytest.raises(Invalid, match="not empty"):
        restore(tmp_path / "any.tar", tmp_path)
