"""A stack on a disk that fills up, and has room again. Needs to mount a small one."""

import asyncio
import contextlib
import itertools
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import numpy as np
import pytest

from hopyard.local.data_folder import store_of
from hopyard.local.stack import Stack
from schemas.events import JobQueued, JobSubmitted
from schemas.ids import GpuType
from schemas.samples import ThroughputObserved
from schemas.views import StatusView
from services.estimator.store.contract import RUNNING, Keys, StoreUnavailable
from services.estimator.store.duckdb_store import DuckDbStore
from shared.domain.audit import audit
from shared.domain.states import JobState
from tests.live.live_builders import all_ended, stack_and_client, submit_all
from tests.live.test_faults import GOOD
from tests.services.estimator.estimator_builders import observed
from tests.stack_watch import LIMIT_S, Seconds, busy, log_of, until

pytestmark = pytest.mark.slow

SIZE = "220m"
"""of a memory's disk, which takes no more than is written"""
HALF_LIFE_S = 1e6
LIMITS: dict[str, Any] = {"stream_max_bytes": "8000000", "sample_max_bytes": "8000000"}
UNAVAILABLE, CREATED = 503, 201
BEFORE_THE_QUEUE = (JobState.SUBMITTED, JobState.PROFILED)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    mount = ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(tmp_path)]
    mounted = subprocess.run(mount, capture_output=True, text=True, check=False)
    if mounted.returncode:
        pytest.skip(f"no disk of its own: {mounted.stderr.strip()}")
    yield tmp_path
    subprocess.run(["umount", "-l", str(tmp_path)], check=True)


@pytest.fixture
def facts_elsewhere(disk: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A data folder on the small disk, but for what NATS stores."""
    nats = disk / "data" / "nats"
    nats.mkdir(parents=True)
    nats.parent.chmod(0o700)
    subprocess.run(["mount", "--bind", str(tmp_path_factory.mktemp("nats")), str(nats)], check=True)
    yield nats.parent
    subprocess.run(["umount", "-l", str(nats)], check=True)


def fill(disk: Path) -> Path:
    file = disk / "full"
    with file.open("wb", buffering=0) as out:
        for size in (2**20, 512):
            try:
                while True:
                    out.write(bytes(size))
            except OSError:
                pass
    return file


async def test_on_a_full_disk_jobs_run_on_and_with_room_all_is_well_again(disk: Path) -> None:
    said: list[str] = []
    async with stack_and_client(disk / "data", say=said.append, **LIMITS) as (stack, client):
        count = await submit_all(client)
        await until(client, busy)
        restarts = [running.restarts for running in stack.running]
        full = fill(disk)
        words = await refused(stack)
        assert "its disk may be full" in words
        full.unlink()
        room = Seconds()
        taken = await accepted(stack)
        room.say("with room again: accepted")
        async with asyncio.timeout(LIMIT_S):
            while not any(isinstance(one, JobQueued) and one.job_id == taken for one in await log_of(client)):
                await asyncio.sleep(0.2)
        room.say("with room again: the job known to every service and queued")
        await until(client, all_ended(count))
        events = await log_of(client)
        assert [running.restarts for running in stack.running] == restarts
    assert audit(events) == []
    submitted = [fact.job_id for fact in events if isinstance(fact, JobSubmitted)]
    assert taken in submitted
    assert any("is full" in line for line in said)
    assert any("there is room again" in line for line in said)


async def test_without_room_for_the_estimators_store_jobs_run_on_and_observations_are_kept(
    disk: Path, facts_elsewhere: Path
) -> None:
    async with stack_and_client(facts_elsewhere) as (stack, client):
        count = await submit_all(client)
        await until(client, all_queued(count))  # the estimator stores a job's modules before it is queued
        await until(client, busy)
        restarts = [running.restarts for running in stack.running]
        full = fill(disk)
        began = (await client.status()).at
        await until(client, store_has_no_room)
        await until(client, all_ended(count))
        ended = (await client.status()).at
        size = _size(facts_elsewhere)
        full.unlink()
        async with asyncio.timeout(LIMIT_S):
            while _size(facts_elsewhere) == size:
                await asyncio.sleep(0.2)
        await until(client, lambda status: not store_has_no_room(status))
        events = await log_of(client)
        assert [running.restarts for running in stack.running] == restarts
    assert audit(events) == []
    store = DuckDbStore(str(store_of(facts_elsewhere)), HALF_LIFE_S)
    assert [seen for seen in store.observations(0, 10_000) if began < seen.at < ended]
    store.close()


def all_queued(count: int) -> Callable[[StatusView], bool]:
    return lambda status: sum(n for state, n in status.jobs.items() if state not in BEFORE_THE_QUEUE) >= count


def store_has_no_room(status: StatusView) -> bool:
    return any("Make room" in trouble for one in status.services for trouble in one.troubles)


def _size(data: Path) -> int:
    """Bytes of the estimator's store, and of what it has written ahead."""
    return sum(file.stat().st_size for file in data.glob(f"{store_of(data).name}*"))


def test_observations_not_written_on_a_full_disk_are_written_once_there_is_room(disk: Path) -> None:
    path = str(disk / "store.duckdb")
    store = DuckDbStore(path, HALF_LIFE_S)
    full = fill(disk)
    seen = [observed(at=float(n)) for n in range(2_000)]
    with pytest.raises(StoreUnavailable, match="Make room"):
        store.add(seen)
    full.unlink()
    store.add(seen)
    store.close()
    again = DuckDbStore(path, HALF_LIFE_S)
    assert again.observations(0, 10_000) == seen
    again.close()


def test_a_disk_that_is_full_when_the_log_is_moved_into_the_file_costs_nothing(disk: Path) -> None:
    """DuckDB moves its log once that has 16 MiB, and gives the file up if it cannot."""
    path = disk / "store.duckdb"
    store, written, at = DuckDbStore(str(path), HALF_LIFE_S), 0, itertools.count()
    log, room = disk / "store.duckdb.wal", disk / "room"

    def add(times: int = 1) -> None:
        nonlocal written
        for _ in range(times):
            store.add([timed(float(next(at))) for _ in range(2_000)])
            written += 2_000

    while not log.exists() or log.stat().st_size < 14e6:
        add()
    room.write_bytes(bytes(3_000_000))  # for the rest of the log, and not for the file
    full = fill(disk)
    room.unlink()
    for _ in range(2):
        with pytest.raises(StoreUnavailable, match="Make room"):
            add(10)
        assert len(store.running(observed().fingerprint, GpuType("A")).latest) == RUNNING
    full.unlink()
    add()
    store.close()
    again = DuckDbStore(str(path), HALF_LIFE_S)
    assert len(again.observations(0, 2 * written)) == written
    assert sum(again.find(type_layer()).count) == written
    again.close()


def timed(at: float) -> ThroughputObserved:
    """An observation that takes some room."""
    return msgspec.structs.replace(observed(at=at), data_s=tuple((at + k) / 7.0 for k in range(16)))


def type_layer() -> Keys:
    return Keys(
        layer="type",
        fingerprints=[observed().fingerprint],
        places=["A"],
        workload=np.zeros(1, dtype=np.int64),
        place=np.zeros(1, dtype=np.int64),
        distributed=np.zeros(1, dtype=np.bool_),
        size=np.ones(1, dtype=np.int64),
    )


async def refused(stack: Stack) -> str:
    """Why, once it is."""
    last: object = "none"
    try:
        async with asyncio.timeout(LIMIT_S):
            while True:
                status, answer = last = await _submitted(stack)
                if status == UNAVAILABLE and "nothing can be stored" in answer["detail"]:
                    return answer["detail"]
    except TimeoutError:
        raise AssertionError(f"the last answer: {last}") from None


async def accepted(stack: Stack) -> str:
    async with asyncio.timeout(LIMIT_S):
        while True:
            with contextlib.suppress(aiohttp.ClientError):  # it begins anew, and does not listen yet
                status, answer = await _submitted(stack)
                if status == CREATED:
                    return answer["job_id"]
            await asyncio.sleep(0.2)


async def _submitted(stack: Stack) -> tuple[int, dict[str, str]]:
    headers = {"Content-Type": "application/yaml", "Authorization": f"Bearer {stack.token}"}
    url = f"{stack.api_url}/v1/jobs"
    async with aiohttp.ClientSession() as session, session.post(url, data=GOOD, headers=headers) as answer:
        return answer.status, await answer.json(content_type=None)
