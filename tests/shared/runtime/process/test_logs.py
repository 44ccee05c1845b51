import asyncio
import contextlib
import logging
from collections import Counter
from itertools import islice, product
from pathlib import Path
from string import ascii_lowercase
from typing import Literal

import msgspec
import pytest
import structlog

from schemas.settings import Settings
from shared.runtime.bus.jetstream import JetStreamBus
from shared.runtime.process.logs import EVENTS_KNOWN, SAME_MAX, WITHIN_S, _Repeated, configure_logs
from shared.runtime.process.nats_server import NatsServer

PAIR = Path(__file__).parents[3] / "hopyard" / "api" / "certificate"


def _lines(capsys: pytest.CaptureFixture[str]) -> list[dict[str, object]]:
    return [msgspec.json.decode(line) for line in capsys.readouterr().err.splitlines()]


def test_an_event_is_one_line_of_json_with_its_keys(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs(Settings(), service="placer")
    structlog.get_logger().info("job started", job="j-1", gpus=4)
    [line] = _lines(capsys)
    assert list(line)[:3] == ["timestamp", "level", "event"]
    assert {key: line[key] for key in ("level", "event", "job", "gpus", "service")} == {
        "level": "info",
        "event": "job started",
        "job": "j-1",
        "gpus": 4,
        "service": "placer",
    }


def test_a_named_service_is_kept(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs(Settings(), service="up")
    structlog.get_logger().info("ready", service="planner")
    assert [line["service"] for line in _lines(capsys)] == ["planner"]


def test_values_that_json_cannot_hold_are_logged_as_text(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs(Settings())
    structlog.get_logger().info("odd", value=1 + 2j, error=KeyError("x"))
    [line] = _lines(capsys)
    assert (line["value"], line["error"]) == ("(1+2j)", "KeyError('x')")


def test_an_exception_carries_its_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs(Settings())
    try:
        int("bad")
    except ValueError:
        structlog.get_logger().exception("failed")
    [line] = _lines(capsys)
    assert "ValueError: invalid literal" in str(line["exception"])


def test_events_below_the_level_are_not_logged(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs(Settings(log_level="warning"))
    structlog.get_logger().info("quiet")
    structlog.get_logger().warning("loud")
    assert [line["event"] for line in _lines(capsys)] == ["loud"]


def test_warnings_of_libraries_come_along(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs(Settings())
    logging.getLogger("asyncio").info("chatter")
    logging.getLogger("asyncio").warning("slow callback: %s", "x")
    [line] = _lines(capsys)
    assert (line["event"], line["logger"]) == ("slow callback: x", "asyncio")


def test_the_console_format_is_for_the_eye(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs(Settings(log_format="console"))
    structlog.get_logger().info("job started", job="j-1")
    assert "job started" in (text := capsys.readouterr().err)
    assert "job=j-1" in text


ODD = "a\x1b]0;x\x07b\x9b31mc\u202ed"
"""a text that changes a terminal's title, its colour, and the direction of writing"""


@pytest.mark.parametrize("log_format", ["console", "json"])
def test_what_a_user_wrote_does_not_control_the_terminal(
    log_format: Literal["console", "json"], capsys: pytest.CaptureFixture[str]
) -> None:
    configure_logs(Settings(log_format=log_format))
    log, event = structlog.get_logger(), f"job {ODD}\nends"
    log.info(event, job=ODD, jobs=(ODD,), error=ValueError(ODD))
    log.error("failed", exc_info=ValueError(ODD))
    logging.getLogger("aiohttp").warning("no such path: %s", ODD)
    said = capsys.readouterr().err
    assert [each for each in said if not (each.isprintable() or each == "\n")] == []
    if log_format == "console":
        assert "a\\u001b]0;x\\u0007b\\u009b31mc\\u202ed" in said
        assert "\\nends" in said
    else:
        assert msgspec.json.decode(said.splitlines()[0])["event"] == event


def test_a_warning_without_end_is_logged_some_times_a_minute_and_the_rest_is_counted() -> None:
    now, kept = 0.0, []
    repeated = _Repeated(lambda: now)

    def log(method: str, event: str) -> None:
        with contextlib.suppress(structlog.DropEvent):
            kept.append(repeated(None, method, {"event": event}))

    for _ in range(3 * SAME_MAX):
        log("warning", "malformed message")
    log("warning", "another")
    last = {"event": "malformed message", "not_logged_for_s": WITHIN_S}
    assert kept == [*[{"event": "malformed message"}] * (SAME_MAX - 1), last, {"event": "another"}]
    now = WITHIN_S
    log("warning", "malformed message")
    assert kept[-1] == {"event": "malformed message", "not_logged_before": 2 * SAME_MAX}
    log("warning", "malformed message")
    assert kept[-1] == {"event": "malformed message"}
    for letters in islice(product(ascii_lowercase, repeat=3), 2 * EVENTS_KNOWN):
        log("error", f"a library's own words: {''.join(letters)}")
    assert len(kept) == SAME_MAX + 3 + 2 * EVENTS_KNOWN
    assert len(repeated._times) <= EVENTS_KNOWN


def test_warnings_of_a_library_that_differ_in_figures_alone_are_one_event(
    capsys: pytest.CaptureFixture[str],
) -> None:
    configure_logs(Settings())
    for number in range(2 * SAME_MAX):
        logging.getLogger("asyncio").warning("task at 0x%X took %.3f seconds", 10 * number, number)
    logging.getLogger("asyncio").warning("another")
    events = [line["event"] for line in _lines(capsys)]
    assert len(events) == SAME_MAX + 1
    assert events[-2:] == ["task at 0x3DE took 99.000 seconds", "another"]


async def test_the_end_of_a_connection_with_tls_is_no_warning_of_asyncio(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """There was one for each attempt of an expelled node to connect."""
    certificate, key = (str(PAIR / name) for name in ("certificate.pem", "key.pem"))
    server = NatsServer(tmp_path, tls=(certificate, key))
    known = Settings(nats_url=server.url, nats_authority=certificate, nats_server_name="localhost")
    configure_logs(known)
    await server.start()
    bus = await JetStreamBus.connect(known, "planner", 10.0)
    try:
        await server.stop()
        async with asyncio.timeout(60.0):
            while bus.connected():
                await asyncio.sleep(0.05)
    finally:
        await bus.close()
    events = {line["event"] for line in _lines(capsys)}
    assert "connection lost" in events
    assert not [event for event in events if "eof_received" in str(event)]


def test_what_is_logged_often_as_information_is_all_there(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs(Settings())
    for _ in range(2 * SAME_MAX):
        structlog.get_logger().info("job started")
        structlog.get_logger().warning("malformed message")
    events = Counter(line["event"] for line in _lines(capsys))
    assert events == {"job started": 2 * SAME_MAX, "malformed message": SAME_MAX}
