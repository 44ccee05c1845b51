"""The phases of a placement, and a table of the moves between them. Data of one phase is in its struct.

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
    """A worker of a placement: ordered → up → stopping → (gone: the entry is removed)."""

    ORDERED = "ordered"
    UP = "up"
    STOPPING = "stopping"


Workers = dict[NodeId, WorkerState]


class Waiting(msgspec.Struct, tag=True):
    """Nothing is ordered: it waits for its GPUs, or for the job's last placement to end."""


class ComingUp(msgspec.Struct, tag=True, kw_only=True):
    """Starts are ordered on every node."""

    workers: Workers
    meetings: dict[NodeId, str] = {}
    """by leading node: `host:port` at which its processes meet, once known; no entry if they need not meet"""


class Training(msgspec.Struct, tag=True, kw_only=True):
    """All workers were up at one time, and JobStarted is published."""

    workers: Workers


class Measuring(msgspec.Struct, tag=True, kw_only=True):
    """A measurement is ordered or under way; the profiler limits its time."""

    workers: Workers


class Owed(StrEnum):
    """The fact to publish about a placement once its last worker is gone."""

    PREEMPTION = "preemption"
    """`JobPreempted`: the job trained"""
    REFUSAL = "refusal"
    """`PlacementRefused`: the job never trained there"""
    NOTHING = "nothing"
    """no fact: the job ended, or it was a measurement"""


class Ending(msgspec.Struct, tag=True, kw_only=True):
    """The placement's remaining workers have to stop."""

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
    """The phase cannot follow the present one: an error in the program."""


def check_move(before: Phase, after: Phase) -> None:
    """Raises IllegalMove where the table has no such move."""
    if type(after) not in MOVES[type(before)]:
        raise IllegalMove(f"{type(before).__name__} → {type(after).__name__}")


def workers_in(phase: Phase) -> Workers:
    """The workers that were ordered and are not known to be gone: the phase's own dict, or an empty one."""
    return {} if isinstance(phase, Waiting) else phase.workers
