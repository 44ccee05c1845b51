"""Runs a service as a process: its settings, logs, bus, clock, web server, shell and signals."""

import asyncio
import contextlib
import inspect
import itertools
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from typing import Any, NamedTuple

import msgspec
import structlog

from schemas.settings import Settings
from shared.domain.conflicting_settings import check_together
from shared.runtime.bus.backoff import pauses
from shared.runtime.bus.contract import Fenced, Unavailable
from shared.runtime.bus.jetstream import JetStreamBus
from shared.runtime.clock import ScaledClock, unix_by
from shared.runtime.damage import EXIT_CODE, Damaged, leaf_of
from shared.runtime.leadership import Candidate, Deposed
from shared.runtime.offload import LiveOffload
from shared.runtime.process.clock_sync import (
    clock_troubles,
    correct_clock,
    go_on_from_newest,
    keep_clock_correct,
)
from shared.runtime.process.joining import announce, check_protocol
from shared.runtime.process.logs import configure_logs
from shared.runtime.process.reports import NAMES, Reporter, reported
from shared.runtime.process.step_watch import StepWatch
from shared.runtime.process.waiting_site import WaitingSite
from shared.runtime.process.watchdog import watch
from shared.runtime.process.web import STARTS, serve
from shared.runtime.service import Ports, Service
from shared.runtime.settings import Misconfigured, load_settings, sources_of
from shared.runtime.shell.shell import Shell

AFTER_LIFE_REAL_S = 0.5
"""seconds after which a deposed instance stands for election again"""
STOPPING = (signal.SIGTERM, signal.SIGINT)

Build = Callable[[Settings, Ports], Service | Awaitable[Service]]


class Life(NamedTuple):
    """What the steps of one life share. An agent has no candidate and no reporter: it has no instances."""

    name: str
    waiting: WaitingSite
    steps: StepWatch
    candidate: Candidate | None = None
    reporter: Reporter | None = None


def run(name: str, build: Build) -> None:
    """Run one service as this process, until SIGTERM or SIGINT."""
    try:
        settings = load_settings(os.environ)
        check_together(settings)
    except ValueError as error:
        raise Misconfigured(f"hopyard {name}: {error}") from None
    configure_logs(settings, service=name)
    with contextlib.suppress(KeyboardInterrupt, asyncio.CancelledError):
        damage: BaseException | None = None
        try:
            asyncio.run(_run(name, build, settings))
        except* Damaged as found:
            damage = leaf_of(found)
        if damage is not None:  # not above: Python 3.11.2 would put the exit into a group, which is an error
            sys.stderr.write(f"hopyard {name}: {damage}\n")
            sys.exit(EXIT_CODE)


async def _run(name: str, build: Build, settings: Settings) -> None:
    """Live one life after the other until SIGTERM or SIGINT, which also end a wait for NATS or for a node."""
    stopping = _cancel_at_signals(asyncio.current_task())
    steps = StepWatch(name)
    for life in itertools.count():
        try:
            await _live(name, build, settings, steps, first=life == 0)
        except BaseExceptionGroup as several:
            deposed, others = several.split((Deposed, Fenced))
            if deposed is None or others is not None:
                raise
            structlog.get_logger().warning("no longer leads", service=name, reason=str(leaf_of(deposed)))
        finally:
            steps.end()
        if stopping.is_set():  # a group of tasks that ends by itself swallows the cancellation
            return
        await asyncio.sleep(AFTER_LIFE_REAL_S)


async def _live(name: str, build: Build, settings: Settings, steps: StepWatch, *, first: bool) -> None:
    """One life: until it is cancelled, fails, or another instance leads."""
    async with WaitingSite(settings) as waiting:
        await _live_with(Life(name, waiting, steps), build, settings, first=first)


async def _live_with(life: Life, build: Build, settings: Settings, *, first: bool) -> None:
    name, steps = life.name, life.steps
    steps.begin("NATS and its streams")
    with _starting(name):
        bus = await JetStreamBus.connect(settings, name)
    try:
        clock = ScaledClock(origin=settings.clock_origin, speed=settings.speed)
        steps.begin("the time of NATS")
        with contextlib.suppress(Unavailable):  # `keep_clock_correct` tries again
            await correct_clock(clock, bus)
            if name in NAMES:  # an agent's account reads nothing of services
                await go_on_from_newest(clock, bus)
        async with (
            while_running(keep_clock_correct(clock, bus)),
            reported(bus, name, clock.unix, settings) as reporter,
        ):
            steps.begin("what NATS has stored of the stack's version and settings")
            await _retry_until_answered(bus, lambda: check_protocol(bus))
            if reporter is not None:
                steps.begin("the clocks of the services that run, which it compares with its own")
                with _starting(name):
                    await _retry_until_answered(bus, reporter.check_clock)
            await _retry_until_answered(bus, lambda: announce(bus, name, settings))
            ports = Ports(
                bus=bus, clock=clock, offload=LiveOffload(), sources=sources_of(os.environ), streams=bus
            )
            if name not in NAMES:
                await _serve(build, settings, ports, life)
                return
            candidate = Candidate(bus, clock, settings, name, first=first)
            ports = msgspec.structs.replace(ports, fencing_token=candidate.fencing_token)
            try:
                await _serve(build, settings, ports, life._replace(candidate=candidate, reporter=reporter))
            finally:
                steps.begin("its lease, which it gives up")
                await candidate.release()
    finally:
        steps.begin("its connection to NATS, which it closes")
        await bus.close()


async def _retry_until_answered(bus: JetStreamBus, ask: Callable[[], Awaitable[None]]) -> None:
    """Call `ask` until NATS answers, however long that takes: its disk may be full, or NATS gone.

    Raises Unavailable once the connection is closed.
    """
    for pause in pauses():
        try:
            await ask()
        except Unavailable as error:
            structlog.get_logger().warning("waits for NATS", reason=str(error))
            await bus.up()
        else:
            return
        await asyncio.sleep(pause)


@contextlib.asynccontextmanager
async def while_running(*tasks: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """A context in which the tasks run; they are cancelled at its end, and one that fails ends it."""
    async with asyncio.TaskGroup() as group:
        running = [group.create_task(task) for task in tasks]
        try:
            yield
        finally:
            for each in running:
                each.cancel()


async def _serve(build: Build, settings: Settings, ports: Ports, life: Life) -> None:
    steps = life.steps
    life.waiting.why = lambda: ports.bus.why_not_stored() or STARTS

    async def end(what: str, close: Callable[[], Awaitable[None]]) -> None:
        steps.begin(what)
        await close()

    async with contextlib.AsyncExitStack() as ending:
        with _starting(life.name):
            steps.begin("what the service is made of: its files, or the node of an agent")
            built = build(settings, ports)
            service = await built if inspect.isawaitable(built) else built
            if service.close is not None:
                ending.push_async_callback(end, "its files, which it closes", service.close)
            shell = Shell(service, ports, settings, candidate=life.candidate)
            shell.when_ending = lambda: steps.begin("its tasks, which it ends")
            steps.begin("its address, at which it is to listen")
            await life.waiting.close()
            status = _ReportedStatus(shell, life.reporter)
            web = await serve(settings, service, status, ports.bus, now=unix_by(ports.clock, settings))
            ending.push_async_callback(end, "requests at its address", web.close)
        structlog.get_logger().info("listening", host=settings.web_host, port=web.port)
        for subject, answer in service.standby_answers.items():
            await ports.bus.serve(service.name, subject, answer)
        steps.end()
        async with while_running(*_reporting(shell, service, settings, ports, life)):
            await shell.run()


def _reporting(
    shell: Shell, service: Service, settings: Settings, ports: Ports, life: Life
) -> Iterator[Coroutine[Any, Any, None]]:
    """The tasks that report on the shell, and end a leader that does no work; none for an agent."""
    if life.reporter is None or life.candidate is None:
        return
    yield life.reporter.renew(
        ready=shell.ready,
        leads=shell.leads,
        worked_at=lambda: shell.progress.worked_at,
        last_activity=lambda: shell.progress.last_activity,
        troubles=lambda: (*service.troubles(), *clock_troubles(ports.clock)),
    )
    yield watch(
        shell,
        ports.bus,
        service.facts,
        candidate=life.candidate,
        reporter=life.reporter,
        limit_s=settings.stuck_after_real_s,
    )


class _ReportedStatus:
    """A shell's status that is ready only once the service's report says so, so that both agree."""

    def __init__(self, shell: Shell, reporter: Reporter | None) -> None:
        self._shell = shell
        self._reporter = reporter

    @property
    def counts(self) -> msgspec.Struct:
        return self._shell.counts

    def stalled(self) -> str:
        return self._shell.stalled()

    def ready(self) -> bool:
        return self._shell.ready() and (self._reporter is None or self._reporter.up())


@contextlib.contextmanager
def _starting(name: str) -> Iterator[None]:
    """A context in which errors of the environment end the process with a line that says what is wrong.

    Raises Misconfigured for those of settings, and of what they name.
    """
    try:
        yield
    except Damaged:
        raise
    except (OSError, ValueError, LookupError) as error:
        structlog.get_logger().debug("cannot start", exc_info=True)
        end = SystemExit if isinstance(error, OSError) else Misconfigured
        raise end(f"hopyard {name}: {error}") from None


def _cancel_at_signals(task: asyncio.Task[None] | None) -> asyncio.Event:
    """Cancel the task at the first signal, and set the event; later ones must not cut its clean-up short."""
    assert task is not None
    loop, stopping = asyncio.get_running_loop(), asyncio.Event()

    def stop() -> None:
        if not stopping.is_set():
            stopping.set()
            task.cancel()

    for number in STOPPING:
        loop.add_signal_handler(number, stop)
    return stopping
