"""Reads blobs of the object store message by message, so that damage is found at once.

Where parts are missing, the NATS client's own `get` waits for the last one for ever.
"""

import hashlib
from base64 import urlsafe_b64decode, urlsafe_b64encode

import msgspec
from nats.js import JetStreamContext
from nats.js.api import RawStreamMsg
from nats.js.errors import APIError, NotFoundError

from schemas.subjects import SNAPSHOT_BUCKET
from shared.runtime.bus.contract import DamagedBlob
from shared.runtime.bus.jetstream.streams import SNAPSHOT_STREAM

DIGEST = "SHA-256="
SERVER_ERROR = 500


class _Meta(msgspec.Struct, frozen=True):
    """The metadata of an object, in the form that all NATS clients write."""

    nuid: str = ""
    size: int = 0
    digest: str = ""
    deleted: bool = False


async def read(js: JetStreamContext, name: str) -> bytes | None:
    """The blob; None: there is none. Raises DamagedBlob, and what NATS raises.

    A blob that is replaced loses its parts, so one that was replaced while it was read is read again.
    """
    found = await _described(js, name)
    while found is not None:
        try:
            return await _content(js, name, found.data or b"")
        except DamagedBlob:
            newest = await _described(js, name)
            if newest is not None and newest.seq == found.seq:
                raise
            found = newest
    return None


async def _described(js: JetStreamContext, name: str) -> RawStreamMsg | None:
    """The message with the metadata of the blob; None: there is none."""
    subject = f"$O.{SNAPSHOT_BUCKET}.M.{urlsafe_b64encode(name.encode()).decode()}"
    try:
        return await js.get_last_msg(SNAPSHOT_STREAM, subject)
    except NotFoundError:
        return None
    except APIError as error:
        raise _damaged(name, error) from error


async def _content(js: JetStreamContext, name: str, description: bytes) -> bytes | None:
    """What is described; None: it was deleted."""
    try:
        meta = msgspec.json.decode(description, type=_Meta)
        wanted = urlsafe_b64decode(meta.digest.removeprefix(DIGEST))
    except ValueError as error:
        raise DamagedBlob(f"{name}: {error}") from None
    if meta.deleted:
        return None
    data = await _chunks(js, name, meta)
    if hashlib.sha256(data).digest() != wanted:
        raise DamagedBlob(f"{name}: is not what was written")
    return data


async def _chunks(js: JetStreamContext, name: str, meta: _Meta) -> bytes:
    data, seq, subject = bytearray(), 1, f"$O.{SNAPSHOT_BUCKET}.C.{meta.nuid}"
    while len(data) < meta.size:
        try:
            part = await js.get_msg(SNAPSHOT_STREAM, seq, subject, next=True)
        except NotFoundError:
            raise DamagedBlob(f"{name}: {len(data)} of {meta.size} bytes are there") from None
        except APIError as error:
            raise _damaged(name, error) from error
        assert part.seq is not None
        data += part.data or b""
        seq = part.seq + 1
    return bytes(data)


def _damaged(name: str, error: APIError) -> DamagedBlob | APIError:
    """DamagedBlob where the server cannot read its own file; any other error as it is."""
    return DamagedBlob(f"{name}: {error.description}") if error.code == SERVER_ERROR else error
