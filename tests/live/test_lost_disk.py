"""A disk below NATS, the estimator's store or checkpoints that hangs, or is gone and back. Needs a mount."""

import asyncio
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest

from hopyard.api.client import Client
from hopyard.local.data_folder import store_of
from hopyard.local.stack import Stack
from schemas.events import JobCancelled, JobSubmitted, ServiceLed
from schemas.ids import JobId
from schemas.jobs import JobFile
from schemas.samples import ThroughputObserved
from schemas.settings import Settings
from schemas.views import StatusView
from services.estimator.store.contract import StoreUnavailable
from services.estimator.store.duckdb_store import DuckDbStore
from shared.domain.audit import audit
from shared.domain.states import JobState
from shared.runtime.bus.contract import Unavailable
from shared.runtime.bus.jetstream import JetStreamBus
from shared.runtime.process.nats_server import NatsServer
from tests.live.ext4_disk import Disk, disk_at
from tests.live.live_builders import all_ended, stack_and_client, submit_all
from tests.live.test_full_disk import HALF_LIFE_S, LIMITS, accepted, refused
from tests.real.real_builders import cluster, nothing_left, real_stack
from tests.services.estimator.estimator_builders import observed
from tests.stack_watch import LIMIT_S, Seconds, busy, log_of, until

pytestmark = pytest.mark.slow


@pytest.fixture
def nats_disk(tmp_path: Path) -> Iterator[Disk]:
    """Below what NATS stores of the stack on `data`."""
    folder = tmp_path / "data" / "nats"
    folder.mkdir(parents=True)
    folder.parent.chmod(0o700)
    with disk_at(folder, tmp_path / "image") as disk:
        yield disk


@pytest.fixture
def store_disk(tmp_path: Path) -> Iterator[Disk]:
    """Below the estimator's store of the stack on its folder, whose other files are elsewhere."""
    (folder := tmp_path / "data").mkdir()
    with disk_at(folder, tmp_path / "image") as disk:
        folder.chmod(0o700)
        for name in ("nats", "logs", "credentials", "output", "archive"):
            (tmp_path / name).mkdir(mode=0o700)
            (folder / name).symlink_to(tmp_path / name)
        yield disk


@pytest.fixture
def jobs_disk(tmp_path: Path) -> Iterator[Disk]:
    """Below the checkpoints of a job."""
    (folder := tmp_path / "checkpoints").mkdir()
    with disk_at(folder, tmp_path / "image") as disk:
        yield disk


class Struck(NamedTuple):
    stack: Stack
    client: Client
    said: list[str]


@asynccontextmanager
async def busy_stack(data: Path) -> AsyncIterator[Struck]:
    """At its end all jobs have ended, nothing was started again, and what was acknowledged is there."""
    said: list[str] = []
    async with stack_and_client(data, say=said.append, **LIMITS) as (stack, client):
        count = await submit_all(client)
        await until(client, busy)
        restarts = [running.restarts for running in stack.running]
        yield Struck(stack, client, said)
        last = await accepted(stack)
        await until(client, all_ended(count + 1))
        facts = await log_of(client)
        assert [running.restarts for running in stack.running] == restarts
    assert audit(facts) == []
    assert last in [fact.job_id for fact in facts if isinstance(fact, JobSubmitted)]


async def test_while_the_disk_of_nats_hangs_no_job_is_accepted_and_then_all_goes_on(nats_disk: Disk) -> None:
    async with busy_stack(nats_disk.folder.parent) as struck:
        with nats_disk.hanging():
            await refused(struck.stack)
        well = Seconds()
        await accepted(struck.stack)
        well.say("NATS' disk hangs no more: accepted")


async def test_a_lost_disk_of_nats_is_reported_and_nats_restarts_once_it_is_back(
    nats_disk: Disk,
) -> None:
    async with busy_stack(nats_disk.folder.parent) as struck:
        with nats_disk.gone():
            await said(struck, "takes nothing (Input/output error)")
        back = Seconds()
        await said(struck, "that disk is back")
        await accepted(struck.stack)
        back.say("NATS' disk is back: accepted")


async def test_a_leader_is_not_deposed_by_a_nats_that_lost_its_disk(
    nats_disk: Disk,
) -> None:
    """Such a server says that nobody ever led, and refuses facts as if another did."""
    server = NatsServer(nats_disk.folder)
    await server.start()
    settings = Settings(nats_url=server.url, publish_timeout_real_s=1.0)
    bus = await JetStreamBus.connect(settings, "estimator", LIMIT_S)
    try:
        led = ServiceLed(at=0.0, service="estimator", instance=1, token=1, repetition=0)
        await bus.lead(led, await bus.led_last("estimator"))
        with nats_disk.gone():
            publishing = asyncio.create_task(bus.publish([JobCancelled(at=1.0, job_id=JobId("job-1"))]))
            async with asyncio.timeout(LIMIT_S):
                while await bus.led_last("estimator"):
                    await asyncio.sleep(0.05)
                while "does not find" not in await doubted(bus):
                    await asyncio.sleep(0.05)
            # A fact whose confirmation is overdue is refused when it is sent again.
            await asyncio.wait([publishing], timeout=3 * settings.publish_timeout_real_s)
            assert not publishing.done()
            server.kill()
        await server.start()
        async with asyncio.timeout(LIMIT_S):
            await publishing
        assert await bus.still_leads()
        assert await bus.last_seq() == 2
    finally:
        await bus.close()
        await server.stop()


async def doubted(bus: JetStreamBus) -> str:
    """Why it is not known who leads; empty: it is."""
    try:
        await bus.still_leads()
    except Unavailable as error:
        return str(error)
    return ""


async def test_while_the_disk_of_the_estimators_store_hangs_jobs_run_on_and_status_names_it(
    store_disk: Disk,
) -> None:
    async with busy_stack(store_disk.folder) as struck:
        await until(struck.client, all_learnt)
        with store_disk.hanging():
            hangs, at_first = Seconds(), await struck.client.status()
            await until(struck.client, troubled)
            hangs.say("the store's disk hangs: status names it")
            await accepted(struck.stack)
            seen = await until(struck.client, lambda status: completed(status) > completed(at_first))
        well = Seconds()
        await until(struck.client, lambda status: not troubled(status))
        well.say("the store's disk hangs no more: the store has written")
    kept = observations(str(store_of(store_disk.folder)))
    assert [one for one in kept if at_first.at < one.at < seen.at]


def all_learnt(status: StatusView) -> bool:
    """And some run: those of unknown workloads would wait for the disk."""
    return busy(status) and not any(status.jobs.get(state) for state in ("submitted", "profiled"))


def completed(status: StatusView) -> int:
    return status.jobs.get("completed", 0)


def troubled(status: StatusView) -> bool:
    return any("estimator.duckdb has not answered" in each for each in troubles_in(status))


async def test_while_the_disk_of_checkpoints_hangs_status_names_it_and_the_node(
    jobs_disk: Disk, tmp_path: Path
) -> None:
    written = {
        "name": "waits",
        "workload": {"model": "paced", "dataset": "line", "batch_size": 16, "dataset_samples": 2_048},
        "command": [sys.executable, "train.py"],
        "gpus": 1,
        "samples": 2_000,
        "checkpoint": {"folder": str(jobs_disk.folder / "waits")},
    }
    one = cluster(nodes=[{"prefix": "fast", "count": 1, "gpus": 1, "gpu_type": "fast"}])
    async with real_stack(tmp_path / "data", one) as (_, client):
        with jobs_disk.hanging():
            hangs = Seconds()
            taken = await client.submit(msgspec.convert(written, JobFile), "key")
            status = await until(client, waits_for_disk)
            hangs.say("a disk below checkpoints hangs: status names it")
            assert [found for found in troubles_in(status) if str(jobs_disk.folder / "waits") in found]
        well = Seconds()
        await until(client, lambda status: not waits_for_disk(status))
        well.say("a disk below checkpoints hangs no more: status names it no more")
        async with asyncio.timeout(LIMIT_S):  # once it can start, its script fails: there is no torch here
            while (await client.job(taken.job_id)).state != JobState.REJECTED:
                await asyncio.sleep(0.1)
    await nothing_left(tmp_path / "data")


def waits_for_disk(status: StatusView) -> bool:
    return any("fast-0: a start waits for a disk" in each for each in troubles_in(status))


def troubles_in(status: StatusView) -> list[str]:
    return [trouble for one in status.services for trouble in one.troubles]


async def said(struck: Struck, words: str) -> None:
    async with asyncio.timeout(LIMIT_S):
        while not any(words in line for line in struck.said):
            await asyncio.sleep(0.1)


def test_observations_not_written_to_a_lost_disk_are_not_counted_as_written(tmp_path: Path) -> None:
    (folder := tmp_path / "disk").mkdir()
    known, seen = [[observed(at=float(n)) for n in range(first, first + 100)] for first in (0, 1_000)]
    path = str(folder / "store.duckdb")
    with disk_at(folder, tmp_path / "image") as disk:
        store = DuckDbStore(path, HALF_LIFE_S)
        store.add(known)
        with disk.gone():
            with pytest.raises(StoreUnavailable):
                store.add(seen)
            store.close()
        assert observations(path) == known
        again = DuckDbStore(path, HALF_LIFE_S)
        again.add(seen)
        again.close()
        assert observations(path) == [*known, *seen]


def observations(path: str) -> Sequence[ThroughputObserved]:
    store = DuckDbStore(path, HALF_LIFE_S)
    try:
        return store.observations(0, 10_000)
    finally:
        store.close()
