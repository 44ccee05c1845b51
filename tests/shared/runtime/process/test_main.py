import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE
from contextlib import suppress
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from hopyard.local.accounts import accounts_in, ensure_accounts
from hopyard.local.credentials import account_of
from schemas.settings import Settings
from schemas.subjects import FACTS_STREAM
from schemas.views import ServiceState
from shared.runtime.bus.contract import Unavailable
from shared.runtime.leadership import Deposed
from shared.runtime.process import main
from shared.runtime.process.joining import check_protocol
from shared.runtime.process.main import while_running
from shared.runtime.process.nats_server import NatsServer
from shared.runtime.process.ports import HeldPorts
from shared.runtime.process.reports import reported, reports
from shared.runtime.process.web import STARTS
from shared.runtime.service import Service
from tests.bus_nets import LIMIT_S, JetStreamNet


async def test_a_service_that_still_waits_for_nats_says_so_and_stops_at_a_signal() -> None:
    environ = os.environ | {"HOPYARD_NATS_URL": "nats://127.0.0.1:1"}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "services.placer"), env=environ, stderr=PIPE
    )
    assert process.stderr is not None
    async with asyncio.timeout(120):
        assert b"waiting for NATS" in await process.stderr.readline()
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 0


async def test_a_service_that_waits_for_its_streams_says_for_which_and_where(tmp_path: Path) -> None:
    """Admission makes them; a start that waited for one it never made was silent for ever."""
    ensure_accounts(tmp_path)
    server = NatsServer(tmp_path / "nats", accounts=lambda: accounts_in(tmp_path))
    await server.start()
    environ = os.environ | {
        "HOPYARD_NATS_URL": server.url,
        "HOPYARD_NATS_CREDENTIALS": str(account_of(tmp_path, "placer")),
        "HOPYARD_LOG_FORMAT": "json",
    }
    placer = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "services.placer"), env=environ, stderr=PIPE
    )
    assert placer.stderr is not None
    said: dict[str, dict[str, Any]] = {}
    try:
        async with asyncio.timeout(120):
            while not {"waiting for a stream", "held up"} <= said.keys():
                line = json.loads(await placer.stderr.readline())
                said[line["event"]] = line
        placer.terminate()
        assert await placer.wait() == 0
    finally:
        with suppress(ProcessLookupError):
            placer.kill()
        await server.stop()
    assert said["waiting for a stream"]["stream"] == FACTS_STREAM
    assert said["held up"]["by"] == "NATS and its streams"
    assert any("jetstream/streams.py" in place for place in said["held up"]["at"])


async def test_a_signal_that_meets_the_end_of_a_life_ends_the_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A group of tasks that fails swallows it: a new life began, and no signal ended that one."""
    lives = []

    async def slow_to_end() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            signal.raise_signal(signal.SIGTERM)
            await asyncio.sleep(0.1)

    async def deposed() -> None:
        raise Deposed("another leads")

    async def live(*_: object, first: bool) -> None:
        lives.append(first)
        async with asyncio.TaskGroup() as group:
            group.create_task(slow_to_end())
            await asyncio.sleep(0)
            group.create_task(deposed())

    monkeypatch.setattr(main, "_live", live)
    with suppress(asyncio.CancelledError):
        await asyncio.create_task(main._run("placer", _built, Settings()))
    for number in main.STOPPING:
        asyncio.get_running_loop().remove_signal_handler(number)
    assert lives == [True]


def _built(*_: object) -> Service:
    raise AssertionError("no service is built")


async def test_a_start_that_waits_for_nats_ends_once_its_connection_is_closed(live: JetStreamNet) -> None:
    """The service asked for ever."""
    bus = await live.client()
    await bus._connection.nats.close()
    async with asyncio.timeout(LIMIT_S):
        with pytest.raises(Unavailable):
            await main._retry_until_answered(bus, lambda: check_protocol(bus))


async def test_a_service_of_another_clock_than_one_that_runs_ends_and_says_so(live: JetStreamNet) -> None:
    """So would one that `docker compose run` starts again without a variable of the command before."""
    bus = await live.client("admission")
    async with reported(bus, "planner", settings=Settings(speed=60.0)) as reporter:
        assert reporter is not None
        renewing = asyncio.create_task(reporter.renew(ready=lambda: True, troubles=tuple))
        while not reporter.up():
            await asyncio.sleep(0.01)
        environ = os.environ | {
            "HOPYARD_NATS_URL": live.settings.nats_url,
            "HOPYARD_NATS_TOKEN": live.settings.nats_token,
        }
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "services.placer"), env=environ, stderr=PIPE
        )
        async with asyncio.timeout(120):
            _, said = await process.communicate()
        renewing.cancel()
        [of_placer] = [one for one in await reports(bus) if one.name == "placer"]
    assert process.returncode == 1
    assert said.decode().splitlines()[-1] == (
        "hopyard placer: the settings have speed=1.0 and clock_origin=0.0, and planner, which runs, has "
        "speed=60.0 and clock_origin=0.0: give all services of a stack the same"
    )
    assert of_placer.state is ServiceState.FAILED


async def test_an_agent_that_waits_for_a_node_does_not_say_that_it_waits_for_nats(tmp_path: Path) -> None:
    server, held = NatsServer(tmp_path / "nats"), HeldPorts("127.0.0.1", 2)
    (tmp_path / "cluster.yaml").write_text(ONE_NODE)
    environ = os.environ | {
        "HOPYARD_NATS_URL": server.url,
        "HOPYARD_CLUSTER": str(tmp_path / "cluster.yaml"),
        "HOPYARD_RUNNER": "emulated",
    }
    await server.start()
    agents: list[asyncio.subprocess.Process] = []
    try:
        for port, said in zip(held.ports, ('"services"', STARTS), strict=True):
            own = environ | {"HOPYARD_WEB_PORT": str(port)}
            agents += [await asyncio.create_subprocess_exec(*AGENT, env=own, stderr=DEVNULL)]
            await until_it_says(said, port)
    finally:
        for agent in agents:
            with suppress(ProcessLookupError):
                agent.terminate()
        await asyncio.gather(*(agent.wait() for agent in agents))
        await server.stop()


AGENT = (sys.executable, "-m", "services.agent")


ONE_NODE = """
name: small
gpu_types: {V100: {link_bandwidth: 1.0e+10, network_bandwidth: 1.0e+9}}
nodes: [{prefix: node, count: 1, gpu_type: V100, gpus: 1}]
"""


async def until_it_says(words: str, port: int) -> None:
    text = ""
    async with asyncio.timeout(60), aiohttp.ClientSession() as session:
        while words not in text:
            with suppress(aiohttp.ClientError):
                async with session.get(f"http://127.0.0.1:{port}/readyz") as response:
                    text = await response.text()
            await asyncio.sleep(0.1)


async def test_a_failed_side_task_ends_its_service() -> None:
    """A failed watch was not noticed."""

    async def failing() -> None:
        raise LookupError("the watch")

    with pytest.raises(ExceptionGroup) as found:
        async with asyncio.timeout(60), while_running(failing()):
            await asyncio.Future()
    assert found.group_contains(LookupError, match="the watch")


async def test_a_side_task_ends_with_its_service() -> None:
    ended = []

    async def watching() -> None:
        try:
            await asyncio.Future()
        finally:
            ended.append("the watch")

    async with asyncio.timeout(60), while_running(watching()):
        await asyncio.sleep(0)
    assert ended == ["the watch"]
