"""What is read out of a server's log: failed writes, whatever clients have it write."""

import asyncio
import os
from pathlib import Path

import msgspec
import pytest

from shared.runtime.process import nats_log
from shared.runtime.process.nats_log import NatsLog
from shared.runtime.process.nats_server import NatsServer

OTHER = "[15] 2026/11/26 16:50:30.123456 [INF] Server is ready\n"
FAILED = (
    "[15] 2026/11/26 16:50:32.123456 [ERR] JetStream failed to store a msg on stream 'S > S': "
    "write /d/1.blk: no space left on device\n"
)
OF_CLIENTS = tuple(
    f'[15] 2026/11/26 16:50:32.1 [ERR] {client} - authentication error - User "no space left on device"\n'
    for client in ("127.0.0.1:60580 - cid:45", '[::1]:60580 - wid:45 - "x"')
)


def log_of(folder: Path, said: str = "") -> NatsLog:
    log = NatsLog(folder / "nats-server.log")
    log.begin()
    log.path.write_text(said)
    return log


@pytest.mark.parametrize(("said", "failed"), [(FAILED, True), *((line, False) for line in OF_CLIENTS)])
def test_a_failed_write_is_one_that_the_server_itself_reports(
    tmp_path: Path, said: str, *, failed: bool
) -> None:
    assert log_of(tmp_path, OTHER + said + OTHER).write_failed() is failed


def test_a_line_counts_once_it_is_whole_and_lines_before_the_start_do_not(tmp_path: Path) -> None:
    log = log_of(tmp_path, FAILED)
    log.begin()
    assert not log.write_failed()
    with log.path.open("a") as file:
        file.write(FAILED[:60])
        file.flush()
        assert not log.write_failed()
        file.write(FAILED[60:])
    assert log.write_failed()


@pytest.mark.parametrize("last", ["before", "after"])
def test_the_search_goes_on_in_the_next_file(tmp_path: Path, last: str) -> None:
    log = log_of(tmp_path, OTHER * 3)
    assert not log.write_failed()
    with log.path.open("a") as file:
        file.write(FAILED if last == "before" else OTHER)
    log.path.rename(tmp_path / "nats-server.log.2026.11.26")
    log.path.write_text(FAILED if last == "after" else OTHER)
    assert log.write_failed()
    assert log.tail()


async def test_whoever_reaches_the_port_writes_no_failed_write_and_no_endless_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nats_log, "MAX_BYTES", 100_000)
    server = NatsServer(tmp_path, token="secret")
    await server.start()
    try:
        for text in ("no space left on device", f"x\n{FAILED}", "\r\n[ERR] no space left on device\n"):
            await _log_in(server, text)
        assert not server.stores_nothing()
        for _ in range(300):
            await _log_in(server, "x" * 1_000)
        assert not server.stores_nothing()
    finally:
        await server.stop()
    sizes = [one.stat().st_size for one in os.scandir(tmp_path) if one.name.startswith("nats-server.log")]
    assert len(sizes) == 2
    assert max(sizes) < 110_000


TAKEN = "[15] 2026/11/26 16:50:32.123456 [INF] Reloaded server configuration (sha256:1f)\n"
REFUSED = (
    "[15] 2026/11/26 16:50:32.123456 [ERR] Failed to reload server configuration: /a b/c.conf:1:12: "
    "error parsing X509 certificate/key pair: tls: private key does not match public key\n"
)
BY_A_CLIENT = f'[15] 2026/11/26 16:50:32.1 [ERR] 127.0.0.1:6 - cid:4 - User "{TAKEN.strip()}"\n'


def test_how_the_last_reload_ended_is_read_from_the_lines_after_it(tmp_path: Path) -> None:
    log = log_of(tmp_path, REFUSED)
    assert log.why_not_reloaded() == "", "it has just started with its configuration"
    log.reload_begins()
    assert log.why_not_reloaded() is None
    for said in (OTHER, BY_A_CLIENT):
        _append(log, said)
        assert log.why_not_reloaded() is None
    _append(log, REFUSED)
    why = "error parsing X509 certificate/key pair: tls: private key does not match public key"
    assert [log.why_not_reloaded() for _ in range(2)] == [why] * 2
    log.reload_begins()
    assert log.why_not_reloaded() is None
    _append(log, TAKEN)
    assert log.why_not_reloaded() == ""
    log.reload_begins()
    log.path.write_text(REFUSED)
    assert log.why_not_reloaded() == why, "in another file"
    log.begin()
    assert log.why_not_reloaded() == ""


def _append(log: NatsLog, said: str) -> None:
    with log.path.open("a") as file:
        file.write(said)


async def _log_in(server: NatsServer, user: str) -> None:
    reader, writer = await asyncio.open_connection(server.host, server.port)
    try:
        await reader.readline()
        login = msgspec.json.encode({"user": user, "pass": "x", "verbose": False})
        writer.write(b"CONNECT " + login + b"\r\nPING\r\n")
        assert b"Authorization Violation" in await reader.readline()
    finally:
        writer.close()
