"""What the monitor knows from facts; snapshots hold it."""

import msgspec

from schemas.events import JobCompleted, JobFailed
from schemas.ids import JobId
from services.monitor.history import History
from shared.domain.ledger import Ledger

End = JobCompleted | JobFailed


class State(msgspec.Struct, kw_only=True):
    ledger: Ledger = msgspec.field(default_factory=Ledger)
    ending: dict[JobId, End] = {}
    """ends of jobs that the monitor has published and that are not yet back from the stream"""
    early: dict[JobId, JobCompleted] = {}
    """completions of jobs whose JobStarted has not come yet; published once it has"""
    history: History = msgspec.field(default_factory=History)
    seq: int = 0
    """stream sequence of the newest fact"""
