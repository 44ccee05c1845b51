"""Named values in a JetStream KV bucket, and blobs in an object store."""

import asyncio
import math
import time

from nats.errors import TimeoutError as NatsTimeoutError
from nats.js.errors import APIError

from schemas.subjects import AGENT, state_subject
from shared.runtime.bus.contract import Conflict, Fenced, Unavailable
from shared.runtime.bus.jetstream import blobs
from shared.runtime.bus.jetstream.acks import SEQUENCE_IN_DOUBT, WRONG_LAST_SEQUENCE
from shared.runtime.bus.jetstream.connection import EXPECTED_LAST, Connection, unavailable
from shared.runtime.bus.jetstream.leading import Leading
from shared.runtime.bus.jetstream.node_reads import asked_value, stored_value
from shared.runtime.bus.jetstream.streams import STATE_STREAM
from shared.runtime.bus.limits import TTL_MIN_S, check_key, check_size

WRONG_REVISION = (WRONG_LAST_SEQUENCE, SEQUENCE_IN_DOUBT)
BLOB_TIMEOUT_S = 60.0
HEADER_ROOM_BYTES = 512


class JetStreamState:
    """A value is the last message of its subject; by headers the server compares revisions and ends values.

    Deleting removes the message and leaves no marker, so that an absent key has revision 0. The client's own
    KV class is not used, since it cannot renew a time to live.
    """

    _connection: Connection
    _leading: Leading

    async def get(self, key: str) -> tuple[bytes, int] | None:
        check_key(key)
        with unavailable(f"get {key}"):
            look_up = asked_value if self._connection.is_agents else stored_value
            found = await look_up(self._connection, key)
        return None if found.data is None else (found.data, found.revision)

    async def put(
        self, key: str, value: bytes, expected: int | None = None, ttl_s: float | None = None
    ) -> int:
        limit = self._connection.nats.max_payload - HEADER_ROOM_BYTES
        check_size(key, value, limit)
        subject = state_subject(check_key(key))
        began = time.monotonic()
        with unavailable(f"put {key}"):
            try:
                ack = await self._connection.js.publish(subject, value, headers=_headers(expected, ttl_s))
                self._connection.write_confirmed()
            except NatsTimeoutError:
                self._connection.write_unconfirmed()
                raise
            except asyncio.CancelledError:
                self._connection.write_given_up(began)
                raise
            except APIError as error:
                if error.err_code in WRONG_REVISION:
                    raise Conflict(f"{key} is not at revision {expected}") from None
                raise
        return int(ack.seq)

    async def delete(self, key: str) -> None:
        with unavailable(f"delete {key}"):
            await self._connection.js.purge_stream(STATE_STREAM, subject=state_subject(check_key(key)))

    async def save(self, name: str, blob: bytes) -> None:
        if self._is_agents(name):
            if (
                len(blob) <= self._connection.nats.max_payload - HEADER_ROOM_BYTES
            ):  # a larger one is not saved
                await self.put(f"snapshot/{name}", blob)
            return
        with unavailable(f"save {name}"):
            try:
                async with asyncio.timeout(BLOB_TIMEOUT_S):
                    instance = self._connection.settings.instance
                    await blobs.write(self._connection.js, name, instance, blob, self._check_leads)
            except APIError as error:
                if error.err_code in WRONG_REVISION:
                    raise Unavailable(f"save {name}: another instance has saved one meanwhile") from None
                raise

    async def _check_leads(self) -> None:
        """Raises Fenced where another instance leads: its snapshot is newer. Raises Unavailable."""
        if self._connection.fence is not None and not await self._leading.still_leads():
            raise Fenced("another instance leads")

    async def load(self, name: str) -> bytes | None:
        if self._is_agents(name):
            found = await self.get(f"snapshot/{name}")
            return None if found is None else found[0]
        with unavailable(f"load {name}"):
            async with asyncio.timeout(BLOB_TIMEOUT_S):
                return await blobs.read(self._connection.js, name)

    def _is_agents(self, name: str) -> bool:
        """Whether it is an agent's snapshot, which is saved as a value.

        An agent may not write to the object store: who may purge its own object there may purge all.
        """
        return self._connection.credentials is not None and name.startswith(f"{AGENT}-")


def _headers(expected: int | None, ttl_s: float | None) -> dict[str, str]:
    headers = {}
    if expected is not None:
        headers[EXPECTED_LAST] = str(expected)
    if ttl_s is not None:
        headers["Nats-TTL"] = f"{math.ceil(max(ttl_s, TTL_MIN_S) * 1000)}ms"
    return headers
