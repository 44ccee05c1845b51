"""What Gavel remembers from round to round: shares, time received, deficits. Pure.

The book is written anew whenever shares are computed, and read in between. It is a policy's memory, so
it is small, its form has a version, and bytes that are not a book of this version are an empty one.
"""

from collections.abc import Sequence

import msgspec
import numpy as np

from schemas.ids import GpuType, JobId
from services.planner.programs.gavel_rounds import deficits
from services.planner.programs.gavel_shares import Demand, isolated, throughput
from services.planner.programs.linear import Floats

VERSION = 1

ByType = dict[GpuType, float]


class Entry(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """A job, as it was when shares were computed."""

    share: ByType = {}
    """X; types without any are left out, here and below"""
    received: ByType = {}
    """seconds for which it has held GPUs in its whole life"""
    deficit: ByType = {}
    left: float = 0.0
    """samples"""
    isolated_rate: float = 0.0
    """samples/s on 1/m of the cluster"""
    isolated_s: float = 0.0
    """seconds that its work until then would have taken at such rates"""


class Book(msgspec.Struct, frozen=True, kw_only=True):
    version: int = VERSION
    at: float | None = None
    """when shares were computed last"""
    complete: bool = True
    """as the objective has them; not a makeshift for want of time"""
    gpus: ByType = {}
    """of the cluster at that time"""
    jobs: dict[JobId, Entry] = {}


class Now(msgspec.Struct, frozen=True, kw_only=True):
    """The jobs of a round, m, and the GPU types of the cluster, n."""

    at: float
    jobs: tuple[JobId, ...]
    types: tuple[GpuType, ...]
    demand: Demand
    received: Floats
    """seconds for which each job has held GPUs of each type (m, n)"""
    done: Floats
    left: Floats
    """samples (m)"""
    elapsed: Floats
    """seconds since each job came (m)"""


def read(memory: bytes) -> Book:
    try:
        book = msgspec.msgpack.decode(memory, type=Book)
    except msgspec.MsgspecError:
        return Book()
    return book if book.version == VERSION else Book()


def changed(book: Book, now: Now) -> bool:
    """Whether jobs or GPUs came or went since shares were computed as they should be."""
    return (
        not book.complete
        or set(book.jobs) != set(now.jobs)
        or book.gpus != _named(now.types, now.demand.gpus)
    )


def share_of(book: Book, now: Now) -> Floats:
    """X as computed last; 0 for jobs and types that came since."""
    return _table([entry.share for entry in _entries(book, now)], now.types)


def deficit_of(book: Book, now: Now) -> Floats:
    return _table([entry.deficit for entry in _entries(book, now)], now.types)


def received_since(book: Book, now: Now) -> Floats:
    """Seconds that each job held GPUs since shares were computed (m, n)."""
    before = _table([entry.received for entry in _entries(book, now)], now.types)
    return np.maximum(now.received - before, 0.0)


def isolated_s(book: Book, now: Now) -> Floats:
    """c: seconds that each job's work until now would have taken on its 1/m of the cluster (m).

    Of a job that is not in the book the past is not known: as if m had been what it is now.
    """
    rate = throughput(now.demand, isolated(now.demand))
    columns = zip(now.jobs, now.done.tolist(), now.left.tolist(), rate.tolist(), strict=True)
    return np.array([_past_s(book.jobs.get(job_id), *figures) for job_id, *figures in columns])


def written(book: Book, now: Now, share: Floats, *, complete: bool) -> Book:
    """The book with new shares X (m, n)."""
    elapsed_s = 0.0 if book.at is None else now.at - book.at
    owed = deficits(deficit_of(book, now), share_of(book, now), received_since(book, now), elapsed_s)
    rate, past_s = throughput(now.demand, isolated(now.demand)), isolated_s(book, now)
    entries = {
        job_id: Entry(
            share=_named(now.types, share[index]),
            received=_named(now.types, now.received[index]),
            deficit=_named(now.types, owed[index]),
            left=float(now.left[index]),
            isolated_rate=float(rate[index]),
            isolated_s=float(past_s[index]),
        )
        for index, job_id in enumerate(now.jobs)
    }
    return Book(at=now.at, complete=complete, gpus=_named(now.types, now.demand.gpus), jobs=entries)


def _past_s(entry: Entry | None, done: float, left: float, rate: float) -> float:
    if entry is None or entry.isolated_rate <= 0:
        return done / rate
    return entry.isolated_s + max(entry.left - left, 0.0) / entry.isolated_rate


def _entries(book: Book, now: Now) -> list[Entry]:
    return [book.jobs.get(job_id, Entry()) for job_id in now.jobs]


def _named(types: Sequence[GpuType], row: Floats) -> ByType:
    return {name: value for name, value in zip(types, row.tolist(), strict=True) if value}


def _table(rows: Sequence[ByType], types: Sequence[GpuType]) -> Floats:
    values = [[row.get(name, 0.0) for name in types] for row in rows]
    return np.array(values, dtype=np.float64).reshape(len(rows), len(types))
