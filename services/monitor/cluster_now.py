"""What the monitor's answers are computed from."""

from collections.abc import Callable, Mapping
from functools import cached_property

import msgspec

from schemas.ids import JobId, NodeId
from schemas.views import NodeSpeed
from services.monitor.history import History
from shared.domain.ledger import Ledger
from shared.domain.ledger.records import NodeRecord
from shared.domain.metrics import raqlr


class ClusterNow(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """The cluster at the time `now`."""

    ledger: Ledger
    history: History
    now: float
    seq: int
    """stream sequence of the newest fact that is folded"""
    speed: float
    """cluster seconds per second of the wall clock"""
    raqlr_window_s: float
    progress: Mapping[JobId, tuple[float, float]]
    """samples that a running job has done according to the last heartbeat, and the time of that heartbeat"""
    marks: Mapping[JobId, tuple[float, float]]
    """a time in the last hours and the samples that a running job had then done, by heartbeats"""
    speeds: Callable[[], Mapping[NodeId, NodeSpeed]]
    """how fast jobs run on each node of which enough is known"""
    silence_s: Callable[[NodeId, float], float | None]
    """(node, now) → seconds since its last heartbeat; None: it is not watched"""

    @cached_property
    def raqlr(self) -> float | None:
        return raqlr(self.ledger, now=self.now, window_s=self.raqlr_window_s)


def listed(ledger: Ledger) -> list[NodeRecord]:
    """The nodes by id, without removed ones."""
    return [known for _, known in sorted(ledger.nodes.items()) if not known.removed]


def node_state(known: NodeRecord) -> str:
    if not known.alive:
        return "lost"
    return "draining" if known.emptied else "alive"
