"""Some services over a NATS server, as processes that can be killed and timed; without agents."""

import asyncio
import math
import os
import re
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import aiohttp
import msgspec

from hopyard.failures import Died, NotReady
from hopyard.lab.bench.stack.guard import OPEN, Guard
from hopyard.local.child import Program
from hopyard.local.processes import RunningProgram, kill_group, start, stop
from hopyard.local.stack import free_ports, is_ready
from hopyard.local.stack_settings import HOST, StackSpec, environment
from schemas.base import Event
from schemas.settings import Settings
from shared.runtime.bus.jetstream import JetStreamBus
from shared.runtime.process.nats_server import NatsServer

LOOK_EVERY_S = 0.005
READY_LIMIT_S = 120.0
STOP_LIMIT_S = 5.0
CONNECT_LIMIT_S = 10.0


@asynccontextmanager
async def nats_server(
    folder: Path, *, sync_interval: str = "always", guard: Guard = OPEN
) -> AsyncIterator[NatsServer]:
    server = NatsServer(folder, sync_interval=sync_interval, accounts=guard.accounts, tls=guard.tls)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


@asynccontextmanager
async def bus_to(
    server: NatsServer, name: str = "bench", settings: Settings | None = None
) -> AsyncIterator[JetStreamBus]:
    """`settings`: those for a server that asks for accounts."""
    there = settings or Settings(nats_url=server.url)
    bus = await JetStreamBus.connect(there, name, timeout_s=CONNECT_LIMIT_S)
    try:
        yield bus
    finally:
        await bus.close()


async def store_log(folder: Path, facts: Sequence[Event], handled: int, services: Sequence[str]) -> None:
    """Leave facts in a server's folder as services leave them that handled the first `handled`.

    Their cursors stand there, and no snapshot was taken. The disk is not waited for.
    """
    async with nats_server(folder, sync_interval="1m") as server, bus_to(server) as bus:
        await bus.publish(facts)
        for name in services:
            await bus.put(cursor(name), str(handled).encode())


def cursor(service: str) -> str:
    return f"cursor/{service}"


class Life:
    """A process that runs a service, from its start to its end."""

    def __init__(self, running: RunningProgram, port: int, ready_s: float) -> None:
        self.port = port
        self.ready_s = ready_s
        """from the start of the process until it said that it is ready, real seconds"""
        self._running = running

    @property
    def pid(self) -> int:
        return self._running.process.pid

    async def metrics(self) -> dict[str, float]:
        """The numbers without labels that the service shows."""
        async with aiohttp.ClientSession() as session, session.get(f"{address(self.port)}/metrics") as answer:
            return numbers(await answer.text())

    async def kill(self) -> None:
        """Kill the process with SIGKILL."""
        kill_group(self._running.process.pid)
        await self._running.process.wait()

    async def stop(self) -> None:
        await stop([self._running], STOP_LIMIT_S)


def cpu_s(pid: int) -> float:
    """CPU seconds that a process has used so far; not a number where the system does not say so."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return math.nan
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def address(port: int) -> str:
    return f"http://{HOST}:{port}"


def numbers(text: str) -> dict[str, float]:
    """Name → value of the lines without labels in Prometheus' text format."""
    return {name: float(value) for name, value in re.findall(r"^(\w+) (\S+)$", text, re.MULTILINE)}


async def begin(name: str, spec: StackSpec, server: NatsServer, guard: Guard = OPEN) -> Life:
    """Start a service and wait until it is ready. Raises NotReady, Died."""
    (port,) = free_ports(1)
    cluster = spec.data / "cluster.json"
    cluster.write_bytes(msgspec.json.encode(spec.cluster))
    service, _, node = name.partition("-")
    program = Program(
        name=name,
        module=f"services.{service}",
        environ=environment(spec, server.url)
        | {"HOPYARD_WEB_PORT": str(port), "HOPYARD_NODE": node}
        | guard.environ(name),
        log=spec.data / "logs" / f"{name}.log",
    )
    began = time.perf_counter()
    running = await start(program)
    life = Life(running, port, 0.0)
    try:
        await _until_ready(running, port)
    except BaseException:
        await life.kill()
        raise
    life.ready_s = time.perf_counter() - began
    return life


async def _until_ready(running: RunningProgram, port: int) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(READY_LIMIT_S), aiohttp.ClientSession() as session:
            while not await is_ready(session, port):
                if running.process.returncode is not None:
                    raise Died(f"{running.program.name} ended; its log is {running.program.log}")
                await asyncio.sleep(LOOK_EVERY_S)
            return
    raise NotReady(f"{running.program.name} is not ready after {READY_LIMIT_S:g} s")
