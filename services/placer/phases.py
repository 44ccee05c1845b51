"""The life of a placement, as one table. What exists in one phase only lives in that phase's struct.

    waiting → coming up → training → ending → (gone)
    waiting → measuring → ending → (gone)

Every phase may end.
"""

from enum import StrEnum

import msgspec

from schemas.events import PreemptReason
from schemas.ids import NodeId
from schemas.plans import Cause


class WorkerState(StrEnum):
    """One placement on one of its nodes. ordered → up → stopping → (gone: the entry is removed)."""

    ORDERED = "ordered"
    UP = "up"
    STOPPING = "stopping"


Workers = dict[NodeId, WorkerState]


class Waiting(msgspec.Struct, tag=True):
    """For its GPUs, or for the job's last placement to end: nothing is ordered, nothing is there."""


class ComingUp(msgspec.Struct, tag=True, kw_only=True):
    """Starts are ordered on every node."""

    ordered_at: float
    workers: Workers
    meetings: dict[NodeId, str] = {}
    """`host:port` where processes will meet, by the node that leads them; those that have to, once known"""


class Training(msgspec.Struct, tag=True, kw_only=True):
    """Every worker was up at once, and JobStarted is published."""

    workers: Workers


class Measuring(msgspec.Struct, tag=True, kw_only=True):
    """A profile run is ordered or goes on; the profiler limits its time."""

    workers: Workers


class Owed(StrEnum):
    """The fact to publish of a placement once its last worker is gone."""

    PREEMPTION = "preemption"
    """its job trained"""
    REFUSAL = "refusal"
    """its job never did"""
    NOTHING = "nothing"
    """the job ended, or it was a measurement"""


class Ending(msgspec.Struct, tag=True, kw_only=True):
    """Its remaining workers are to stop."""

    why: PreemptReason
    owed: Owed
    workers: Workers
    cause: Cause | None = None


Phase = Waiting | ComingUp | Training | Measuring | Ending

MOVES: dict[type[Phase], frozenset[type[Phase]]] = {
    Waiting: frozenset({ComingUp, Measuring, Ending}),
    ComingUp: frozenset({Training, Ending}),
    Training: frozenset({Ending}),
    Measuring: frozenset({Ending}),
    Ending: frozenset(),
}
"""phase → those that may follow it"""


class IllegalMove(RuntimeError):
    """A phase that cannot follow the present one: a programmer's error."""


def check_move(before: Phase, after: Phase) -> None:
    """Raises IllegalMove where the table has no such move."""
    if type(after) not in MOVES[type(before)]:
        raise IllegalMove(f"{type(before).__name__} → {type(after).__name__}")


def workers_in(phase: Phase) -> Workers:
    """The workers that were ordered and are not known to be gone: the phase's own dict, or an empty one."""
    return {} if isinstance(phase, Waiting) else phase.workers
