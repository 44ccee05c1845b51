"""What HLAS and its variants remember from plan to plan. Pure."""

from collections.abc import Container, Sequence
from typing import TypeVar

import msgspec

from schemas.ids import Fingerprint, GpuType, JobId
from schemas.placement import Configuration
from services.planner.policies.hlas.queues import QueuePlace

ENDED_AT_MOST = 20
"""ended jobs of one workload whose lengths are remembered"""
WORKLOADS_AT_MOST = 200
"""workloads of which speeds and ended jobs are remembered"""
JOBS_AT_MOST = 4_000
"""jobs that are remembered; the rounds of a forgotten job still follow from its samples"""


class RememberedJob(msgspec.Struct, frozen=True, array_like=True):
    scale: int
    """D: tasks of a round, which never changes"""
    queue_place: QueuePlace
    groups: tuple[int, ...]
    """positions in `HlasMemory.groups`; empty: it waits"""
    workload: Fingerprint
    samples: float
    """samples done at the last plan"""
    rate: float
    """samples/s from the last plan on"""


class GpuGroup(msgspec.Struct, frozen=True, array_like=True):
    """GPUs that go to one job at a time."""

    place: Configuration
    basis: str
    """a hash of the nodes, the number of groups and the workloads that it was formed for"""


class HlasMemory(msgspec.Struct, frozen=True, kw_only=True):
    at: float = 0.0
    """cluster time of the last plan"""
    groups: tuple[GpuGroup, ...] = ()
    jobs: dict[JobId, RememberedJob] = {}
    """the jobs of the last plan that have begun, or of which rounds are predicted"""
    speeds: dict[str, dict[GpuType, float]] = {}
    """samples/s of one GPU, by workload (or the id of a job without one), of all workloads so far"""
    ended: dict[Fingerprint, tuple[float, ...]] = {}
    """samples of ended jobs, by workload, the newest last"""


def remembered(memory: bytes) -> HlasMemory:
    """The memory of the last decision; an empty one if the bytes are not a memory of HLAS."""
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
    """`ended`, with the jobs that are not `present` any more.

    The samples of such a job are those at the last plan, and those that it was expected to do since.
    """
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
    """`speeds`, with those of new workloads added; known workloads keep theirs."""
    found = dict(before.speeds)
    for name, speeds in jobs:
        found.setdefault(name, speeds)
    return newest(found)


K = TypeVar("K")
V = TypeVar("V")


def newest(found: dict[K, V]) -> dict[K, V]:
    """The last `WORKLOADS_AT_MOST` entries."""
    return dict(list(found.items())[-WORKLOADS_AT_MOST:])
