"""The whole service: built, on a real shell and a bus in memory, killed and started again."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from schemas.base import Message
from schemas.cluster import ClusterFile, GpuTypeFile, NodeGroup
from schemas.ids import GpuType, JobId
from schemas.settings import Settings
from schemas.views import PolicyChoice, Problem, Submitted
from services.admission.build import build
from services.admission.core import Admission
from services.admission.questions import SetPolicy, Submit
from shared.runtime.bus.memory import Faults, MemoryBus
from shared.runtime.clock import LoopClock
from shared.runtime.files import InvalidFile
from shared.runtime.service import Ports
from shared.runtime.shell.shell import Shell
from tests.services.admission.admission_world import job_file, node


@contextlib.asynccontextmanager
async def living(bus: MemoryBus, settings: Settings | None = None) -> AsyncIterator[Shell]:
    settings = settings or Settings()
    ports = Ports(bus=bus.client("admission"), clock=LoopClock())
    shell = Shell(build(settings, ports), ports, settings)
    task = asyncio.create_task(shell.run())
    try:
        yield shell
    finally:
        task.cancel()
        await asyncio.wait({task})


async def submit(shell: Shell, key: str, **job: object) -> Message:
    async with asyncio.timeout(60.0):
        return await shell.ask(Submit(job=job_file(**job), key=key))


async def test_a_life_cut_short_forgets_no_submission() -> None:
    bus = MemoryBus(LoopClock(), Faults(duplicate=0.5, redeliver=0.5))
    for life in range(5):
        async with living(bus) as shell:
            for number in range(life + 1):
                new = Submitted(job_id=JobId(f"train-{number + 1}"), created=number == life)
                assert await submit(shell, f"key-{number}") == new
    await bus.close()


@pytest.mark.parametrize("caught_up", [True, False])
async def test_a_question_at_which_the_core_fails_does_not_end_the_service(*, caught_up: bool) -> None:
    bus = MemoryBus(LoopClock())
    async with living(bus) as shell:
        if caught_up:
            await submit(shell, "first")
        with pytest.raises(UnicodeEncodeError):
            await submit(shell, "k", command=["\ud800"])
        assert isinstance(await submit(shell, "k"), Submitted)
        assert shell.counts.questions_failed == 1
    await bus.close()


async def test_the_nodes_of_the_cluster_file_are_known(tmp_path: Path) -> None:
    v100 = GpuType("v100")
    cluster = ClusterFile(
        name="lab",
        gpu_types={v100: GpuTypeFile(link_bandwidth=1e10, network_bandwidth=1e9)},
        nodes=[NodeGroup(prefix="n", count=2, gpus=4, gpu_type=v100)],
    )
    path = tmp_path / "cluster.json"
    path.write_bytes(msgspec.json.encode(cluster))
    bus = MemoryBus(LoopClock())
    async with living(bus, Settings(cluster=str(path))) as shell:
        refused = await submit(shell, "k", gpus=16)
        assert isinstance(refused, Problem)
        assert refused.field == "$.gpus"
        assert isinstance(await submit(shell, "k", gpus=8), Submitted)
    await bus.close()


async def test_a_cluster_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    bus = MemoryBus(LoopClock())
    with pytest.raises(InvalidFile, match=r"none\.yaml"):
        build(Settings(cluster=str(tmp_path / "none.yaml")), Ports(bus=bus, clock=LoopClock()))
    await bus.close()


async def test_nodes_handed_in_come_before_the_file() -> None:
    bus = MemoryBus(LoopClock())
    settings = Settings(cluster="nowhere.yaml")
    core = build(settings, Ports(bus=bus, clock=LoopClock()), [node()]).core
    assert isinstance(core, Admission)
    await bus.close()


async def test_the_installed_policies_can_be_chosen() -> None:
    bus = MemoryBus(LoopClock())
    async with living(bus) as shell, asyncio.timeout(60.0):
        assert await shell.ask(SetPolicy(policy="fifo")) == PolicyChoice(policy="fifo")
    await bus.close()


async def test_facts_that_the_core_ignored_are_counted_in_its_metrics() -> None:
    bus = MemoryBus(LoopClock())
    service = build(Settings(), Ports(bus=bus, clock=LoopClock()))
    assert service.metrics is not None
    service.core.state.illegal = 3
    values = {metric.name: metric.value for metric in service.metrics()}
    assert values == {"admission_jobs_open": 0, "admission_illegal_facts": 3, "admission_refused": 0}
    await bus.close()
