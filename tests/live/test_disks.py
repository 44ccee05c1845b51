"""Disks of a stack: it is backed up while it runs and restored elsewhere; what is damaged is found and named.

The tests share one stack, which ran for a while and was stopped.
"""

import asyncio
import os
import random
import shutil
import stat
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest
import pytest_asyncio

from hopyard.actions.backup import BackedUp, BesideNats, back_up
from hopyard.actions.diagnose import stored
from hopyard.actions.rebuild import rebuild
from hopyard.actions.restore import SETTINGS, restore
from hopyard.api.client import Client
from hopyard.api.connect import connect
from hopyard.failures import Failure, Invalid, StoreDamaged
from hopyard.local.credentials import tokens_of
from hopyard.local.data_folder import ClockFile, store_of
from hopyard.local.offline_nats import offline_nats
from hopyard.local.processes import Restarts, Say
from hopyard.local.stack import Stack, running_stack
from hopyard.local.stack_settings import StackSpec, Value
from schemas.archive import CorrectionLine, LoadingLine, ObservationLine, entry_of
from schemas.base import Event
from schemas.cluster import ClusterFile
from schemas.events import JobCompleted, JobSubmitted
from schemas.questions import ExportStore, StorePage
from schemas.settings import Settings
from schemas.tokens import Role
from services.estimator.store.archive import page
from services.estimator.store.duckdb_store import DamagedStore, DuckDbStore
from shared.domain.audit import audit
from shared.runtime.bus.accounts import STREAMS_OWNER
from shared.runtime.bus.jetstream import JetStreamBus
from shared.runtime.bus.jetstream.connection import Connection
from shared.runtime.bus.jetstream.questions import JetStreamQuestions
from shared.runtime.process.reports import reports
from shared.runtime.tokens import Keyring, change_tokens, issued
from tests.live.live_builders import SPEED, all_ended, stack_and_client, submit_all
from tests.stack_watch import LIMIT_S, busy, log_of, until

MADE_S = 5.0
AGE_S = 60.0
"""of the stack's clock when it starts again"""
HALF_LIFE_S = 1e6

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]

SAME = ("speed", "clock_origin", "seed", "policy", "round_s", "cluster_name")


class Ran(NamedTuple):
    """A stack that was backed up, and stopped while its jobs ran."""

    data: Path
    backup: Path
    done: BackedUp
    jobs: int
    token: str
    """of a user"""
    known: dict[str, object]
    facts: list[tuple[int, Event]]
    """up to the backup"""


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def ran(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    folder = tmp_path_factory.mktemp("first")
    data, file = folder / "data", folder / "backup.tar"
    token, entry = issued(Role.SUBMITTER, user="ada", now=time.time())
    async with stack_and_client(data, snapshot_every="40") as (stack, client):
        change_tokens(tokens_of(data), lambda there: (*there, entry))
        count = await submit_all(client)
        await until(client, busy)
        await _observed(stack)
        done = await _backed_up(stack, client, file)
        known = await _known(client)
        facts = [(line.seq, line.fact()) async for line in client.events()][: done.facts]
    return Ran(data, file, done, count, token, known, facts)


async def test_a_restored_stack_is_the_same_and_its_jobs_end(ran: Ran, tmp_path: Path) -> None:
    assert ran.done.facts == ran.done.last_seq == len(ran.facts)
    assert stat.S_IMODE(ran.backup.stat().st_mode) == 0o600
    for secret in _secrets(ran.data):
        assert secret not in ran.backup.read_bytes()

    second = tmp_path / "second"
    made = await asyncio.to_thread(restore, ran.backup, second)
    async with offline_nats(second) as connection:
        assert await reports(JetStreamBus(connection)) == ()
    assert (made.last_seq, made.store_lines) == (ran.done.last_seq, ran.done.store_lines)
    assert Keyring(str(tokens_of(second))).holder(ran.token, time.time()) is not None
    async with _again(second) as (stack, client):
        again = [(line.seq, line.fact()) async for line in client.events()]
        assert again[: len(ran.facts)] == ran.facts
        assert await _known(client) == ran.known
        await until(client, all_ended(ran.jobs))
        assert "all facts at NATS can be read" in await _looked_at(stack)
        events = await log_of(client)
    assert audit(events, drained=True) == []
    ended = [fact.job_id for fact in events if isinstance(fact, JobCompleted)]
    assert len(ended) == len(set(ended)) == ran.jobs
    assert sum(isinstance(fact, JobSubmitted) for fact in events) == ran.jobs


# ---- links, and who may read


def open_to_others(folder: Path) -> list[str]:
    return [str(each) for each in (folder, *folder.rglob("*")) if each.lstat().st_mode & 0o077]


async def test_a_backup_is_restored_to_where_a_link_leads_and_for_its_owner_alone(
    ran: Ran, tmp_path: Path
) -> None:
    (large := tmp_path / "large-disk").mkdir()
    (link := tmp_path / "data").symlink_to(large)
    before = os.umask(0)
    try:
        made = await asyncio.to_thread(restore, ran.backup, link)
        await asyncio.to_thread(rebuild, link, None, Settings())
    finally:
        os.umask(before)
    assert link.readlink() == large
    assert made.data == str(large)
    assert open_to_others(large) == []


async def test_files_moved_to_another_disk_behind_links_are_found(ran: Ran, tmp_path: Path) -> None:
    data, elsewhere = tmp_path / "data", tmp_path / "elsewhere"
    shutil.copytree(ran.data, data)
    elsewhere.mkdir(mode=0o700)
    for name in ("nats", "logs", "credentials", store_of(data).name):
        (data / name).rename(elsewhere / name)
        (data / name).symlink_to(elsewhere / name)
    done = await asyncio.to_thread(rebuild, data, None, Settings())
    kept = data / f"{store_of(data).name}.damaged-1"
    assert (done.kept, kept.readlink()) == (str(kept), elsewhere / store_of(data).name)
    async with _again(data) as (_, client):
        await until(client, all_ended(ran.jobs))
    assert (data / "nats").is_symlink()


# ---- damage

FACTS, SNAPSHOTS = "HOPYARD", "OBJ_hopyard-snapshots"


def halve(file: Path) -> None:
    data = file.read_bytes()
    file.write_bytes(data[: len(data) // 2])


def empty(file: Path) -> None:
    file.write_bytes(b"")


def garble(file: Path) -> None:
    file.write_bytes(random.Random(1).randbytes(file.stat().st_size))


def remove(file: Path) -> None:
    shutil.rmtree(file) if file.is_dir() else file.unlink()


IN_EVERY_FACT = b"\xa2at\xcb"
"""its field `at`, in MessagePack"""


def flip(file: Path, at: int) -> None:
    data = bytearray(file.read_bytes())
    data[at] ^= 0x55
    file.write_bytes(data)


def streams_of(data: Path) -> Path:
    return data / "nats" / "jetstream" / STREAMS_OWNER / "streams"


@pytest.mark.parametrize(
    ("damage", "file", "said"),
    [
        (halve, "HOPYARD/msgs/1.blk", r"stream HOPYARD has lost facts \d+ to \d+"),
        (empty, "HOPYARD/msgs/1.blk", "has lost all of its"),
        (garble, "HOPYARD/msgs/1.blk", "has lost all of its"),
        (remove, "HOPYARD/msgs/1.blk", "has lost all of its"),
        (remove, "HOPYARD/msgs", "has handled fact"),
        (garble, "HOPYARD/meta.inf", "cannot read what its stream HOPYARD is"),
        (remove, "HOPYARD/", "all facts are lost"),
        (remove, "KV_hopyard-state/msgs/1.blk", "has lost values of KV_hopyard-state"),
        (remove, "../..", "holds no stream"),
    ],
)
async def test_a_stack_on_a_damaged_stream_reports_it_and_does_not_start(
    ran: Ran, tmp_path: Path, damage: Callable[[Path], None], file: str, said: str
) -> None:
    data = tmp_path / "data"
    shutil.copytree(ran.data, data)
    damage((streams_of(data) / file).resolve())
    with pytest.raises(StoreDamaged, match=said) as refused:
        async with _again(data):
            pass
    assert "hopyard restore FILE" in str(refused.value)


async def test_an_unreadable_fact_is_missing_in_a_replay(ran: Ran, tmp_path: Path) -> None:
    data = tmp_path / "data"
    shutil.copytree(ran.data, data)
    block = streams_of(data) / FACTS / "msgs" / "1.blk"
    held = block.read_bytes()
    flip(block, held.index(IN_EVERY_FACT, len(held) // 2))  # and in no length, with which the block would end
    snapshots = streams_of(data) / SNAPSHOTS / "msgs" / "1.blk"
    flip(snapshots, snapshots.read_bytes().rindex(b"$O.hopyard-snapshots.C.") + 100)  # in the newest one
    said: list[str] = []
    with pytest.raises(StoreDamaged, match="has lost facts"):
        async with _again(data, said.append):
            pass
    assert any("they replay the whole log" in line for line in said)
    async with _again(data, allow_lost_facts="true") as (stack, _):
        with pytest.raises(Failure, match=r"has lost facts \d+\."):
            await _looked_at(stack)


# ---- the estimator's store


@pytest.mark.parametrize("damage", [halve, empty, garble])
async def test_a_damaged_store_ends_the_start_with_its_remedy(
    ran: Ran, tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    file = tmp_path / "estimator.duckdb"
    shutil.copy(ran.data / file.name, file)
    damage(file)
    with pytest.raises(DamagedStore, match="hopyard store rebuild"):
        DuckDbStore(str(file), HALF_LIFE_S)


@pytest.mark.parametrize("instance", [1, 2])
async def test_a_rebuilt_store_has_the_contents_of_the_damaged_one(
    ran: Ran, tmp_path: Path, instance: int
) -> None:
    data = tmp_path / "data"
    shutil.copytree(ran.data, data)
    before, damaged = _lines(store_of(data)), store_of(data, instance)
    shutil.copy(store_of(ran.data), damaged)
    garble(damaged)
    with pytest.raises(StoreDamaged, match="hopyard store rebuild"):
        async with _again(data, estimators=instance):
            pass
    done = await asyncio.to_thread(rebuild, data, None, Settings(), instance)
    assert done.observations > 0
    assert done.kept == f"{damaged}.damaged-1"
    after = _lines(damaged)
    assert set(before) <= set(after)  # what came in the last moments, the old one did not write any more
    assert [line for line in after if line in set(before)] == before


def _lines(store: Path) -> list[bytes]:
    """All that it knows and that follows from the log."""
    opened = DuckDbStore(str(store), HALF_LIFE_S)
    try:
        lines = page(opened, ExportStore(after=0, limit=100_000)).lines
    finally:
        opened.close()
    return [line for line in lines if not isinstance(entry_of(line), LoadingLine | CorrectionLine)]


async def _observed(stack: Stack) -> None:
    """Wait for observations to be in the store."""
    connection = await _connected(stack)
    try:
        async with asyncio.timeout(LIMIT_S):
            while not any(isinstance(entry_of(line), ObservationLine) for line in await _page(connection)):
                await asyncio.sleep(0.2)
    finally:
        await connection.close()


async def _page(connection: Connection) -> tuple[bytes, ...]:
    asked = ExportStore(after=0, limit=1_000)
    reply = await JetStreamQuestions(connection).ask(asked, LIMIT_S)
    assert isinstance(reply, StorePage)
    return reply.lines


async def _looked_at(stack: Stack) -> str:
    """What `hopyard diag` says of what is stored."""
    connection = await _connected(stack)
    try:
        return await stored(connection)
    finally:
        await connection.close()


async def _connected(stack: Stack) -> Connection:
    connection = Connection(stack.settings(), "test")
    await connection.open(MADE_S)
    return connection


async def _backed_up(stack: Stack, client: Client, file: Path) -> BackedUp:
    connection = await _connected(stack)
    try:
        whole = BesideNats(data=stack.data, settings=await client.settings(), version="1")
        return await back_up(connection, file, whole)
    finally:
        await connection.close()


@asynccontextmanager
async def _again(
    data: Path, say: Say = print, estimators: int = 1, **settings: str
) -> AsyncIterator[tuple[Stack, Client]]:
    """As `hopyard up` starts it, on a restored folder by what `hopyard restore` prints."""
    chosen: dict[str, Value] = {"seed": 1, **settings}
    clock = ClockFile(origin=time.time() - AGE_S, speed=SPEED)
    if (data / SETTINGS).exists():
        chosen |= msgspec.json.decode((data / SETTINGS).read_bytes())
        clock = msgspec.json.decode((data / "clock.json").read_bytes(), type=ClockFile)
    spec = StackSpec(
        data=data,
        cluster=msgspec.json.decode((data / "cluster.json").read_bytes(), type=ClusterFile),
        clock_origin=clock.origin,
        speed=clock.speed,
        settings=chosen,
        instances={"estimator": estimators},
        restarts=Restarts(most=0, backoff_s=0.05),
    )
    assert (clock.speed, chosen["seed"]) == (SPEED, 1)
    async with running_stack(spec, say) as stack, connect(stack.api_url, stack.token) as client:
        yield stack, client


async def _known(client: Client) -> dict[str, object]:
    """What does not change while jobs run."""
    jobs = (await client.jobs(limit=100)).jobs
    nodes = (await client.nodes()).nodes
    status = await client.status()
    return {
        "status": {
            "jobs": sum(status.jobs.values()),
            "gpus": {gpu_type: there for gpu_type, (_, there) in status.gpus.items()},
            "nodes": status.nodes,
            "policy": status.policy,
            "speed": status.speed,
        },
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


async def test_a_folder_that_holds_something_is_no_place_for_a_backup(tmp_path: Path) -> None:
    (tmp_path / "clock.json").write_text("{}")
    with pytest.raises(Invalid, match="not empty"):
        restore(tmp_path / "any.tar", tmp_path)
