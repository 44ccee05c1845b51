"""Logs: events with keys, one a line, as JSON or for the eye. They go to stderr; results go to stdout."""

import contextlib
import io
import logging
import re
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, MutableMapping
from typing import Any, TextIO

import msgspec
import structlog
from structlog.typing import Processor, WrappedLogger

from schemas.settings import Settings
from shared.domain.controls import escaped

UNPARSED_MAX = 20
"""lines that are logged within `WITHIN_S` about requests that cannot be read"""
SAME_MAX = 100
"""warnings and errors of one event that are logged within `WITHIN_S`; agents and clients may cause more"""
EVENTS_KNOWN = 1_000
"""events whose lines are counted at a time"""
WITHIN_S = 60.0
FIGURES = re.compile(r"0x[0-9a-fA-F]+|\d+")
"""numbers and addresses: texts of libraries that differ in these alone are one event"""
REQUEST_ERRORS = "aiohttp.http_exceptions"
"""module of the errors of requests that are no HTTP"""
BODY_ERROR = "RequestPayloadError"
"""name of the error of a body that is not encoded as its request says"""

Line = Mapping[str, Any]
"""the event, and its keys"""

_encoder = msgspec.json.Encoder(enc_hook=repr)


def configure_logs(
    settings: Settings, service: str = "", *, hear: Callable[[Line], None] | None = None
) -> None:
    """Set up structlog for the process, and pass warnings of the libraries on to it.

    `service` becomes a key of every line; `hear` is called with every line that is logged.
    """

    def heard(_: WrappedLogger, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        if hear is not None:
            hear(event)
        return event

    level = getattr(logging, settings.log_level.upper())
    structlog.configure(
        processors=[_Repeated(), heard, *_enrichers(service), *_renderers(settings.log_format)],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.WriteLoggerFactory(_LossyStream(sys.stderr)),
        cache_logger_on_first_use=False,
    )
    forward = _Forward()
    forward.addFilter(_Unparsed())
    forward.addFilter(_is_no_end_of_tls)
    logging.basicConfig(level=max(level, logging.WARNING), handlers=[forward], force=True)


class _Repeated:
    """Drops warnings and errors of an event that was logged SAME_MAX times within `WITHIN_S`.

    The last line before says for how many seconds none is logged; the first line after, how many were not.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._times: dict[str, deque[float]] = {}
        self._dropped: Counter[str] = Counter()

    def __call__(
        self, _: WrappedLogger, method: str, event: MutableMapping[str, Any]
    ) -> MutableMapping[str, Any]:
        """Raises DropEvent."""
        if method in {"debug", "info"}:
            return event
        name, now = FIGURES.sub("0", str(event["event"])), self._now()
        if name not in self._times and len(self._times) >= EVENTS_KNOWN:
            self._times.clear()
            self._dropped.clear()
        times = self._times.setdefault(name, deque(maxlen=SAME_MAX))
        if len(times) == SAME_MAX and now - times[0] < WITHIN_S:
            self._dropped[name] += 1
            raise structlog.DropEvent
        times.append(now)
        if len(times) == SAME_MAX and (quiet_s := times[0] + WITHIN_S - now) > 0:
            event["not_logged_for_s"] = round(quiet_s, 1)
        if dropped := self._dropped.pop(name, 0):
            event["not_logged_before"] = dropped
        return event


def _enrichers(service: str) -> list[Processor]:
    def name_service(_: WrappedLogger, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        event.setdefault("service", service)
        return event

    enrichers: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    return [*enrichers, name_service] if service else enrichers


def _renderers(kind: str) -> list[Processor]:
    if kind == "console":
        plain = structlog.dev.plain_traceback
        console = structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), exception_formatter=plain)
        return [structlog.processors.format_exc_info, _legible, console]
    return [structlog.processors.format_exc_info, render_json]


def _legible(_: WrappedLogger, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Texts without characters that a terminal obeys: users wrote some of them. The event is one line."""
    event["event"] = str(event["event"]).replace("\n", "\\n")
    return {key: escaped(value) if isinstance(value, str) else value for key, value in event.items()}


def render_json(_: WrappedLogger, __: str, event: MutableMapping[str, Any]) -> str:
    """One JSON object: time, level, event, then the keys. What JSON does not know is shown by repr."""
    first = {key: event.pop(key) for key in ("timestamp", "level", "event") if key in event}
    return escaped(_encoder.encode(first | dict(event)).decode())


class _LossyStream(io.StringIO):
    """Drops a line that cannot be written, as on a full disk, and raises no error."""

    def __init__(self, out: TextIO) -> None:
        super().__init__()
        self._out = out

    def write(self, text: str) -> int:
        with contextlib.suppress(OSError):
            self._out.write(text)
        return len(text)

    def flush(self) -> None:
        with contextlib.suppress(OSError):
            self._out.flush()


class _Forward(logging.Handler):
    """Turns records of the standard library's logging into events."""

    def emit(self, record: logging.LogRecord) -> None:
        log = structlog.get_logger()
        log.log(record.levelno, record.getMessage(), logger=record.name, exc_info=record.exc_info)


def _is_no_end_of_tls(record: logging.LogRecord) -> bool:
    """Drops what asyncio says whenever NATS ends a connection with TLS: nats-py opens it as one without."""
    return not (record.name == "asyncio" and "returning true from eof_received()" in record.msg)


class _Unparsed(logging.Filter):
    """Logs a request that cannot be read by the type of its error alone, and only so many within a minute.

    aiohttp would log the line at fault, which may hold a token, or a traceback; and any client, also one
    without a token, can send any number.
    """

    def __init__(self) -> None:
        super().__init__()
        self._times: deque[float] = deque(maxlen=UNPARSED_MAX)

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        if type(error).__module__ != REQUEST_ERRORS and type(error).__name__ != BODY_ERROR:
            return True
        full = len(self._times) == UNPARSED_MAX
        if full and record.created - self._times[0] < WITHIN_S:
            return False
        self._times.append(record.created)
        record.msg, record.args = f"{record.getMessage()}: {type(error).__name__}", None
        record.levelno, record.exc_info = logging.WARNING, None
        return True
