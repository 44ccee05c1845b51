"""The memory of a policy in few bytes, however many jobs are open. Pure.

The memory travels in every plan, and a plan is one message. So a large memory is written in another form:
of each job's id a digest, of the figures of all jobs a column each, and all of it compressed. If that is too
large as well, a policy names further forms, which leave out what matters least to it.

bz2 gives the same bytes on every machine, which cannot be said of zlib: there are several implementations.
"""

import bz2
from collections.abc import Callable, Iterable, Iterator, Sequence
from hashlib import blake2b
from typing import Any, Literal, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from schemas.ids import JobId

PLAIN_BYTES_MAX = 65_536
"""bytes of a memory up to which it is not packed"""
PACKED_BYTES_MAX = 262_144
"""bytes of a packed memory, a quarter of what a message may have"""
OPENED_BYTES_MAX = 64 * 2**20
UNKNOWN = "*"
"""what the name of a job begins with that is known by its digest only; no id begins with it"""
DIGEST_BYTES = 8

NumberType = Literal["<f8", "<f4", "<i4", "<i8", "<u8"]
"""a type of numbers, as numpy calls it"""
T = TypeVar("T")


def packed(plain: bytes, forms: Iterable[Callable[[], msgspec.Struct]]) -> bytes:
    """The memory as it is stored: `plain` if that is small, else the first form that is, once compressed.

    `forms`: the exact one first. If none is small enough nothing is remembered.
    """
    if len(plain) <= PLAIN_BYTES_MAX:
        return plain
    data = (bz2.compress(msgspec.msgpack.encode(form())) for form in forms)
    return next((each for each in data if len(each) <= PACKED_BYTES_MAX), b"")


def opened(memory: bytes, form: type[T]) -> T | None:
    """The packed form in a memory; None: it is not packed, or nothing that can be read."""
    if not is_packed(memory):
        return None
    decompressor = bz2.BZ2Decompressor()
    try:
        data = decompressor.decompress(memory, OPENED_BYTES_MAX)
        return msgspec.msgpack.decode(data, type=form) if decompressor.eof else None
    except (msgspec.MsgspecError, UnicodeDecodeError, OSError):
        return None


def is_packed(memory: bytes) -> bool:
    """No memory in msgpack or JSON begins as bz2 does."""
    return memory.startswith(b"BZh")


def column(numbers: Sequence[float], kind: NumberType) -> bytes:
    """The numbers, each rounded to the kind; first the first bytes of all, then the second, and so on."""
    table: npt.NDArray[Any] = np.array(numbers, dtype="<f8" if kind == "<f4" else kind)
    if kind == "<f4":
        most = float(np.finfo(kind).max)
        table = table.clip(-most, most).astype(kind)
    return table.view(np.uint8).reshape(len(table), table.itemsize).T.tobytes()


def numbers(column: bytes, kind: NumberType) -> list[Any]:
    """The numbers of a column. Raises ValueError if it is none of this kind."""
    if not column:
        return []
    size = np.dtype(kind).itemsize
    table = np.frombuffer(column, dtype=np.uint8).reshape(size, -1).T
    found: list[Any] = np.ascontiguousarray(table).view(kind).ravel().tolist()
    return found


def digests(job_ids: Iterable[JobId]) -> bytes:
    """A column with a digest of each id."""
    return column([_digest(job_id) for job_id in job_ids], "<u8")


def named(digests: bytes, known: Iterable[JobId]) -> Iterator[JobId]:
    """The jobs of a column of digests; one that is not `known` by a name that stands for its digest."""
    found = {_digest(job_id): job_id for job_id in known}
    for digest in numbers(digests, "<u8"):
        yield found.get(digest) or JobId(f"{UNKNOWN}{digest:x}")


def _digest(job_id: JobId) -> int:
    if job_id.startswith(UNKNOWN):
        return int(job_id.removeprefix(UNKNOWN), 16)
    return int.from_bytes(blake2b(job_id.encode(), digest_size=DIGEST_BYTES).digest(), "little")
