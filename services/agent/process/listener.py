"""The agent's socket: a rank connects and names itself; the kernel says which process it really is."""

import asyncio
import contextlib
import os
import socket
import struct
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Protocol

import msgspec
import structlog

from services.agent.process.gang.messages import LINE_MAX_BYTES, Hello, NotAMessage, RankMessage, message_in

HELLO_LIMIT_S = 10.0
"""time within which a connection must begin with a hello"""
_CREDENTIALS = struct.Struct("3i")
"""a peer's credentials as the kernel gives them (struct ucred): process, user, group"""

log = structlog.get_logger()


class Peer(msgspec.Struct, frozen=True):
    """The process at the other end, by its id outside of any container."""

    pid: int
    uid: int


class Connection:
    """A connection to one rank."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        self.closed = asyncio.Event()

    def send(self, line: bytes) -> None:
        """Send a message; ignored if the rank is gone, whose end is noticed elsewhere."""
        if not self._writer.is_closing():
            self._writer.write(line)

    def close(self) -> None:
        self._writer.close()


class Listener(Protocol):
    """The part of a worker that takes the connections and messages of its ranks."""

    def connected(self, hello: Hello, peer: Peer, connection: Connection) -> bool:
        """A rank has connected; false if the process is none of this worker's."""
        ...

    def heard(self, rank: int, message: RankMessage) -> None: ...


FindWorker = Callable[[str], Listener | None]
"""the worker of a placement; None: there is none"""


@contextlib.asynccontextmanager
async def listening(path: Path, find: FindWorker) -> AsyncIterator[None]:
    """Listen on the socket while the context is open. Raises OSError."""
    _clear(path)
    open_ones: set[asyncio.StreamWriter] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        open_ones.add(writer)
        try:
            await _listen(reader, writer, find)
        except ValueError as error:
            log.warning(
                "a connection is closed: not a rank of a worker, or not a message of one", reason=str(error)
            )
        except OSError as error:
            log.debug("a rank has hung up", reason=str(error))
        finally:
            open_ones.discard(writer)
            writer.close()

    server = await asyncio.start_unix_server(serve, path, limit=LINE_MAX_BYTES, start_serving=False)
    try:
        _open(path)
        await server.start_serving()  # ranks connect from here on; the agent may be ended before
        yield
    finally:
        server.close()
        for writer in list(open_ones):
            writer.close()
        _clear(path)


def _clear(path: Path) -> None:
    path.unlink(missing_ok=True)


def _open(path: Path) -> None:
    """Let the agent's account connect, or everybody if jobs have accounts of their own.

    `connected` checks the process.
    """
    path.chmod(0o666 if os.geteuid() == 0 else 0o600)


async def _listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, find: FindWorker) -> None:
    """Serve one connection. Raises OSError; ValueError for a line that is too long or no message."""
    async with asyncio.timeout(HELLO_LIMIT_S):
        hello = message_in(await reader.readline())
    if not isinstance(hello, Hello):
        raise NotAMessage("the first line is not a hello")
    worker, connection, peer = find(hello.placement), Connection(writer), _peer(writer)
    if worker is None or not worker.connected(hello, peer, connection):
        raise NotAMessage(f"process {peer.pid} of user {peer.uid} is not a rank of {hello.placement!r}")
    try:
        while line := await reader.readline():
            if (message := message_in(line)) is not None:
                worker.heard(hello.rank, message)
    finally:
        connection.closed.set()


def _peer(writer: asyncio.StreamWriter) -> Peer:
    peer = writer.get_extra_info("socket")
    packed = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, _ = _CREDENTIALS.unpack(packed)
    return Peer(pid, uid)
