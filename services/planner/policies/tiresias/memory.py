"""What Tiresias remembers from plan to plan: its queues. Pure.

With very many jobs, seconds and GPU-seconds are rounded to single precision; if that is too much as well,
jobs keep their queues and places and lose what a promotion has set, so their service counts from their start.
"""

from collections.abc import Collection
from functools import partial
from itertools import islice
from typing import Literal

import msgspec

from schemas.ids import JobId
from services.planner.policies.kit.packing import (
    column,
    digests,
    is_packed,
    named,
    numbers,
    opened,
    packed,
)
from services.planner.policies.tiresias.queues import QueueEntry, Queues

FIGURES = 3
"""figures of an entry"""


class PackedQueues(msgspec.Struct, frozen=True, kw_only=True):
    """Queues as they are stored if there are very many jobs (see `kit.packing`)."""

    kind: Literal["<f8", "<f4"]
    jobs: bytes
    """digests of the jobs, queue after queue"""
    sizes: tuple[int, ...]
    """the jobs in each queue"""
    figures: tuple[bytes, ...]
    """columns of `since_s`, `since_gpu_s` and `since_waited_s`; none if they are forgotten"""


def remembered(memory: bytes, known: Collection[JobId] = ()) -> Queues:
    """The queues of the last decision; empty if the memory is not one of Tiresias.

    `known`: the jobs that there are now. Another one may come with a name that stands for it.
    """
    large = opened(memory, PackedQueues)
    try:
        queues = msgspec.msgpack.decode(memory, type=Queues) if large is None else _unpacked(large, known)
    except (msgspec.MsgspecError, UnicodeDecodeError, ValueError):
        return ()
    names = [own.job_id for line in queues for own in line]
    return queues if len(names) == len(set(names)) else ()


def stored(queues: Queues) -> bytes:
    """The queues in bytes."""
    forms: list[tuple[Literal["<f8", "<f4"], int]] = [("<f8", FIGURES), ("<f4", FIGURES), ("<f4", 0)]
    return packed(msgspec.msgpack.encode(queues), [partial(_packed, queues, *form) for form in forms])


def is_exact(memory: bytes) -> bool:
    """Whether the queues in a memory are those that were stored, to the last digit."""
    return bool(memory) and not is_packed(memory)


def _packed(queues: Queues, kind: Literal["<f8", "<f4"], figures: int) -> PackedQueues:
    every = [own for line in queues for own in line]
    columns = [
        [own.since_s for own in every],
        [own.since_gpu_s for own in every],
        [own.since_waited_s for own in every],
    ]
    return PackedQueues(
        kind=kind,
        jobs=digests(own.job_id for own in every),
        sizes=tuple(len(line) for line in queues),
        figures=tuple(column(each, kind) for each in columns[:figures]),
    )


def _unpacked(large: PackedQueues, known: Collection[JobId]) -> Queues:
    figures = [numbers(each, large.kind) for each in large.figures]
    rows = zip(named(large.jobs, known), *figures, strict=True)
    entries = iter([QueueEntry(*row) for row in rows])
    return tuple([tuple(islice(entries, jobs)) for jobs in large.sizes])
