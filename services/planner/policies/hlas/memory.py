"""What the policies remember from plan to plan. Pure."""

from collections.abc import Container, Sequence
from typing import TypeVar

import msgspec

from schemas.ids import Fingerprint, GpuType, JobId
from schemas.placement import Configuration
from services.planner.policies.hlas.queues import QueuePlace

ENDED_AT_MOST = 20
"""jobs of one workload whose lengths are remembered"""
WORKLOADS_AT_MOST = 200
JOBS_AT_MOST = 4_000
"""that are remembered; of others all but the size is forgotten, which their samples say"""


class RememberedJob(msgspec.Struct, frozen=True, array_like=True):
    scale: int
    """D: tasks of a round, for good"""
    standing: QueuePlace
    groups: tuple[int, ...]
    """positions in `HlasMemory.groups`; empty: it waits"""
    workload: Fingerprint
    samples: float
    """done at the last plan"""
    rate: float
    """samples/s from then on"""


class GpuGroup(msgspec.Struct, frozen=True, array_like=True):
    place: Configuration
    basis: str
    """of which cluster and workloads it was formed"""


class HlasMemory(msgspec.Struct, frozen=True, kw_only=True):
    at: float = 0.0
    groups: tuple[GpuGroup, ...] = ()
    jobs: dict[JobId, RememberedJob] = {}
    """those present at the last plan that have begun"""
    speeds: dict[str, dict[GpuType, float]] = {}
    """samples/s of one GPU by workload, of all seen so far; of a job like no other, by its id"""
    ended: dict[Fingerprint, tuple[float, ...]] = {}
    """samples that ended jobs had done, by workload, the newest last"""


def remembered(memory: bytes) -> HlasMemory:
    """Of the last decision; nothing from memory that is not ours."""
    try:
        found = msgspec.msgpack.decode(memory, type=HlasMemory)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return HlasMemory()
    known = range(len(found.groups))
    whole = all(group in known for job in found.jobs.values() for group in job.groups)
    return found if whole and all(job.scale > 0 for job in found.jobs.values()) else HlasMemory()


def with_ended(
    before: HlasMemory, present: Container[JobId], at: float
) -> dict[Fingerprint, tuple[float, ...]]:
    """`ended`, with the jobs that are there no more: they did about what they were about to do."""
    found = dict(before.ended)
    for job_id, job in before.jobs.items():
        if job_id in present or not job.workload:
            continue
        samples = job.samples + job.rate * max(at - before.at, 0.0)
        found[job.workload] = (*found.pop(job.workload, ()), samples)[-ENDED_AT_MOST:]
    return newest(found)


def with_speeds(
    before: HlasMemory, jobs: Sequence[tuple[str, dict[GpuType, float]]]
) -> dict[str, dict[GpuType, float]]:
    """`speeds`, with the workloads that are new; a known one keeps what it had."""
    found = dict(before.speeds)
    for name, speeds in jobs:
        found.setdefault(name, speeds)
    return newest(found)


K = TypeVar("K")
V = TypeVar("V")


def newest(found: dict[K, V]) -> dict[K, V]:
    """The last `WORKLOADS_AT_MOST`."""
    return dict(list(found.items())[-WORKLOADS_AT_MOST:])
