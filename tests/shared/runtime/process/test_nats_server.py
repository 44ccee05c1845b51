import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from schemas.settings import Settings
from shared.runtime.bus.jetstream.bus import JetStreamBus
from shared.runtime.bus.jetstream.connection import Connection
from shared.runtime.process import nats_server
from shared.runtime.process.nats_server import NatsServer

PARENT = """
import asyncio, sys, time
from pathlib import Path
from shared.runtime.process.nats_server import NatsServer
server = NatsServer(Path(sys.argv[1]))
asyncio.run(server.start())
print(server.port, flush=True)
time.sleep(60)
"""

FAILED = "[1] 2026/11/26 16:50:32.1 [ERR] JetStream failed to store a msg: no space left on device\n"

FORKED: list[Callable[[], None]] = []
"""called in a process that has forked"""
os.register_at_fork(after_in_parent=lambda: [call() for call in FORKED])


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ties a process to its parent")
def test_the_server_dies_with_its_parent(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT, str(tmp_path)], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        port = int(parent.stdout.readline())
        assert _listens(port)
        os.kill(parent.pid, signal.SIGKILL)
    deadline = time.monotonic() + 5.0
    while _listens(port) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not _listens(port)


@pytest.fixture
def _stopped_as_it_forks() -> Iterator[None]:
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    FORKED.append(lambda: os.kill(os.getpid(), signal.SIGTERM))
    over = threading.Event()
    other = threading.Thread(target=over.wait)  # which gets the signal where the main thread masks it
    other.start()
    yield
    over.set()
    other.join()
    FORKED.clear()
    signal.signal(signal.SIGTERM, before)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere Python calls no hooks of a fork")
@pytest.mark.usefixtures("_stopped_as_it_forks")
async def test_a_signal_that_comes_while_the_server_is_started_is_not_lost(tmp_path: Path) -> None:
    """What a handler raised within a hook of the fork, as `logging` has one, ended nothing."""
    server = NatsServer(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        await server.start()
    assert not server.running()


async def test_a_server_that_cannot_start_says_why(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        server = NatsServer(tmp_path, port=taken.getsockname()[1])
        with pytest.raises(RuntimeError, match="address already in use"):
            await server.start()
    assert not server.running()


async def test_another_server_on_its_port_is_not_taken_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The streams of a stack were written there, until its own server had found the port taken."""
    other = NatsServer(tmp_path / "other")
    await other.start()
    (slow := tmp_path / "nats-server").write_text(
        f'#!/bin/sh\nsleep 1\nexec {nats_server._executable()} "$@"'
    )
    slow.chmod(0o755)
    monkeypatch.setattr(nats_server, "_executable", lambda: str(slow))
    try:
        with pytest.raises(RuntimeError, match="address already in use"):
            await NatsServer(tmp_path / "own", port=other.port).start()
    finally:
        await other.stop()


async def test_a_server_listens_on_an_address_of_ipv6(tmp_path: Path) -> None:
    """Its address stood in URLs and in the configuration without brackets, and it listened nowhere."""
    with socket.socket(socket.AF_INET6) as free:
        free.bind(("::1", 0))
        port = free.getsockname()[1]
    server = NatsServer(tmp_path, host="::1", port=port)
    await server.start()
    try:
        assert server.url == f"nats://[::1]:{port}"
        connection = Connection(Settings(nats_url=server.url), "test")
        await connection.open(5.0)
        await connection.close()
    finally:
        await server.stop()


async def test_copies_that_one_server_cannot_keep_are_an_error_of_the_settings(tmp_path: Path) -> None:
    server = NatsServer(tmp_path)
    await server.start()
    try:
        settings = Settings(nats_url=server.url, nats_replicas=3, stream_max_bytes=10_000_000)
        with pytest.raises(ValueError, match="nats_replicas is 3, and NATS is one server alone"):
            await JetStreamBus.connect(settings, "admission", 10.0)
    finally:
        await server.stop()


async def test_only_the_owner_can_read_the_password(tmp_path: Path) -> None:
    server = NatsServer(tmp_path, token="secret")
    await server.start()
    await server.stop()
    assert (tmp_path / "nats-server.conf").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("failed", [False, True])
async def test_a_server_whose_write_has_failed_is_not_shut_down_but_killed(
    tmp_path: Path, *, failed: bool
) -> None:
    """Shut down it would note the sequence of what it has not stored, and pass it over when it starts."""
    server = NatsServer(tmp_path)
    await server.start()
    log = tmp_path / "nats-server.log"
    if failed:
        with log.open("a") as file:
            file.write(FAILED)
    await server.stop()
    assert ("Initiating Shutdown" in log.read_text()) is not failed
