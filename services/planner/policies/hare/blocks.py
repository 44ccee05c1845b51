"""Shares of GPUs in place of a list of tasks: what scales of Hare's offline problem. Pure.

The jobs of the least time left over weight come first. Each takes GPUs for the D tasks of a round, one after
the other where the task ends first on what is left of the GPU:

    k_m := 0;    D times: m = argmin (k_m + 1) · p_m / (1 − u_m) over u_m < FULL,  k_m += 1
    T = max_m k_m · p_m / (1 − u_m) + exchange;                                    u_m += k_m · p_m / T

u_m is the share of GPU m that is spoken for. So while a job exchanges gradients, and on GPUs that wait for
slower ones of its round, others compute. A GPU that holds as many jobs as it may takes no more.

A job that may not be moved keeps the tasks that it has, and comes in its turn: those before it leave it what
is left, and some turns in any case. The GPUs are divided into rooms, and no job has tasks in two of them.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import msgspec
import numpy as np

from shared.domain.arrays import Floats, Ints

RESIDENTS_MOST = 16
"""jobs whose processes one GPU holds, by default: as of the setting `residents_max`"""
FULL = 0.98
"""a GPU of which so much is spoken for takes no more jobs"""
NEARLY = 1e-9
"""a GPU that a job likes is taken where it ends so little later, in parts of the time"""


class BlockJob(msgspec.Struct, frozen=True, kw_only=True):
    tasks: int
    """D: of a round"""
    task_s: Floats
    """p [M]: by GPU; inf where it cannot run"""
    exchange_s: Callable[[Ints], float]
    """of a round with so many tasks by GPU [M]"""
    liked: frozenset[int] = frozenset()
    """GPUs that it takes before others that are as good"""
    kept: Mapping[int, int] = {}
    """tasks of a round that it has and keeps, by GPU that has any; none: it may have any"""


class Block(msgspec.Struct, frozen=True, kw_only=True):
    """A job's part in the plan."""

    job: int
    """by position in the queue"""
    tasks: dict[int, int]
    """of a round, by GPU that has any"""
    exchange_s: float
    round_s: float
    """T: from one round to the next, beside those before it in the queue"""


def blocks(
    queue: Iterable[BlockJob],
    gpus: int,
    rooms: Sequence[Sequence[int]] | None = None,
    residents_max: int = RESIDENTS_MOST,
) -> list[Block]:
    """Of the jobs that get GPUs, the first in the queue served first.

    `rooms`: the GPUs of each, by default all in one; those of none are for jobs that keep them.
    `residents_max`: jobs with tasks on one GPU; more only where they keep it.
    """
    jobs = list(queue)
    used, residents = np.zeros(gpus), np.zeros(gpus, dtype=np.int32)
    for job in jobs:
        residents[list(job.kept)] += 1
    inside = [np.isin(np.arange(gpus), room) for room in ([range(gpus)] if rooms is None else rooms)]
    found: list[Block] = []
    for number, job in enumerate(jobs):
        if job.kept:
            own: Block | None = _kept(number, job, 1.0 - used)
        else:
            free = np.where((used < FULL) & (residents < residents_max), 1.0 - used, 0.0)
            each = [_block(number, job, np.where(room, free, 0.0)) for room in inside if free[room].any()]
            own = min(filter(None, each), key=lambda block: block.round_s, default=None)
        if own is not None:
            found.append(own)
            residents[[gpu for gpu in own.tasks if gpu not in job.kept]] += 1
            for gpu, tasks in own.tasks.items():
                used[gpu] += tasks * job.task_s[gpu] / own.round_s
    return found


def _kept(number: int, job: BlockJob, free: Floats) -> Block:
    tasks = np.zeros(len(free), dtype=np.int32)
    tasks[list(job.kept)] = list(job.kept.values())
    exchange_s = job.exchange_s(tasks)
    left = np.maximum(free, 1.0 - FULL)
    round_s = max(float(count * job.task_s[gpu] / left[gpu]) for gpu, count in job.kept.items()) + exchange_s
    return Block(job=number, tasks=dict(job.kept), exchange_s=exchange_s, round_s=round_s)


def _block(number: int, job: BlockJob, free: Floats) -> Block | None:
    """`free`: the share of each GPU that is left."""
    with np.errstate(divide="ignore"):
        each_s = np.where(free > 0, job.task_s / free, np.inf)
    if not np.isfinite(each_s).any():
        return None
    compared = each_s.copy()
    compared[list(job.liked)] *= 1.0 - NEARLY
    ends, tasks = compared.copy(), np.zeros(len(free), dtype=np.int32)
    for _ in range(job.tasks):
        gpu = int(ends.argmin())
        tasks[gpu] += 1
        ends[gpu] += compared[gpu]
    exchange_s = job.exchange_s(tasks)
    on = np.flatnonzero(tasks)
    return Block(
        job=number,
        tasks=dict(zip(on.tolist(), tasks[on].tolist(), strict=True)),
        exchange_s=exchange_s,
        round_s=float((tasks[on] * each_s[on]).max()) + exchange_s,
    )


def components(plan: Sequence[Block]) -> Iterator[list[Block]]:
    """Blocks that share GPUs, directly or by way of others; each in the order of the plan."""
    owner: dict[int, int] = {}
    parent = list(range(len(plan)))

    def root(one: int) -> int:
        while parent[one] != one:
            parent[one] = one = parent[parent[one]]
        return one

    for number, block in enumerate(plan):
        for gpu in block.tasks:
            first, other = sorted((root(owner.setdefault(gpu, number)), root(number)))
            parent[other] = first
    groups: dict[int, list[Block]] = {}
    for number, block in enumerate(plan):
        groups.setdefault(root(number), []).append(block)
    yield from groups.values()
