"""Gavel's memory from round to round: shares, time received, deficits, GPUs. Pure.

Shares, time received and deficits are written when shares are computed, and read in between; the rest is
written in every round. Bytes of another version, or of another policy, count as an empty memory.
"""

from collections.abc import Sequence

import msgspec
import numpy as np

from schemas.ids import GpuType, JobId
from services.planner.policies.gavel.placing import Gpus
from services.planner.policies.gavel.rounds import deficits
from services.planner.policies.gavel.shares import Demand, isolated, throughput
from shared.domain.arrays import Floats

VERSION = 2
GRAIN = 9
"""decimals to which seconds since the last reset are rounded: errors of floating-point sums must not break
the tie of jobs that received equal times"""

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
    """jobs or GPUs have come or gone since then, even if they are as before by now"""
    gpus_of: dict[JobId, Gpus] = {}
    """the GPUs each job was given in the last round; by the authors' rules only"""


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
    apart: frozenset[JobId] = frozenset()
    """jobs that this round leaves where they are; shares are computed without them, and again in the next
    round"""


def read(memory: bytes) -> Memory:
    """The memory in the bytes; an empty one if they are not of this version."""
    try:
        remembered = msgspec.msgpack.decode(memory, type=Memory)
    except msgspec.MsgspecError:
        return Memory()
    return remembered if remembered.version == VERSION else Memory()


def changed(remembered: Memory, now: Now) -> bool:
    """Whether jobs or GPUs came or went since shares were last computed in full."""
    return (
        remembered.stale
        or not remembered.complete
        or set(remembered.jobs) - now.apart != set(now.jobs)
        or remembered.gpus != _named(now.types, now.demand.gpus)
    )


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
