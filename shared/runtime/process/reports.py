"""Reports of the services: each writes its own to the state bucket, and each can read all.

A report says since when the service runs, how often it restarted after an end that was not ordered, its last
error, and its troubles: what it does without. A service whose report is not renewed counts as gone. Agents
write no reports, since the monitor follows the nodes. Times are Unix seconds.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Sequence

import msgspec

from schemas.instances import instance_name, instances_of
from schemas.settings import Settings
from schemas.views import ServiceState, ServiceView
from shared.runtime.bus.contract import Conflict, State
from shared.runtime.shell.quarantine import quarantine_of

NAMES = ("admission", "profiler", "estimator", "planner", "placer", "monitor")
"""the services that report"""
RENEW_REAL_S = 2.0
LOOK_REAL_S = 0.05
"""between two checks whether the service has become ready"""
LOOK_LEADS_REAL_S = 0.25
"""between two checks whether a service that is up has begun or ceased to lead"""
GONE_AFTER_REAL_S = 10.0
WRITE_LIMIT_REAL_S = 1.0
ERROR_CHARS = 500
KILLED = "it ended without reporting an error: killed, or its machine failed"

ALONE = Settings()
"""the settings of the only instance of a service"""

Troubles = Callable[[], Sequence[str]]


class Reporter:
    """Writes the reports of one life of a service."""

    def __init__(
        self,
        bus: State,
        name: str,
        now: Callable[[], float] = time.time,
        settings: Settings = ALONE,
    ) -> None:
        self._bus = bus
        self._now = now
        self._key = _key(instance_name(name, settings.instance))
        self.report = ServiceView(
            name=name,
            instance=settings.instance,
            state=ServiceState.STARTING,
            since=now(),
            at=now(),
            speed=settings.speed,
            clock_origin=settings.clock_origin,
        )
        self._written = self.report

    def up(self) -> bool:
        """Whether everybody can read that the service is up."""
        return self._written.state is ServiceState.UP

    async def begin(self, instances: int = 0) -> None:
        """Report a start, with restarts and the last error from the report of the life before.

        `instances`: of the service, in all; others are of a stack that had more. 0: not known.
        """
        if instances and self.report.instance == 1:
            await self._forget(instances)
        with contextlib.suppress(OSError):
            async with asyncio.timeout(WRITE_LIMIT_REAL_S):
                self._continue(await _read(self._bus, self._key))
        await self._write(state=ServiceState.STARTING)

    async def _forget(self, instances: int) -> None:
        """Delete the reports of instances that the stack no longer has."""
        for name in instances_of(self.report.name)[instances:]:
            with contextlib.suppress(OSError, Conflict):
                async with asyncio.timeout(WRITE_LIMIT_REAL_S):
                    left = await _read(self._bus, _key(name))
                    if left is not None and left.state is not ServiceState.ENDED:
                        ended = msgspec.structs.replace(left, state=ServiceState.ENDED, troubles=())
                        await self._bus.put(_key(name), msgspec.json.encode(ended))

    async def check_clock(self) -> None:
        """Raises ValueError if a service that runs has another speed, or another origin of cluster time.

        A report that is not renewed is of a service that was killed, perhaps a moment ago.
        """
        seen: dict[str, float] = {}
        while others := [report for report in await _up(self._bus, self._now()) if self._differs(report)]:
            for other in others:
                name = instance_name(other.name, other.instance)
                if seen.setdefault(name, other.at) != other.at:
                    raise ValueError(
                        f"the settings have {_clock_of(self.report)}, and {name}, which runs, has "
                        f"{_clock_of(other)}: give all services of a stack the same"
                    )
            await asyncio.sleep(RENEW_REAL_S / 4)

    def _differs(self, other: ServiceView) -> bool:
        return other.speed is not None and _clock_of(other) != _clock_of(self.report)

    async def renew(
        self,
        *,
        ready: Callable[[], bool],
        troubles: Troubles,
        leads: Callable[[], bool] = lambda: True,
        worked_at: Callable[[], float | None] = lambda: None,
        last_activity: Callable[[], tuple[str, float | None]] = lambda: ("", None),
    ) -> None:
        """Report again and again until cancelled or stuck, and at once when it becomes ready, or leads."""
        while self.report.state is not ServiceState.STUCK:
            state = ServiceState.UP if ready() else ServiceState.STARTING
            activity, activity_at = last_activity()
            await self._write(
                state=state,
                leads=leads(),
                worked_at=worked_at(),
                last_activity=activity,
                last_activity_at=activity_at,
                troubles=tuple(troubles()),
            )
            await _elapsed_or(
                lambda: ready() and (not self.up() or leads() != self._written.leads),
                LOOK_LEADS_REAL_S if self.up() else LOOK_REAL_S,
            )

    async def stall(self, words: str) -> None:
        """Report that the service lives and does no work, and why."""
        await self._write(
            state=ServiceState.STUCK, leads=False, last_error=words, last_error_at=self._now(), troubles=()
        )

    async def fail(self, error: BaseException) -> None:
        words = str(error) if isinstance(error, SystemExit) else f"{type(error).__name__}: {error}"
        await self._write(
            state=ServiceState.FAILED, last_error=words[:ERROR_CHARS], last_error_at=self._now(), troubles=()
        )

    async def end(self) -> None:
        """Report an end that was ordered."""
        await self._write(state=ServiceState.ENDED, troubles=())

    def _continue(self, before: ServiceView | None) -> None:
        """Take over restarts and the last error from the report of the life before."""
        if before is None or before.state is ServiceState.ENDED:
            return
        failed = before.state in {ServiceState.FAILED, ServiceState.STUCK}
        self.report = msgspec.structs.replace(
            self.report,
            restarts=before.restarts + 1,
            last_error=before.last_error if failed else KILLED,
            last_error_at=before.last_error_at if failed else before.at,
        )

    async def _write(self, **changes: object) -> None:
        """Write the report; if that fails, the next report has the changes."""
        self.report = msgspec.structs.replace(self.report, at=self._now(), **changes)
        with contextlib.suppress(OSError, Conflict):
            async with asyncio.timeout(WRITE_LIMIT_REAL_S):
                await self._bus.put(self._key, msgspec.json.encode(self.report))
                self._written = self.report


async def _elapsed_or(changed: Callable[[], bool], look_real_s: float) -> None:
    """Wait for the next renewal, or until something has changed."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(RENEW_REAL_S):
            await asyncio.sleep(look_real_s)
            while not changed():  # noqa: ASYNC110 - the shell's readiness depends on the bus, which gives no notice
                await asyncio.sleep(look_real_s)


@contextlib.asynccontextmanager
async def reported(
    bus: State,
    name: str,
    now: Callable[[], float] = time.time,
    settings: Settings = ALONE,
) -> AsyncIterator[Reporter | None]:
    """Reports a life from its start to its end, failures included.

    None for a service that does not report.
    """
    if name not in NAMES:
        yield None
        return
    reporter = Reporter(bus, name, now, settings)
    await reporter.begin(settings.instances)
    try:
        yield reporter
    except asyncio.CancelledError:
        await asyncio.shield(reporter.end())
        raise
    except BaseException as error:
        await reporter.fail(_cause(error))
        raise
    await reporter.end()


async def reports(bus: State, now: Callable[[], float] = time.time) -> tuple[ServiceView, ...]:
    """The reports of all instances of all services, asked for at once. Raises Unavailable."""
    return tuple(await asyncio.gather(*(_whole(bus, report) for report in await _found(bus, now()))))


async def _found(bus: State, now: float) -> list[ServiceView]:
    keys = [_key(instance) for name in NAMES for instance in instances_of(name)]
    found = await asyncio.gather(*(_read(bus, key) for key in keys))
    return [_judged(report, now) for report in found if report is not None]


async def _up(bus: State, now: float) -> list[ServiceView]:
    return [report for report in await _found(bus, now) if report.state is ServiceState.UP]


async def forget_reports(bus: State) -> None:
    """Delete reports of another machine's processes: they would show as gone. Raises Unavailable."""
    for name in NAMES:
        for instance in instances_of(name):
            await bus.delete(_key(instance))


async def report_of_agent(bus: State, name: str) -> tuple[ServiceView, ...]:
    """A report in place of the one that agents do not write. Raises Unavailable."""
    now = time.time()
    return (await _whole(bus, ServiceView(name=name, state=ServiceState.UP, since=now, at=now)),)


async def _whole(bus: State, report: ServiceView) -> ServiceView:
    quarantined = (await quarantine_of(bus, report.name)).in_force
    return msgspec.structs.replace(report, quarantined=quarantined)


def _clock_of(report: ServiceView) -> str:
    return f"speed={report.speed} and clock_origin={report.clock_origin}"


def _judged(report: ServiceView, now: float) -> ServiceView:
    """A report of a living service that has not been renewed becomes one of a service that is gone."""
    lives = report.state in {ServiceState.UP, ServiceState.STARTING}
    silent = now - report.at > GONE_AFTER_REAL_S
    return msgspec.structs.replace(report, state=ServiceState.GONE) if lives and silent else report


async def _read(bus: State, key: str) -> ServiceView | None:
    stored = await bus.get(key)
    if stored is None:
        return None
    try:
        return msgspec.json.decode(stored[0], type=ServiceView)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def _cause(error: BaseException) -> BaseException:
    return _cause(error.exceptions[0]) if isinstance(error, BaseExceptionGroup) else error


def _key(instance: str) -> str:
    return f"service/{instance}"
