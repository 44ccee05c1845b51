"""From a `build` function to a process: settings, logs, bus, clock, web server, shell, signals."""

import asyncio
import contextlib
import inspect
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Iterator

import structlog

from schemas.settings import Settings
from shared.runtime.clock import ScaledClock
from shared.runtime.jetstream import JetStreamBus
from shared.runtime.logs import configure_logs
from shared.runtime.service import Ports, Service
from shared.runtime.settings import load_settings
from shared.runtime.shell import Shell
from shared.runtime.web import serve

STOPPING = (signal.SIGTERM, signal.SIGINT)

Build = Callable[[Settings, Ports], Service | Awaitable[Service]]


def run(name: str, build: Build) -> None:
    """Run one service as this process, until SIGTERM or SIGINT."""
    try:
        settings = load_settings(os.environ)
    except ValueError as error:
        sys.exit(f"hopyard {name}: {error}")
    configure_logs(settings, service=name)
    with contextlib.suppress(KeyboardInterrupt, asyncio.CancelledError):
        asyncio.run(_run(name, build, settings))


async def _run(name: str, build: Build, settings: Settings) -> None:
    """Until cancelled; also while it still waits for NATS, or for a node to stand for."""
    _cancel_at_signals(asyncio.current_task())
    with _starting(name):
        bus = await JetStreamBus.connect(settings, name)
    try:
        await _serve(name, build, settings, bus)
    finally:
        await bus.close()


async def _serve(name: str, build: Build, settings: Settings, bus: JetStreamBus) -> None:
    ports = Ports(bus=bus, clock=ScaledClock(origin=settings.clock_origin, speed=settings.speed))
    with _starting(name):
        built = build(settings, ports)
        service = await built if inspect.isawaitable(built) else built
        shell = Shell(service, ports, settings)
        web = await serve(settings, service, shell, bus)
    structlog.get_logger().info("listening", host=settings.web_host, port=web.port)
    try:
        await shell.run()
    finally:
        await web.close()
        if service.close is not None:
            await service.close()


@contextlib.contextmanager
def _starting(name: str) -> Iterator[None]:
    """Within, what the outside makes impossible ends the process with one line that says what it was."""
    try:
        yield
    except (OSError, ValueError, LookupError) as error:
        structlog.get_logger().debug("cannot start", exc_info=True)
        raise SystemExit(f"hopyard {name}: {error}") from None


def _cancel_at_signals(task: asyncio.Task[None] | None) -> None:
    """Cancel the task at the first signal: what follows must not cut its clean-up short."""
    assert task is not None
    loop = asyncio.get_running_loop()
    for number in STOPPING:
        loop.add_signal_handler(number, lambda: task.cancelling() or task.cancel())
