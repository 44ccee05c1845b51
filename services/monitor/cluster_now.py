"""The state of the cluster at one moment, from which the monitor answers."""

from collections.abc import Callable, Mapping
from functools import cached_property

import msgspec

from schemas.ids import JobId, NodeId
from services.monitor.history import History
from shared.domain.ledger import Ledger
from shared.domain.ledger.records import NodeRecord
from shared.domain.metrics import raqlr


class ClusterNow(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """The cluster at one moment, from which all answers are made."""

    ledger: Ledger
    history: History
    now: float
    seq: int
    """of the newest fact"""
    speed: float
    raqlr_window_s: float
    progress: Mapping[JobId, tuple[float, float]]
    """samples done by running jobs as last heard, and when that was"""
    silence_s: Callable[[NodeId, float], float | None]

    @cached_property
    def raqlr(self) -> float | None:
        return raqlr(self.ledger, now=self.now, window_s=self.raqlr_window_s)


def node_state(known: NodeRecord) -> str:
    if not known.alive:
        return "lost"
    return "draining" if known.emptied else "alive"
