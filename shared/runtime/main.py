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
    bus = await JetStreamBus.connect(settings, name)
    ports = Ports(bus=bus, clock=ScaledClock(origin=settings.clock_origin, speed=settings.speed))
    built = build(settings, ports)
    service = await built if inspect.isawaitable(built) else built
    shell = Shell(service, ports, settings)
    web = await serve(settings, service, shell, bus)
    structlog.get_logger().info("listening", host=settings.web_host, port=web.port)
    try:
        with _cancelled_by_signals(asyncio.current_task()):
            await shell.run()
    finally:
        await web.close()
        if service.close is not None:
            await service.close()
        await bus.close()


@contextlib.contextmanager
def _cancelled_by_signals(task: asyncio.Task[None] | None) -> Iterator[None]:
    loop = asyncio.get_running_loop()
    assert task is not None
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, task.cancel)
    try:
        yield
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)
