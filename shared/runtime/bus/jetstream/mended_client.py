"""The NATS library's client, mended where it hangs or dies."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from nats.aio.client import Client, Srv
from nats.errors import ConnectionReconnectingError, Error, MaxPayloadError

HEADERS_BYTES = len("NATS/1.0\r\n\r\n")


class MendedClient(Client):
    async def _attempt_reconnect(self) -> None:
        """Drops what was on its way to the lost server, and fails flushes that wait for it.

        The library waits until all of it is sent, before it looks for another server too: where the other
        side lives and reads nothing, or its cable is cut, until the system gives the connection up, after a
        quarter of an hour. It forgets who waits for a flush.
        """
        self.drop()
        for pong in self._pongs:
            if not pong.done():
                pong.set_exception(ConnectionReconnectingError())
                pong.exception()  # of its own pings nobody asks
        self._pongs.clear()
        await super()._attempt_reconnect()

    def drop(self) -> None:
        self._pending.clear()
        self._pending_data_size = 0
        writer = getattr(self._transport, "_io_writer", None)  # a web socket closes within a time of its own
        if writer is not None:
            writer.transport.abort()

    async def _connect_to_server(self, s: Srv) -> None:
        """Raises OSError, Error: by anything else, as a refused web socket, reconnecting would end."""
        with _errors():
            await super()._connect_to_server(s)

    async def _process_connect_init(self) -> None:
        """Raises OSError, Error, as above."""
        with _errors():
            await super()._process_connect_init()

    async def _process_pong(self) -> None:
        """The answer to a flush that was cancelled, or took too long, ended the task that reads."""
        if self._pongs and self._pongs[0].done():
            self._pongs[0] = asyncio.get_running_loop().create_future()
        await super()._process_pong()

    async def _send_publish(
        self, subject: str, reply: str, payload: bytes, payload_size: int, headers: dict[str, Any] | None
    ) -> None:
        """Raises MaxPayloadError: the server closes a connection by which more comes, and for good.

        The library counts no headers.
        """
        size = payload_size
        if headers:
            lines = (f"{key}: {value}\r\n" for key, value in headers.items())
            size += HEADERS_BYTES + sum(len(line.encode()) for line in lines)
        if size > self.max_payload:
            raise MaxPayloadError
        await super()._send_publish(subject, reply, payload, payload_size, headers)


@contextmanager
def _errors() -> Iterator[None]:
    try:
        yield
    except (OSError, Error):
        raise
    except Exception as error:
        raise Error(f"{type(error).__name__}: {error}") from error
