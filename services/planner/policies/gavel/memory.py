"""Gavel's memory from round to round: shares, time received, deficits, GPUs. Pure.

Shares, time received and deficits are written when shares are computed, and read in between; the rest is
written in every round. Bytes of another version, or of another policy, count as an empty memory.

With very many jobs, figures are rounded to single precision; with still more, all but shares and time
received is forgotten, then time received too (it counts from a job's submission then), at last everything, so
that each round computes shares.
"""

from collections.abc import Collection, Iterator, Sequence
from functools import partial
from math import isclose
from typing import Literal

import msgspec
import numpy as np

from schemas.ids import GpuType, JobId
from services.planner.policies.gavel.placing import Gpus
from services.planner.policies.gavel.rounds import deficits
from services.planner.policies.gavel.shares import Demand, isolated, throughput
from services.planner.policies.kit.packing import (
    DIGEST_BYTES,
    column,
    digests,
    named,
    numbers,
    opened,
    packed,
)
from shared.domain.arrays import Floats

VERSION = 2
GRAIN = 9
"""decimals to which seconds since the last reset are rounded: errors of floating-point sums must not break
the tie of jobs that received equal times"""
TABLES = 3
"""figures of an entry that are by type"""
FIGURES = 4
"""those that are not"""

ByType = dict[GpuType, float]


class Entry(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """A job, as it was when shares were computed."""

    share: ByType = {}
    """X; types with 0 are left out, here and below"""
    received: ByType = {}
    """seconds for which it has held GPUs since its submission"""
    deficit: ByType = {}
    """seconds, see `rounds`"""
    left: float = 0.0
    """samples still to do"""
    isolated_rate: float = 0.0
    """samples/s on 1/m of the cluster"""
    isolated_s: float = 0.0
    """seconds that its work until then would have taken on 1/m of the cluster, m as it was at each time"""
    priority: float = 0.0
    """the user's factor on its weight; 0: not known"""


class Memory(msgspec.Struct, frozen=True, kw_only=True):
    version: int = VERSION
    at: float | None = None
    """when shares were computed last"""
    complete: bool = True
    """false: the budget was spent, and the shares are not those of the objective"""
    gpus: ByType = {}
    """GPUs of the cluster when shares were computed"""
    jobs: dict[JobId, Entry] = {}
    stale: bool = False
    """jobs, GPUs or priorities have changed since then, even if they are as before by now"""
    gpus_of: dict[JobId, Gpus] = {}
    """the GPUs each job was given in the last round; by the authors' rules only"""


class PackedShares(msgspec.Struct, frozen=True, kw_only=True):
    """A memory as it is stored if it is large (see `kit.packing`)."""

    rest: Memory
    """without `jobs` and `gpus_of`"""
    kind: Literal["<f8", "<f4"]
    jobs: bytes
    """digests of the jobs"""
    types: tuple[GpuType, ...]
    by_type: tuple[tuple[bytes, ...], ...]
    """columns of share, time received and deficit, of each by type; fewer if they are forgotten"""
    figures: tuple[bytes, ...]
    """columns of `left`, `isolated_rate`, `isolated_s` and `priority`; none if they are forgotten"""
    placed: bytes
    """digests of the jobs in `gpus_of`"""
    gpus: tuple[Gpus, ...]


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
    priority: Sequence[float]
    """the user's factor on each job's weight (m)"""
    apart: frozenset[JobId] = frozenset()
    """jobs that this round leaves where they are; shares are computed without them, and again in the next
    round"""


def read(memory: bytes, known: Collection[JobId] = ()) -> Memory:
    """The memory in the bytes; an empty one if they are not of this version.

    `known`: the jobs that there are now. Another one may come with a name that stands for it.
    """
    large = opened(memory, PackedShares)
    if large is not None and large.rest.version == VERSION:
        return _unpacked(large, known)
    try:
        remembered = msgspec.msgpack.decode(memory, type=Memory)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return Memory()
    return remembered if remembered.version == VERSION else Memory()


def stored(remembered: Memory) -> bytes:
    """The memory in bytes; with very many jobs, without what matters least."""
    exact = partial(_packed, remembered, "<f8", TABLES)
    shorter = [partial(_packed, remembered, "<f4", tables) for tables in range(TABLES, 0, -1)]
    return packed(msgspec.msgpack.encode(remembered), [exact, *shorter])


def changed(remembered: Memory, now: Now) -> bool:
    """Whether jobs or GPUs came or went, or priorities changed, since shares were last computed in full."""
    return (
        remembered.stale
        or not remembered.complete
        or set(remembered.jobs) - now.apart != set(now.jobs)
        or remembered.gpus != _named(now.types, now.demand.gpus)
        or any(map(_reweighed, _entries(remembered, now), now.priority))
    )


def _reweighed(entry: Entry, priority: float) -> bool:
    """Whether a job has another priority, beyond the rounding of a large memory."""
    return entry.priority > 0 and not isclose(entry.priority, priority, rel_tol=1e-6)


def share_of(remembered: Memory, now: Now) -> Floats:
    """X as computed last; 0 for jobs and types that came since."""
    return _table([entry.share for entry in _entries(remembered, now)], now.types)


def deficit_of(remembered: Memory, now: Now) -> Floats:
    return _table([entry.deficit for entry in _entries(remembered, now)], now.types)


def received_since(remembered: Memory, now: Now) -> Floats:
    """Seconds that each job held GPUs since shares were computed (m, n)."""
    before = _table([entry.received for entry in _entries(remembered, now)], now.types)
    return np.maximum(now.received - before, 0.0).round(GRAIN)


def isolated_s(remembered: Memory, now: Now) -> Floats:
    """c: seconds that each job's work until now would have taken on 1/m of the cluster (m).

    For a job without an entry, m is taken to have been what it is now.
    """
    rate = throughput(now.demand, isolated(now.demand))
    columns = zip(now.jobs, now.done.tolist(), now.left.tolist(), rate.tolist(), strict=True)
    return np.array([_past_s(remembered.jobs.get(job_id), *figures) for job_id, *figures in columns])


def written(remembered: Memory, now: Now, share: Floats, *, complete: bool) -> Memory:
    """The memory with new shares X (m, n)."""
    elapsed_s = 0.0 if remembered.at is None else round(now.at - remembered.at, GRAIN)
    owed = deficits(
        deficit_of(remembered, now), share_of(remembered, now), received_since(remembered, now), elapsed_s
    )
    rate, past_s = throughput(now.demand, isolated(now.demand)), isolated_s(remembered, now)
    entries = {
        job_id: Entry(
            share=_named(now.types, share[index]),
            received=_named(now.types, now.received[index]),
            deficit=_named(now.types, owed[index]),
            left=float(now.left[index]),
            isolated_rate=float(rate[index]),
            isolated_s=float(past_s[index]),
            priority=now.priority[index],
        )
        for index, job_id in enumerate(now.jobs)
    }
    apart = {job_id: entry for job_id, entry in remembered.jobs.items() if job_id in now.apart}
    return Memory(
        at=now.at,
        complete=complete,
        gpus=_named(now.types, now.demand.gpus),
        jobs=entries | apart,
        gpus_of=remembered.gpus_of,
        stale=bool(now.apart),
    )


def emptied(now: Now) -> Memory:
    """The memory after a reset without any job."""
    return Memory(at=now.at, gpus=_named(now.types, now.demand.gpus))


def _past_s(entry: Entry | None, done: float, left: float, rate: float) -> float:
    if entry is None or entry.isolated_rate <= 0:
        return done / rate
    return entry.isolated_s + max(entry.left - left, 0.0) / entry.isolated_rate


def _entries(remembered: Memory, now: Now) -> list[Entry]:
    return [remembered.jobs.get(job_id, Entry()) for job_id in now.jobs]


def _named(types: Sequence[GpuType], row: Floats) -> ByType:
    return {name: value for name, value in zip(types, row.tolist(), strict=True) if value}


def _table(rows: Sequence[ByType], types: Sequence[GpuType]) -> Floats:
    values = [[row.get(name, 0.0) for name in types] for row in rows]
    return np.array(values, dtype=np.float64).reshape(len(rows), len(types))


# ---- a large memory


def _packed(remembered: Memory, kind: Literal["<f8", "<f4"], tables: int) -> PackedShares:
    """`tables`: how many of share, time received and deficit are kept; the other figures only if all are."""
    entries = list(remembered.jobs.values())
    by_type = [
        [each.share for each in entries],
        [each.received for each in entries],
        [each.deficit for each in entries],
    ]
    figures = [
        [each.left for each in entries],
        [each.isolated_rate for each in entries],
        [each.isolated_s for each in entries],
        [each.priority for each in entries],
    ]
    names = [name for rows in by_type for row in rows for name in row]
    types = tuple(dict.fromkeys([*remembered.gpus, *names]))
    return PackedShares(
        rest=msgspec.structs.replace(remembered, jobs={}, gpus_of={}),
        kind=kind,
        jobs=digests(remembered.jobs),
        types=types,
        by_type=tuple(
            tuple(column([row.get(name, 0.0) for row in rows], kind) for name in types)
            for rows in by_type[:tables]
        ),
        figures=tuple(column(each, kind) for each in figures) if tables == len(by_type) else (),
        placed=digests(remembered.gpus_of),
        gpus=tuple(remembered.gpus_of.values()),
    )


def _unpacked(large: PackedShares, known: Collection[JobId]) -> Memory:
    jobs, placed = named(large.jobs, known), named(large.placed, known)
    try:
        return msgspec.structs.replace(
            large.rest,
            jobs=dict(zip(jobs, _entries_in(large), strict=True)),
            gpus_of=dict(zip(placed, large.gpus, strict=True)),
        )
    except ValueError:  # columns that do not belong together
        return Memory()


def _entries_in(large: PackedShares) -> Iterator[Entry]:
    jobs = len(large.jobs) // DIGEST_BYTES
    tables = [list(_rows(columns, large)) or [{}] * jobs for columns in large.by_type]
    tables += [[{}] * jobs] * (TABLES - len(tables))
    figures = [numbers(each, large.kind) for each in large.figures] or [[0.0] * jobs] * FIGURES
    rows = zip(zip(*tables, strict=True), zip(*figures, strict=True), strict=True)
    for (share, received, deficit), (left, rate, past_s, priority) in rows:
        yield Entry(
            share=share,
            received=received,
            deficit=deficit,
            left=left,
            isolated_rate=rate,
            isolated_s=past_s,
            priority=priority,
        )


def _rows(columns: Sequence[bytes], large: PackedShares) -> Iterator[ByType]:
    for row in zip(*[numbers(each, large.kind) for each in columns], strict=True):
        yield {name: value for name, value in zip(large.types, row, strict=True) if value}
