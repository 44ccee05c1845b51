"""The estimator over a real NATS server, at the size of a large cluster; and an operator's commands."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace

from hopyard.cli import main
from schemas.ids import GpuType
from schemas.settings import Settings
from services.estimator.build import build
from services.estimator.store.duckdb_store import DuckDbStore
from shared.runtime.clock import LoopClock
from shared.runtime.service import Ports
from shared.runtime.shell.shell import Shell
from tests.bus_nets import JetStreamNet
from tests.fact_builders import whole_life
from tests.services.estimator.estimator_builders import joined, modules, node, observed, workload
from tests.services.estimator.estimator_scale import GPU_TYPES, NODES, WORKLOADS, answered, question, whole

CONFIGURATIONS = 200_000
"""with their answers some nine messages' worth"""


@asynccontextmanager
async def running(live: JetStreamNet, settings: Settings) -> AsyncIterator[None]:
    ports = Ports(bus=await live.client("estimator"), clock=LoopClock())
    service = build(settings, ports)
    shell = Shell(service, ports, settings)
    task = asyncio.create_task(shell.run())
    try:
        async with asyncio.timeout(60.0):
            while not shell.ready():
                await asyncio.sleep(0.01)
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await ports.bus.close()
        assert service.close is not None
        await service.close()


async def test_a_question_about_two_thousand_gpus_is_answered(live: JetStreamNet, tmp_path: Path) -> None:
    path = str(tmp_path / "store.duckdb")
    store = DuckDbStore(path, half_life_s=1e6)
    for number in range(WORKLOADS):
        store.keep(workload(f"m{number}"), {GpuType(f"T{kind}"): modules() for kind in range(GPU_TYPES)})
    store.close()
    client = await live.client("planner")
    await client.publish([joined(node(f"n{n}", f"T{n % GPU_TYPES}")) for n in range(NODES)])
    async with running(live, replace(live.settings, store=path)):
        asked = question(CONFIGURATIONS)
        assert len(asked.node) + len(asked.gpus) > 2 * 1_048_576
        assert whole(await answered(client, asked), CONFIGURATIONS)


# ---- commands


class Line:
    """Runs commands against the server of a test, beside the services that answer them."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    async def __call__(self, *words: str) -> tuple[int, str, str]:
        """Exit code, stdout, stderr; what was said before is no part of it."""
        self._capsys.readouterr()
        with pytest.raises(SystemExit) as end:
            await asyncio.to_thread(main, words)
        said = self._capsys.readouterr()
        return int(end.value.code or 0), said.out, said.err


@pytest.fixture
def line(
    live: JetStreamNet,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> Line:
    monkeypatch.setenv("HOPYARD_NATS_URL", live.settings.nats_url)
    monkeypatch.chdir(tmp_path)
    return Line(capsys)


async def test_accuracy_is_grouped_by_the_requested_columns(live: JetStreamNet, line: Line) -> None:
    await (await live.client("test")).publish(whole_life())
    async with running(live, live.settings):
        code, out, _ = await line("accuracy", "--by", "model,place", "--json")
        assert (code, json.loads(out)["rows"][0]["key"]) == (0, ["resnet-18", "aggregated"])
        assert (await line("accuracy", "--by", "moon"))[0] == 2


async def test_bandwidths_cannot_be_measured_without_agents(live: JetStreamNet, line: Line) -> None:
    await (await live.client("test")).publish([joined()])
    async with running(live, live.settings):
        assert (await line("calibrate", "--show", "--json"))[1].split() == [
            "{",
            '"rows":',
            "[],",
            '"left_out":',
            "{}",
            "}",
        ]
        code, _, err = await line("calibrate")
        assert code == 1
        assert "a0 did not measure: its agent does not answer" in err


async def test_an_exported_store_is_imported_by_another_stack(
    live: JetStreamNet, line: Line, tmp_path: Path
) -> None:
    path = str(tmp_path / "store.duckdb")
    store = DuckDbStore(path, half_life_s=1e6)
    store.add([observed(at=float(at)) for at in range(5)])
    store.keep(workload(), {GpuType("A"): modules()})
    store.close()
    async with running(live, replace(live.settings, store=path)):
        assert (await line("store", "export", "lab.jsonl"))[0] == 0
    async with running(live, live.settings):
        assert json.loads((await line("store", "import", "lab.jsonl", "--json"))[1])["entered"] == 6
        assert json.loads((await line("store", "import", "lab.jsonl", "--json"))[1])["known"] == 6


async def test_a_damaged_export_is_refused_with_file_line_and_reason(line: Line, tmp_path: Path) -> None:
    (tmp_path / "lab.jsonl").write_text('{"kind":"hopyard-store","version":1}\n{"kind":"obser\n')
    code, _, err = await line("store", "import", "lab.jsonl")
    assert code == 2
    assert "lab.jsonl:2: " in err
