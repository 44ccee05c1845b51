"""The NATS library's client, with its faults repaired that make it hang or end."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from nats.aio.client import Client, Srv
from nats.aio.transport import TcpTransport
from nats.errors import ConnectionReconnectingError, Error, MaxPayloadError

from shared.runtime.transports import abort

HEADERS_BYTES = len("NATS/1.0\r\n\r\n")


class PatchedClient(Client):
    """Each method below says what the library does without it."""

    async def _attempt_reconnect(self) -> None:
        """Drop what is queued for the lost server, and fail the flushes that wait for it.

        The library first waits until all of it is sent, and only then looks for another server. Where the
        lost server reads nothing, or its cable is cut, that takes until the system gives the connection up,
        after a quarter of an hour. Tasks that wait for a flush go on waiting.
        """
        self.drop()
        for pong in self._pongs:
            if not pong.done():
                pong.set_exception(ConnectionReconnectingError())
                pong.exception()  # marked as seen: nothing awaits the library's own pings
        self._pongs.clear()
        await super()._attempt_reconnect()

    def drop(self) -> None:
        """Drop what is queued, and what the socket has not sent."""
        self._pending.clear()
        self._pending_data_size = 0
        writer = getattr(self._transport, "_io_writer", None)  # a web socket closes within a time of its own
        if writer is not None:
            abort(writer.transport)

    async def _connect_to_server(self, s: Srv) -> None:
        """Raises OSError, Error.

        The library raises other errors too, as for a refused web socket, and these end its reconnecting.
        """
        with _errors():
            await super()._connect_to_server(s)

    async def _process_connect_init(self) -> None:
        """Raises OSError, Error, as above; then the socket is closed, which the library leaves open.

        A socket whose handshake for TLS failed is never reported as closed. The library would wait for that
        as soon as this client is closed.
        """
        try:
            with _errors():
                await super()._process_connect_init()
        except (OSError, Error):
            self.drop()
            if isinstance(self._transport, TcpTransport):
                self._transport = None
            elif self._transport is not None:
                self._transport.close()  # type: ignore[no-untyped-call]
            raise

    async def _send_ping(self, future: "asyncio.Future[bool] | None" = None) -> None:
        """Send what is queued first: the library's ping overtakes it.

        A flush would end before the server has, for instance, a subscription that was made before it.
        """
        if self.is_connected and self._transport is not None:
            self._transport.writelines(self._pending)
            self._pending, self._pending_data_size = [], 0
        await super()._send_ping(future)

    async def _process_pong(self) -> None:
        """Take the answer to a flush that was cancelled or late: the library stops reading at it."""
        if self._pongs and self._pongs[0].done():
            self._pongs[0] = asyncio.get_running_loop().create_future()
        await super()._process_pong()

    async def publish(
        self, subject: str, payload: bytes = b"", reply: str = "", headers: dict[str, str] | None = None
    ) -> None:
        """Forget a request that cannot be sent: the library waits for its answer without end.

        A service that is cut off makes some ten a second, and its memory would grow by each.
        """
        try:
            await super().publish(subject, payload, reply, headers)
        except BaseException:
            self._resp_map.pop(reply.rpartition(".")[2], None)
            raise

    async def _send_publish(
        self, subject: str, reply: str, payload: bytes, payload_size: int, headers: dict[str, Any] | None
    ) -> None:
        """Raise MaxPayloadError for a message that is too large with its headers: the library counts none.

        The server closes the connection of a client that sends such a message, and the library does not
        reopen it.
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
