"""What the monitor knows from the facts."""

import msgspec

from schemas.events import JobCompleted, JobFailed
from schemas.ids import JobId
from services.monitor.history import History
from shared.domain.ledger import Ledger

End = JobCompleted | JobFailed


class State(msgspec.Struct, kw_only=True):
    ledger: Ledger = msgspec.field(default_factory=Ledger)
    ending: dict[JobId, End] = {}
    """published, and not yet back from the stream"""
    early: dict[JobId, JobCompleted] = {}
    """of jobs whose work was done before anybody published that they had started"""
    history: History = msgspec.field(default_factory=History)
    seq: int = 0
    """of the newest fact"""
