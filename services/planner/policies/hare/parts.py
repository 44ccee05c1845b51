"""What Hare's plan of shares is made of: jobs, GPUs that are held, rooms, and offers of GPUs. Pure data."""

from collections.abc import Callable, Mapping, Sequence

import msgspec

RESIDENTS_MOST = 16
"""jobs whose processes one GPU holds at most, by default, as in the setting `residents_max`"""
TURNS_MOST = 8
"""rounds of a job in a cycle, at most"""
GAINS = 1.25
"""a job moves only if its round takes at least this many times as long where it is as at the new place"""
FULL = 0.98
"""share of a GPU's time from which on it takes no further job"""


class BlockJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job that is to get shares of GPUs."""

    tasks: int
    """D: tasks of a round"""
    task_s: Sequence[float]
    """p: seconds of a task, by kind of GPU; inf where it cannot run"""
    exchange_s: Callable[[Sequence[int]], float]
    """seconds of the exchange of gradients, if the job has tasks on these GPUs"""
    worth: float = 1.0
    """rounds left times weight: what a second of a round is worth"""
    moving_s: float = 0.0
    """seconds lost when it restarts, times its weight; 0: it has not run yet"""
    switching_s: float = 0.0
    """the same for a start on GPUs where its processes stand by"""
    stands_by: Callable[[Sequence[int]], bool] = lambda _: False
    """whether its processes stand by on all of these GPUs"""
    memory: Sequence[float] = ()
    """share of a GPU's memory that it takes, by kind of GPU; empty: not known"""
    own_node_gpus: frozenset[int] = frozenset()
    """GPUs of nodes where it runs or stands by, which it takes before others that are as fast"""
    near: frozenset[int] | None = None
    """GPUs of nodes where it runs or stands by; None: they are not known, it may stand by anywhere"""
    kept: Mapping[int, int] = {}
    """the tasks of a round that it has and must keep, by GPU that has any; empty: it may be moved"""


class Held(msgspec.Struct, frozen=True, kw_only=True):
    """GPUs that jobs hold together now: those of a rota, or of one job."""

    gpus: tuple[int, ...]
    jobs: frozenset[int]
    """positions in the queue"""
    fixed: bool = False
    """its jobs may not be moved"""
    open: bool = True
    """other jobs may join"""


class Block(msgspec.Struct, frozen=True, kw_only=True):
    """A job's part in the plan."""

    job: int
    """position in the queue"""
    tasks: dict[int, int]
    """tasks of a round, by GPU that has any"""
    exchange_s: float
    round_s: float
    """T: seconds from one round to the next, beside the jobs before it in the queue"""


class HareRoom(msgspec.Struct, kw_only=True):
    """GPUs that are divided among the same jobs."""

    gpus: tuple[int, ...]
    held: int | None
    """the position of the `Held` that it goes on from; None: it is new"""
    open: bool = True
    """other jobs may join"""
    blocks: list[Block] = []


class BlockOffer(msgspec.Struct, frozen=True):
    """GPUs on which a job may get tasks: of a room, or for a new one."""

    gpus: Sequence[int]
    each_s: Sequence[float]
    """by these GPUs: the seconds of a task on what is left of the GPU's time; inf where it may have none"""
    room: int | None = None
    """None: a room is made, of `held` or else of the GPUs on which the job gets tasks"""
    held: int | None = None
    """the position of the `Held` of which the room is made, or from which `room` goes on"""
