"""What becomes of real jobs when something goes wrong: one stack, one fault after another."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
import pytest_asyncio

from hopyard.api.client import Client
from hopyard.local.stack import Stack
from schemas.base import Event
from schemas.events import (
    JobCompleted,
    JobFailed,
    JobPreempted,
    JobStarted,
    PreemptReason,
    WorkerCheckpointed,
    WorkerStarted,
)
from schemas.ids import JobId, PlacementId
from schemas.jobs import JobFile
from services.agent.process.claims import read
from shared.domain.audit import audit
from shared.domain.states import ENDED
from tests.real.real_builders import job_file, nothing_left, real_stack, steps_of
from tests.stack_watch import log_of

pytestmark = [pytest.mark.torch, pytest.mark.asyncio(loop_scope="module")]

LIMIT_S = 240.0


class Stage(msgspec.Struct, frozen=True):
    stack: Stack
    client: Client
    data: Path
    jobs: dict[str, JobId]
    """that were submitted, by name"""

    async def submit(self, job: JobFile) -> JobId:
        self.jobs[job.name] = (await self.client.submit(job, job.name)).job_id
        return self.jobs[job.name]

    def job(self, name: str, **more: object) -> JobFile:
        return job_file(name, self.data / "ledger", **more)  # type: ignore[arg-type]

    async def facts(self, name: str) -> list[Event]:
        wanted = self.jobs[name]
        log = await log_of(self.client)
        return [fact for fact in log if getattr(fact, "job_id", None) == wanted]

    async def until(self, name: str, kind: type[Event], count: int = 1) -> Event:
        """The `count`-th fact of a kind about a job."""
        try:
            async with asyncio.timeout(LIMIT_S):
                while True:
                    found = [fact for fact in await self.facts(name) if isinstance(fact, kind)]
                    if len(found) >= count:
                        return found[count - 1]
                    await asyncio.sleep(0.2)
        except TimeoutError:
            facts = "\n".join(map(str, await self.facts(name)))
            raise AssertionError(f"no {kind.__name__} of {name} in {LIMIT_S:g} s:\n{facts}") from None

    async def trains(self, name: str) -> list[int]:
        """Wait until the newest placement has made steps; the process ids of its ranks."""
        async with asyncio.timeout(LIMIT_S):
            while True:
                started = [fact for fact in await self.facts(name) if isinstance(fact, JobStarted)]
                steps = steps_of(self.data / "ledger" / name)
                if started and any(step.placement == started[-1].placement_id for step in steps):
                    return self.ranks_of(started[-1].placement_id)
                await asyncio.sleep(0.2)

    def ranks_of(self, placement_id: PlacementId) -> list[int]:
        """Process ids, as the agents have written them down; in the order of ranks."""
        claims = [
            claim for run in (self.data / "run").iterdir() if (claim := read(run / "workers" / placement_id))
        ]
        ranks = sorted((one.rank, one.process.pid) for claim in claims for one in claim.ranks if one.process)
        return [pid for _, pid in ranks]

    def pid_of(self, name: str) -> int:
        return next(one.process.pid for one in self.stack.running if one.program.name == name)


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def stage(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stage]:
    data = tmp_path_factory.mktemp("faults")
    async with real_stack(data) as (stack, client):
        yield Stage(stack, client, data, {})
    await nothing_left(data)


async def test_a_rank_that_is_killed_sends_its_job_back_to_the_queue(stage: Stage) -> None:
    await stage.submit(stage.job("killed", gpus=2, samples=6_000))
    ranks = await stage.trains("killed")
    await stage.until("killed", WorkerCheckpointed)
    os.kill(ranks[-1], signal.SIGKILL)
    preempted = await stage.until("killed", JobPreempted)
    assert isinstance(preempted, JobPreempted)
    assert preempted.reason is PreemptReason.INTERRUPTED
    assert preempted.samples_done > 0
    await stage.until("killed", JobCompleted)


async def test_a_rank_that_is_stopped_is_ended_when_its_grace_is_over(stage: Stage) -> None:
    job_id = await stage.submit(
        stage.job("stopped", checkpoint={"interval_s": 5, "grace_s": 3}, samples=20_000)
    )
    ranks = await stage.trains("stopped")
    for rank in ranks:
        os.kill(rank, signal.SIGSTOP)
    await stage.client.cancel(job_id)
    await gone(ranks)


async def test_a_new_agent_adopts_the_old_one_s_workers(stage: Stage) -> None:
    await stage.submit(stage.job("adopted", samples=3_000))
    ranks = await stage.trains("adopted")
    started = await stage.until("adopted", WorkerStarted)
    assert isinstance(started, WorkerStarted)
    os.kill(stage.pid_of(f"agent-{started.node_id}"), signal.SIGKILL)
    await stage.until("adopted", JobCompleted)
    facts = await stage.facts("adopted")
    assert not any(isinstance(fact, JobPreempted) for fact in facts)
    assert {step.placement for step in steps_of(stage.data / "ledger" / "adopted")} == {
        fact.placement_id for fact in facts if isinstance(fact, JobStarted)
    }
    await gone(ranks)


async def test_a_job_whose_agent_and_ranks_are_killed_goes_on_from_its_checkpoint(stage: Stage) -> None:
    await stage.submit(stage.job("orphan", samples=4_000))
    ranks = await stage.trains("orphan")
    saved = await stage.until("orphan", WorkerCheckpointed)
    assert isinstance(saved, WorkerCheckpointed)
    os.kill(stage.pid_of(f"agent-{saved.node_id}"), signal.SIGKILL)
    for rank in ranks:
        os.kill(rank, signal.SIGKILL)
    await stage.until("orphan", JobCompleted)
    placements = {fact.placement_id for fact in await stage.facts("orphan") if isinstance(fact, JobStarted)}
    again = [
        step for step in steps_of(stage.data / "ledger" / "orphan") if step.placement != saved.placement_id
    ]
    assert len(placements) == 2
    assert min(step.samples for step in again) >= saved.samples_done


async def test_jobs_train_on_while_nats_is_away(stage: Stage) -> None:
    await stage.submit(stage.job("unheard", samples=4_000))
    ranks = await stage.trains("unheard")
    stage.stack.nats.kill()
    await stage.until("unheard", JobCompleted)
    assert not any(isinstance(fact, JobPreempted) for fact in await stage.facts("unheard"))
    await gone(ranks)


async def test_a_damaged_checkpoint_is_skipped_for_the_one_before(stage: Stage) -> None:
    job_id = await stage.submit(stage.job("damaged", samples=6_000))
    await stage.trains("damaged")
    first = await stage.until("damaged", WorkerCheckpointed)
    second = await stage.until("damaged", WorkerCheckpointed, 2)
    assert isinstance(first, WorkerCheckpointed)
    assert isinstance(second, WorkerCheckpointed)
    folder = stage.data / "jobs" / job_id / "checkpoints"
    for rank in await stage.trains("damaged"):
        os.kill(rank, signal.SIGKILL)
    newest = max(folder.glob("*.pt"))
    newest.write_bytes(newest.read_bytes()[:100])
    await stage.until("damaged", JobCompleted)
    started = [fact for fact in await stage.facts("damaged") if isinstance(fact, WorkerStarted)]
    restored = [fact.samples_restored for fact in started if fact.samples_restored]
    assert restored
    assert f"{int(restored[-1])}" not in newest.name


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small disk needs root")
async def test_a_full_disk_costs_the_checkpoint_and_neither_the_job_nor_its_model(stage: Stage) -> None:
    folder = stage.data / "small"
    folder.mkdir()
    await run("mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder))
    try:
        (folder / "filler").write_bytes(b"x" * 1_040_000)
        checkpoint = {"folder": str(folder), "interval_s": 2, "grace_s": 10}
        await stage.submit(stage.job("full", samples=2_500, checkpoint=checkpoint))
        async with asyncio.timeout(LIMIT_S):
            while not any("checkpoint" in line and "space" in line for line in await output(stage, "full")):
                await asyncio.sleep(0.2)
        (folder / "filler").unlink()
        await stage.until("full", JobCompleted)
        saved = max(path.name for path in folder.glob("*.pt"))
        assert int(saved.partition("-")[0]) >= 2_500
    finally:
        await run("umount", "-l", str(folder))


@pytest.mark.skipif(os.geteuid() != 0, reason="limits of memory need control groups, and these root")
async def test_a_job_that_takes_more_memory_than_it_asked_for_fails_and_says_so(stage: Stage) -> None:
    await stage.submit(
        stage.job("greedy", script="greedy.py", model="greedy", samples=60_000, memory="700MB")
    )
    failed = await stage.until("greedy", JobFailed)
    assert isinstance(failed, JobFailed)
    assert "memory" in failed.reason


async def test_a_missing_command_fails_only_its_job(stage: Stage) -> None:
    job = msgspec.structs.replace(
        stage.job("missing", model="missing"), command=["/no/such/python", "train.py"]
    )
    await stage.submit(job)
    async with asyncio.timeout(LIMIT_S):
        while not any(fact.tag() in {"job.failed", "job.rejected"} for fact in await stage.facts("missing")):
            await asyncio.sleep(0.2)
    reasons = [getattr(fact, "reason", "") for fact in await stage.facts("missing")]
    assert any("/no/such/python" in reason for reason in reasons), reasons


async def test_a_script_that_ignores_its_signals_is_ended_with_all_it_started(stage: Stage) -> None:
    ignoring = stage.job("stubborn", script="stubborn.py", model="stubborn", checkpoint={"grace_s": 2})
    job_id = await stage.submit(ignoring)
    async with asyncio.timeout(LIMIT_S):
        while not (marked := with_mark("stubborn.py")):
            await asyncio.sleep(0.2)
    await stage.client.cancel(job_id)
    await gone(marked)
    assert not with_mark("stubborn.py")


async def test_after_all_that_the_log_is_sound(stage: Stage) -> None:
    async with asyncio.timeout(LIMIT_S):
        while True:
            jobs = (await stage.client.status()).jobs
            if sum(jobs.get(state, 0) for state in ENDED) >= len(stage.jobs):
                break
            await asyncio.sleep(0.2)
    lines = [line async for line in stage.client.events()]
    assert audit([line.fact() for line in lines], drained=True, seqs=[line.seq for line in lines]) == []


async def output(stage: Stage, name: str) -> list[str]:
    return [line.text async for line in stage.client.output(stage.jobs[name], newest=1_000)]


async def run(*command: str) -> None:
    process = await asyncio.create_subprocess_exec(*command)
    assert await process.wait() == 0, command


def with_mark(name: str) -> list[int]:
    found = []
    for process in Path("/proc").iterdir():
        if process.name.isdecimal():
            try:
                if name.encode() in (process / "cmdline").read_bytes():
                    found.append(int(process.name))
            except OSError:
                continue
    return found


async def gone(pids: list[int]) -> None:
    """Wait until none of the processes is there."""
    async with asyncio.timeout(LIMIT_S):
        while any(alive(pid) for pid in pids):
            await asyncio.sleep(0.2)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
