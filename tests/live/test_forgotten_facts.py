"""A stack whose oldest facts are nowhere any more starts as long as every service has its snapshot."""

import shutil
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from hopyard.api.client import Client
from hopyard.failures import StoreDamaged
from hopyard.local.offline_nats import offline_nats
from hopyard.local.stack import Stack
from shared.runtime.bus.jetstream.streams import SNAPSHOT_STREAM
from tests.live.live_builders import QUICK, stack_and_client
from tests.live.trimmed import Trimmed

pytestmark = pytest.mark.slow

FILE_MESSAGES = 50


def quickly_trimmed(data: Path, **more: str) -> AbstractAsyncContextManager[tuple[Stack, Client]]:
    """A stack that keeps some hundred facts in the stream."""
    return stack_and_client(
        data,
        speed=QUICK,
        stream_max_bytes=40_000,
        archive_file_messages=FILE_MESSAGES,
        archive_every_real_s=0.3,
        snapshot_every=FILE_MESSAGES,
        **more,  # type: ignore[arg-type] # settings
    )


def move_the_oldest(data: Path) -> None:
    min((data / "archive").glob("facts-*")).rename(data / "moved.parquet")


def put_back(data: Path) -> None:
    (data / "moved.parquet").rename(data / "archive" / f"facts-{1:012}-{FILE_MESSAGES:012}.parquet")


async def without_snapshots(data: Path) -> None:
    """As after an upgrade to a version whose states have other fields."""
    async with offline_nats(data) as connection:
        await connection.js.purge_stream(SNAPSHOT_STREAM)


async def test_moved_files_are_asked_for_once_a_service_needs_them(tmp_path: Path) -> None:
    data = tmp_path / "data"
    async with quickly_trimmed(data) as (stack, client):
        trimmed = Trimmed(stack, client)
        await trimmed.submit()
        await trimmed.ended()
        await trimmed.trimmed_beyond(FILE_MESSAGES)
    move_the_oldest(data)
    async with quickly_trimmed(data) as (_, client):
        assert sum((await client.status()).jobs.values()) == trimmed.jobs
    await without_snapshots(data)
    with pytest.raises(StoreDamaged, match=r"has no snapshot, and facts 1 to 50, .* moved out of .* back"):
        async with quickly_trimmed(data):
            pass
    put_back(data)
    async with quickly_trimmed(data) as (_, client):
        assert sum((await client.status()).jobs.values()) == trimmed.jobs


async def test_without_an_archive_a_replay_does_not_begin_in_the_middle(tmp_path: Path) -> None:
    data = tmp_path / "data"
    async with quickly_trimmed(data, archive="") as (stack, client):
        trimmed = Trimmed(stack, client)
        await trimmed.submit()
        await trimmed.ended()
        await trimmed.trimmed_beyond(FILE_MESSAGES)
    shutil.copytree(data, copy := tmp_path / "copy")
    async with quickly_trimmed(copy, archive="") as (_, client):
        assert sum((await client.status()).jobs.values()) == trimmed.jobs
    await without_snapshots(data)
    with pytest.raises(StoreDamaged, match="has no snapshot, and facts 1 to"):
        async with quickly_trimmed(data, archive=""):
            pass
    async with quickly_trimmed(data, archive="", allow_lost_facts="true") as (_, client):
        assert sum((await client.status()).jobs.values()) < trimmed.jobs
