"""A cable between a service and its NATS server that can be cut: a proxy on this machine."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

CHUNK_BYTES = 65_536


class Cable:
    """While it is cut, nothing passes and no connection is closed, as on a network that drops packets."""

    def __init__(self, to_port: int) -> None:
        self.port = 0
        self._to_port = to_port
        self._whole = asyncio.Event()
        self._whole.set()
        self._passing: set[asyncio.Task[None]] = set()

    def cut(self) -> None:
        self._whole.clear()

    def mend(self) -> None:
        self._whole.set()

    async def connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self._whole.wait()
        there, back = await asyncio.open_connection("127.0.0.1", self._to_port)
        for one, other in ((reader, back), (there, writer)):
            task = asyncio.create_task(self._pass(one, other))
            self._passing.add(task)
            task.add_done_callback(self._passing.discard)

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(CHUNK_BYTES):
                await self._whole.wait()
                writer.write(data)
                await writer.drain()
        writer.close()

    def end(self) -> None:
        for task in tuple(self._passing):
            task.cancel()


@contextlib.asynccontextmanager
async def cable(to_port: int) -> AsyncIterator[Cable]:
    line = Cable(to_port)
    async with await asyncio.start_server(line.connect, "127.0.0.1", 0) as server:
        line.port = server.sockets[0].getsockname()[1]
        yield line
        line.end()
