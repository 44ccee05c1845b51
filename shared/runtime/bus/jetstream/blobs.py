"""Reads and writes blobs of the object store message by message, in the form of all NATS clients.

Where parts are missing, the NATS client's own `get` waits for the last one for ever. Where its `put` is
cancelled or its process killed, the parts that are written stay for good, since nothing names them.
"""

import hashlib
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

import msgspec
from nats.js import JetStreamContext
from nats.js.api import RawStreamMsg
from nats.js.errors import APIError, NotFoundError

from schemas.subjects import SNAPSHOT_BUCKET
from shared.runtime.bus.contract import DamagedBlob
from shared.runtime.bus.jetstream.connection import EXPECTED_LAST
from shared.runtime.bus.jetstream.streams import SNAPSHOT_STREAM

DIGEST = "SHA-256="
SERVER_ERROR = 500
PART_BYTES = 128 * 1024
ROLLUP = {"Nats-Rollup": "sub"}
"""header by which a message replaces all others of its subject"""


class _Meta(msgspec.Struct, frozen=True, omit_defaults=True):
    """The metadata of an object, in the form that all NATS clients write."""

    name: str = ""
    bucket: str = ""
    nuid: str = ""
    """names the subject of its parts"""
    size: int = 0
    chunks: int = 0
    mtime: str = ""
    digest: str = ""
    deleted: bool = False


async def write(
    js: JetStreamContext, name: str, writer: int, blob: bytes, check: Callable[[], Awaitable[None]]
) -> None:
    """Write a blob in the place of the one before it, or of none that another has written meanwhile.

    `writer`: a number that no other process which may write the blob has. Each writes its parts to two
    subjects in turn, and first removes what a write that was cut off has left there. `check`: called once it
    is known which blob the new one replaces; raises if the caller may replace none. Raises what NATS raises:
    APIError with WRONG_LAST_SEQUENCE if another has written meanwhile.
    """
    before, expected = await _before(js, name)
    await check()
    one, other = (f"{_encoded(name)}-{writer}-{turn}" for turn in range(2))
    nuid = other if before == one else one
    await _remove_parts(js, nuid)
    starts = range(0, len(blob), PART_BYTES)
    for at in starts:
        await js.publish(_parts_subject(nuid), blob[at : at + PART_BYTES])
    meta = _Meta(
        name=name,
        bucket=SNAPSHOT_BUCKET,
        nuid=nuid,
        size=len(blob),
        chunks=len(starts),
        mtime=datetime.now(UTC).isoformat(),
        digest=DIGEST + urlsafe_b64encode(hashlib.sha256(blob).digest()).decode(),
    )
    await js.publish(_meta_subject(name), msgspec.json.encode(meta), headers=ROLLUP | expected)
    if before:
        await _remove_parts(js, before)


async def _before(js: JetStreamContext, name: str) -> tuple[str, dict[str, str]]:
    """Of the stored blob: the name of its parts' subject, and the header that expects it in its place.

    The name is empty if there is no such blob, or what it consists of cannot be read.
    """
    try:
        found = await _described(js, name)
    except DamagedBlob:
        return "", {}  # the server cannot read the message, and does not say where it is
    expected = {EXPECTED_LAST: str((found.seq or 0) if found is not None else 0)}
    try:
        return msgspec.json.decode(found.data or b"", type=_Meta).nuid if found is not None else "", expected
    except ValueError:
        return "", expected


async def _remove_parts(js: JetStreamContext, nuid: str) -> None:
    await js.purge_stream(SNAPSHOT_STREAM, subject=_parts_subject(nuid))


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
    try:
        return await js.get_last_msg(SNAPSHOT_STREAM, _meta_subject(name))
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
    data, seq, subject = bytearray(), 1, _parts_subject(meta.nuid)
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


def _encoded(name: str) -> str:
    return urlsafe_b64encode(name.encode()).decode()


def _meta_subject(name: str) -> str:
    return f"$O.{SNAPSHOT_BUCKET}.M.{_encoded(name)}"


def _parts_subject(nuid: str) -> str:
    return f"$O.{SNAPSHOT_BUCKET}.C.{nuid}"


def _damaged(name: str, error: APIError) -> DamagedBlob | APIError:
    """DamagedBlob where the server cannot read its own file; any other error as it is."""
    return DamagedBlob(f"{name}: {error.description}") if error.code == SERVER_ERROR else error
