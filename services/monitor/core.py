"""The monitor's decisions: which nodes are lost or back, which jobs are complete or failed.

It alone says so, so that everybody else reads one answer from the stream.
"""

import msgspec

from schemas.base import Event
from schemas.events import (
    JobCancelled,
    JobCompleted,
    JobFailed,
    JobPreempted,
    JobRejected,
    NodeEvent,
    NodeJoined,
    NodeLost,
    NodeReturned,
    Outcome,
    PlacementRefused,
    WorkerStopped,
)
from schemas.ids import JobId, NodeId, PlacementId
from schemas.samples import Heartbeat
from services.monitor.answers import Sight, answer
from services.monitor.leases import Leases
from services.monitor.state import State
from shared.domain.core import Asked, Effects, Input, Publish, Reply
from shared.domain.ledger import fold, forget
from shared.domain.ledger.records import JobRecord

JOBS_KEPT = 10_000
"""ended jobs that figures and questions can still be about"""
PLANS_KEPT = 10_000


class Deaf(msgspec.Struct, frozen=True):
    """An input: the bus is away, so silence says nothing about the nodes."""


class Monitor:
    """`lease_s`: cluster seconds of silence after which a node is lost; `speed` of its clock, to be told."""

    def __init__(self, *, lease_s: float, raqlr_window_s: float, speed: float) -> None:
        self.state = State()
        self._leases = Leases(lease_s)
        self._speed = speed
        self._raqlr_window_s = raqlr_window_s
        self._progress: dict[JobId, float] = {}
        self._returning: set[NodeId] = set()

    # ---- the core contract

    def handle(self, message: Input, now: float) -> Effects:
        match message:
            case Heartbeat():
                return self._heartbeat(message, now)
            case Asked(ticket, question):
                return [Reply(ticket, answer(question, self.sight(now)))]
            case Deaf():
                self._renew_all(now)
                return []
            case Event():
                return self._fact(message, now)
            case _:
                return []

    def next_wakeup(self) -> float | None:
        return self._leases.first_end()

    def wake(self, now: float) -> Effects:
        if self._leases.slept_through(now):
            self._renew_all(now)
            return []
        return [Publish(NodeLost(at=now, node_id=node_id)) for node_id in self._leases.expired(now)]

    def resume(self, now: float) -> Effects:
        self._renew_all(now)
        return [Publish(fact) for fact in self.state.ending.values()]

    def sight(self, now: float) -> Sight:
        """Everything an answer is made from."""
        return Sight(
            ledger=self.state.ledger,
            now=now,
            speed=self._speed,
            raqlr_window_s=self._raqlr_window_s,
            progress=self._progress,
            silence_s=self._leases.silence_s,
        )

    # ---- heartbeats

    def _heartbeat(self, beat: Heartbeat, now: float) -> Effects:
        known = self.state.ledger.nodes.get(beat.node_id)
        if known is None or known.life != beat.life:
            return []  # before its NodeJoined, or from a life that is over
        if not known.alive:
            return self._return(beat.node_id, now)
        self._leases.renew(beat.node_id, now)
        for job_id, samples_done in beat.progress.items():
            record = self.state.ledger.jobs.get(job_id)
            if record is not None and record.present is not None:
                self._progress[job_id] = samples_done
        return []

    def _return(self, node_id: NodeId, now: float) -> Effects:
        if node_id in self._returning:
            return []
        self._returning.add(node_id)
        return [Publish(NodeReturned(at=now, node_id=node_id))]

    def _renew_all(self, now: float) -> None:
        nodes = self.state.ledger.nodes.items()
        self._leases.renew_all((node_id for node_id, known in nodes if known.alive), now)
        self._returning.clear()

    # ---- facts

    def _fact(self, fact: Event, now: float) -> Effects:
        fold(self.state.ledger, fact)
        match fact:
            case NodeEvent():
                self._node(fact, now)
            case WorkerStopped():
                return self._worker_stopped(fact)
            case JobPreempted() | PlacementRefused():
                self._settle(fact.job_id)
            case JobCompleted() | JobFailed() | JobCancelled() | JobRejected():
                self._settle(fact.job_id)
                forget(self.state.ledger, keep_jobs=JOBS_KEPT, keep_plans=PLANS_KEPT)
            case _:
                pass
        return []

    def _node(self, fact: NodeEvent, now: float) -> None:
        self._returning.discard(fact.node_id)
        if isinstance(fact, NodeJoined | NodeReturned):
            self._leases.renew(fact.node_id, now)
        elif isinstance(fact, NodeLost):
            self._leases.drop(fact.node_id)

    def _worker_stopped(self, fact: WorkerStopped) -> Effects:
        record = self.state.ledger.jobs.get(fact.job_id)
        end = _end_of(record, fact) if record is not None and not record.ended else None
        if end is None or fact.job_id in self.state.ending:
            return []
        self.state.ending[fact.job_id] = end
        return [Publish(end)]

    def _settle(self, job_id: JobId) -> None:
        """Let go of what only a run that goes on needs, and of an end that came true or never will."""
        record = self.state.ledger.jobs.get(job_id)
        if record is None or record.present is None:
            self._progress.pop(job_id, None)
        if record is not None and record.ended:
            record.runs = []
        end = self.state.ending.get(job_id)
        if end is not None and (record is None or record.ended or not _is_present(record, end.placement_id)):
            del self.state.ending[job_id]


def _is_present(record: JobRecord, placement_id: PlacementId) -> bool:
    """Whether the job trains on the placement, or comes up on it."""
    trains = record.present is not None and record.present.placement_id == placement_id
    return trains or record.ordered == placement_id


def _end_of(record: JobRecord, fact: WorkerStopped) -> JobCompleted | JobFailed | None:
    """What a worker's end means for its job; nothing, if it is a measurement's or of an earlier placement.

    One failed worker fails the gang, even while the gang is coming up.
    """
    run = record.present
    trains = run is not None and run.placement_id == fact.placement_id
    if fact.outcome is Outcome.COMPLETED and fact.leads and trains:
        return JobCompleted(
            at=fact.at,
            job_id=fact.job_id,
            placement_id=fact.placement_id,
            samples_done=fact.samples_done,
        )
    if fact.outcome is Outcome.FAILED and _is_present(record, fact.placement_id):
        reason = fact.reason or f"a process on {fact.node_id} failed"
        return JobFailed(at=fact.at, job_id=fact.job_id, placement_id=fact.placement_id, reason=reason)
    return None
