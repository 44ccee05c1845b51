"""What HLAS and its variants remember from plan to plan. Pure.

With very many jobs, figures are rounded to single precision; if that is too much as well, the jobs that were
served last are forgotten. The rounds of a forgotten job still follow from its samples.
"""

from collections.abc import Container, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Literal, TypeVar

import msgspec

from schemas.ids import Fingerprint, GpuType, JobId
from schemas.placement import Configuration
from services.planner.policies.hlas.queues import QueuePlace
from services.planner.policies.kit.packing import column, digests, named, numbers, opened, packed

ENDED_AT_MOST = 20
"""ended jobs of one workload whose lengths are remembered"""
WORKLOADS_AT_MOST = 200
"""workloads of which speeds and ended jobs are remembered"""
JOBS_AT_MOST = 20_000
"""jobs that are remembered"""


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


class PackedLevels(msgspec.Struct, frozen=True, kw_only=True):
    """A memory as it is stored if it is large (see `kit.packing`). All columns are by job."""

    rest: HlasMemory
    """without `jobs`"""
    kind: Literal["<f8", "<f4"]
    jobs: bytes
    """digests"""
    figures: tuple[bytes, bytes, bytes]
    """`entered_at`, `samples`, `rate`"""
    counts: tuple[bytes, bytes, bytes, bytes]
    """`scale`, `queue`, position in `workloads`, number of groups"""
    rounds: tuple[bytes, bytes]
    """`until`, `asked_at`"""
    groups: bytes
    """positions of groups, job after job"""
    workloads: tuple[Fingerprint, ...]


def remembered(memory: bytes, known_jobs: Iterable[JobId] = ()) -> HlasMemory:
    """The memory of the last decision; an empty one if the bytes are not a memory of HLAS.

    `known_jobs`: the jobs that there are now. Another one may come with a name that stands for it.
    """
    large = opened(memory, PackedLevels)
    try:
        found = (
            msgspec.msgpack.decode(memory, type=HlasMemory) if large is None else _unpacked(large, known_jobs)
        )
    except (msgspec.MsgspecError, UnicodeDecodeError, ValueError, IndexError):
        return HlasMemory()
    known = range(len(found.groups))
    whole = all(group in known for job in found.jobs.values() for group in job.groups)
    return found if whole and all(job.scale > 0 for job in found.jobs.values()) else HlasMemory()


def stored(memory: HlasMemory) -> bytes:
    """The memory in bytes."""
    jobs = len(memory.jobs)
    forms: list[tuple[Literal["<f8", "<f4"], int]] = [("<f8", jobs), ("<f4", jobs)]
    forms += [("<f4", jobs >> halvings) for halvings in range(1, jobs.bit_length())]
    return packed(msgspec.msgpack.encode(memory), [partial(_packed, memory, *form) for form in forms])


def at_most(most: int, jobs: dict[JobId, RememberedJob]) -> dict[JobId, RememberedJob]:
    """As many of the jobs: those that run, then the others in order."""
    if len(jobs) <= most:
        return jobs
    return dict(sorted(jobs.items(), key=lambda each: not each[1].groups)[:most])


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


# ---- a large memory


def _packed(memory: HlasMemory, kind: Literal["<f8", "<f4"], most: int) -> PackedLevels:
    """`most`: how many jobs are kept."""
    jobs = at_most(most, memory.jobs)
    entries = list(jobs.values())
    places = [one.queue_place for one in entries]
    workloads = {name: number for number, name in enumerate(dict.fromkeys(one.workload for one in entries))}
    return PackedLevels(
        rest=msgspec.structs.replace(memory, jobs={}),
        kind=kind,
        jobs=digests(jobs),
        figures=(
            column([one.entered_at for one in places], kind),
            column([one.samples for one in entries], kind),
            column([one.rate for one in entries], kind),
        ),
        counts=(
            column([one.scale for one in entries], "<i4"),
            column([one.queue for one in places], "<i4"),
            column([workloads[one.workload] for one in entries], "<i4"),
            column([len(one.groups) for one in entries], "<i4"),
        ),
        rounds=(
            column([one.until for one in places], "<i8"),
            column([one.asked_at for one in places], "<i8"),
        ),
        groups=column([group for one in entries for group in one.groups], "<i4"),
        workloads=tuple(workloads),
    )


def _unpacked(large: PackedLevels, known_jobs: Iterable[JobId]) -> HlasMemory:
    jobs = zip(named(large.jobs, known_jobs), _entries_in(large), strict=True)
    return msgspec.structs.replace(large.rest, jobs=dict(jobs))


def _entries_in(large: PackedLevels) -> Iterator[RememberedJob]:
    figures = [numbers(each, large.kind) for each in large.figures]
    counts = [numbers(each, "<i4") for each in large.counts]
    rounds = [numbers(each, "<i8") for each in large.rounds]
    groups = iter(numbers(large.groups, "<i4"))
    for entered_at, samples, rate, scale, queue, workload, owned, until, asked_at in zip(
        *figures, *counts, *rounds, strict=True
    ):
        yield RememberedJob(
            scale=scale,
            queue_place=QueuePlace(queue=queue, entered_at=entered_at, until=until, asked_at=asked_at),
            groups=tuple(islice(groups, owned)),
            workload=large.workloads[workload],
            samples=samples,
            rate=rate,
        )
