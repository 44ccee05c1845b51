"""The monitor's decisions: which nodes are lost or back, which jobs are complete or failed.

No other service decides this, so that all read one answer from the stream.
"""

import msgspec

from schemas.base import Event
from schemas.events import (
    JobCancelled,
    JobCompleted,
    JobFailed,
    JobPreempted,
    JobRejected,
    JobStarted,
    NodeEvent,
    NodeJoined,
    NodeLost,
    NodeReturned,
    PlacementRefused,
)
from schemas.ids import JobId, NodeId
from schemas.samples import Heartbeat
from services.monitor.answers import answer
from services.monitor.cluster_now import ClusterNow
from services.monitor.folds import FOLDS, fold
from services.monitor.heartbeats import Heartbeats
from services.monitor.state import State
from shared.domain.core import Asked, Effects, Input, Publish, Reply
from shared.domain.ledger.records import JobRecord

STOPS_RUNNING = (JobPreempted, PlacementRefused, JobCompleted, JobFailed, JobCancelled, JobRejected)
"""facts after which a heartbeat's progress of the job is out of date"""


class BusAway(msgspec.Struct, frozen=True):
    """An input: the bus is away, so silence says nothing about the nodes."""


TROUBLES_MAX = 4
"""of a node"""
TROUBLES_NAMED = 20
"""of all nodes; a disk that hangs below them all would fill the monitor's report beyond what NATS takes"""


class Monitor:
    """`lease_s`: cluster seconds of silence after which a node is lost. `speed`: of the clock, to report.

    `interruptions_max`: of a job, without a new checkpoint in between; by the last of them it has failed.
    """

    def __init__(
        self, *, lease_s: float, interruptions_max: int, raqlr_window_s: float, speed: float
    ) -> None:
        self.state = State()
        self._interruptions_max = interruptions_max
        self._deadlines: dict[JobId, float] = {}
        """when running jobs have run as long as they may"""
        self._silence = Heartbeats(lease_s)
        self._speed = speed
        self._raqlr_window_s = raqlr_window_s
        self._heard: dict[JobId, dict[NodeId, float]] = {}
        """samples of running jobs, by the nodes that lead them"""
        self._progress: dict[JobId, tuple[float, float]] = {}
        self._returning: set[NodeId] = set()
        self._troubles: dict[NodeId, tuple[str, ...]] = {}
        """of nodes that are heard from and have any"""

    # ---- the core contract

    def handle(self, message: Input, now: float) -> Effects:
        match message:
            case Event() if type(message) in FOLDS:
                return self._learn(message, now)
            case Heartbeat():
                return self._heartbeat(message, now)
            case Asked(ticket, question):
                return [Reply(ticket, answer(question, self.cluster(now)))]
            case BusAway():
                self._hear_all(now)
                return []
            case _:
                return []

    def next_wakeup(self) -> float | None:
        silent = self._silence.first_end()
        if not self._deadlines:
            return silent
        deadline = min(self._deadlines.values())
        return deadline if silent is None else min(deadline, silent)

    def wake(self, now: float) -> Effects:
        return [*self._out_of_time(now), *self._out_of_reach(now)]

    def _out_of_time(self, now: float) -> Effects:
        late = [job_id for job_id, deadline in self._deadlines.items() if deadline <= now]
        return [Publish(self._time_is_up(job_id, now)) for job_id in late]

    def _time_is_up(self, job_id: JobId, now: float) -> JobFailed:
        del self._deadlines[job_id]
        record = self.state.ledger.jobs[job_id]
        assert record.present is not None, "only a job that runs has a deadline"
        reason = f"its time limit of {record.spec.time_limit_s:g} s of running is over"
        return JobFailed(at=now, job_id=job_id, placement_id=record.present.placement_id, reason=reason)

    def _out_of_reach(self, now: float) -> Effects:
        if self._silence.slept_through(now):
            self._hear_all(now)
            return []
        return [Publish(NodeLost(at=now, node_id=node_id)) for node_id in self._silence.too_long(now)]

    def resume(self, now: float) -> Effects:
        self._hear_all(now)
        for record in self.state.ledger.jobs.values():
            self._set_deadline(record)
        return [Publish(fact) for fact in self.state.ending.values()]

    def cluster(self, now: float) -> ClusterNow:
        """Everything an answer is made from."""
        return ClusterNow(
            ledger=self.state.ledger,
            history=self.state.history,
            now=now,
            seq=self.state.seq,
            speed=self._speed,
            raqlr_window_s=self._raqlr_window_s,
            progress=self._progress,
            silence_s=self._silence.of,
        )

    def troubles(self) -> list[str]:
        """What jobs wait for on the nodes, in words."""
        named = [f"{node_id}: {one}" for node_id, some in sorted(self._troubles.items()) for one in some]
        more = [f"and {len(named) - TROUBLES_NAMED} more"] if len(named) > TROUBLES_NAMED else []
        return [*named[:TROUBLES_NAMED], *more]

    # ---- heartbeats

    def _heartbeat(self, beat: Heartbeat, now: float) -> Effects:
        known = self.state.ledger.nodes.get(beat.node_id)
        if known is None or known.life != beat.life:
            return []  # before its NodeJoined, or from a life that is over
        if not known.alive:
            return self._return(beat.node_id, now)
        self._silence.heard(beat.node_id, now)
        self._troubles.pop(beat.node_id, None)
        if beat.troubles:
            self._troubles[beat.node_id] = beat.troubles[:TROUBLES_MAX]
        for job_id, samples_done in beat.progress.items():
            record = self.state.ledger.jobs.get(job_id)
            if record is not None and record.present is not None:
                heard = self._heard.setdefault(job_id, {})
                heard[beat.node_id] = samples_done
                self._progress[job_id] = record.tally.merged(record.spec.samples, heard), now
        return []

    def _return(self, node_id: NodeId, now: float) -> Effects:
        if node_id in self._returning:
            return []
        self._returning.add(node_id)
        return [Publish(NodeReturned(at=now, node_id=node_id))]

    def _hear_all(self, now: float) -> None:
        nodes = self.state.ledger.nodes.items()
        self._silence.begin((node_id for node_id, known in nodes if known.alive), now)
        self._returning.clear()

    # ---- facts

    def _learn(self, fact: Event, now: float) -> Effects:
        ends = fold(self.state, fact, self._interruptions_max)
        if isinstance(fact, NodeEvent):
            self._node(fact, now)
        elif isinstance(fact, STOPS_RUNNING):
            self._stopped(fact.job_id)
        elif isinstance(fact, JobStarted):
            self._set_deadline(self.state.ledger.jobs.get(fact.job_id))
        return [Publish(end) for end in ends] if ends else []

    def _node(self, fact: NodeEvent, now: float) -> None:
        self._returning.discard(fact.node_id)
        if isinstance(fact, NodeJoined | NodeReturned):
            self._silence.heard(fact.node_id, now)
        elif isinstance(fact, NodeLost):
            self._silence.drop(fact.node_id)
            self._troubles.pop(fact.node_id, None)

    def _stopped(self, job_id: JobId) -> None:
        record = self.state.ledger.jobs.get(job_id)
        if record is None or record.present is None:
            self._progress.pop(job_id, None)
            self._heard.pop(job_id, None)
            self._deadlines.pop(job_id, None)

    def _set_deadline(self, record: JobRecord | None) -> None:
        limit_s = record.spec.time_limit_s if record else None
        if record is None or record.present is None or limit_s is None:
            return
        self._deadlines[record.job_id] = record.present.started_at + limit_s - record.run_s
