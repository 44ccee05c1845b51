"""The monitor's decisions: which nodes are lost or have returned, which jobs are complete or have failed.

Only the monitor decides this; the other services read its facts, so that all agree.
"""

from collections.abc import Mapping
from functools import partial
from math import inf

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
from schemas.views import NodeSpeed
from services.monitor.answers import answer
from services.monitor.cluster_now import ClusterNow
from services.monitor.folds import FOLDS, fold
from services.monitor.state import State
from services.monitor.stragglers import node_speeds
from shared.domain.core import Asked, Behind, Effects, Input, Publish, Reply
from shared.domain.ledger.records import JobRecord
from shared.domain.timeouts import Timeouts, overslept

STOPS_RUNNING = (JobPreempted, PlacementRefused, JobCompleted, JobFailed, JobCancelled, JobRejected)
"""facts after which the progress of a job that heartbeats reported is out of date"""


COMPARED_S = 60.0
"""cluster seconds for which the speeds of nodes that were computed are kept"""
COMPARED_REAL_S = 5.0
"""real seconds for which they are, at least: computing them takes tens of milliseconds in a large cluster"""
MARK_S = 3600.0
"""cluster seconds; how fast a running job is follows from the last one to two times as many"""
TROUBLES_MAX = 4
"""troubles of one node that are kept"""
TROUBLES_NAMED = 20
"""troubles of all nodes that are reported: if a shared disk hangs, every node has one, and a report with all
of them would be larger than a NATS message may be"""


class Monitor:
    """`lease_s`: cluster seconds without a heartbeat after which a node is lost.

    `interruptions_max`: interruptions without a new checkpoint in between after which a job fails.
    `raqlr_window_s`: jobs that ended in this window count for RAQLR. `speed`: of the clock.
    """

    def __init__(
        self, *, lease_s: float, interruptions_max: int, raqlr_window_s: float, speed: float
    ) -> None:
        self.state = State()
        self._interruptions_max = interruptions_max
        self._lease_s = lease_s
        self._heartbeats: Timeouts[NodeId] = Timeouts(lease_s)
        self._deadlines: dict[JobId, float] = {}
        """times at which running jobs reach their time limit"""
        self._listens_since = 0.0
        """time from which on facts and heartbeats reach this life as they come"""
        self._speed = speed
        self._raqlr_window_s = raqlr_window_s
        self._samples_by_leader: dict[JobId, dict[NodeId, float]] = {}
        """samples done by each running job, by the node that leads it (or that leads a part of it)"""
        self._progress: dict[JobId, tuple[float, float]] = {}
        self._marks: dict[JobId, tuple[tuple[float, float], tuple[float, float]]] = {}
        """two earlier progresses of each running job, at least `MARK_S` apart once it ran as long"""
        self._speeds: Mapping[NodeId, NodeSpeed] = {}
        self._compared_at = -inf
        self._returning: set[NodeId] = set()
        """lost nodes whose NodeReturned is published and not yet back from the stream"""
        self._troubles: dict[NodeId, tuple[str, ...]] = {}
        """what the last heartbeat of a node reported; nodes without troubles are left out"""

    # ---- the core contract

    def handle(self, message: Input, now: float) -> Effects:
        match message:
            case Event() if type(message) in FOLDS:
                return self._fold(message, now)
            case Heartbeat():
                return self._take_heartbeat(message, now)
            case Asked(ticket, question):
                return [Reply(ticket, answer(question, self.cluster(now)))]
            case Behind():
                self._listen_from(now)
                return []
            case _:
                return []

    def next_wakeup(self) -> float | None:
        silent = self._heartbeats.first()
        if not self._deadlines:
            return silent
        deadline = min(self._deadlines.values())
        return deadline if silent is None else min(deadline, silent)

    def wake(self, now: float) -> Effects:
        if overslept(self.next_wakeup(), self._lease_s, now):
            self._listen_from(now)
            return []
        return [*self._fail_overdue(now), *self._lose_silent(now)]

    def _fail_overdue(self, now: float) -> Effects:
        late = [job_id for job_id, deadline in self._deadlines.items() if deadline <= now]
        for job_id in late:
            del self._deadlines[job_id]
        return [Publish(self._overdue(job_id, now)) for job_id in late if job_id not in self.state.ending]

    def _overdue(self, job_id: JobId, now: float) -> JobFailed:
        record = self.state.ledger.jobs[job_id]
        assert record.present is not None, "a job has a deadline only while it runs"
        reason = f"its time limit of {record.spec.time_limit_s:g} s of running is over"
        return JobFailed(at=now, job_id=job_id, placement_id=record.present.placement_id, reason=reason)

    def _lose_silent(self, now: float) -> Effects:
        return [Publish(NodeLost(at=now, node_id=node_id)) for node_id in self._heartbeats.take_late(now)]

    def resume(self, now: float) -> Effects:
        self._listen_from(now)
        for record in self.state.ledger.jobs.values():
            self._set_deadline(record)
        return [Publish(fact) for fact in self.state.ending.values()]

    def cluster(self, now: float) -> ClusterNow:
        """The cluster as answers and metrics see it."""
        return ClusterNow(
            ledger=self.state.ledger,
            history=self.state.history,
            now=now,
            seq=self.state.seq,
            speed=self._speed,
            raqlr_window_s=self._raqlr_window_s,
            progress=self._progress,
            marks={job_id: earlier for job_id, (earlier, _) in self._marks.items()},
            speeds=partial(self._node_speeds, now),
            silence_s=self._heartbeats.age_s,
        )

    def _node_speeds(self, now: float) -> Mapping[NodeId, NodeSpeed]:
        kept_s = max(COMPARED_S, COMPARED_REAL_S * self._speed)
        if not 0 <= now - self._compared_at < kept_s:
            self._speeds, self._compared_at = node_speeds(self.cluster(now)), now
        return self._speeds

    def troubles(self) -> list[str]:
        """What jobs wait for or lose because of their nodes, a line for each trouble of a heartbeat."""
        named = [f"{node_id}: {one}" for node_id, some in sorted(self._troubles.items()) for one in some]
        more = [f"and {len(named) - TROUBLES_NAMED} more"] if len(named) > TROUBLES_NAMED else []
        return [*named[:TROUBLES_NAMED], *more]

    def _listen_from(self, now: float) -> None:
        """Give each node a full lease, and each job that runs a lease for its end to become known."""
        self._listens_since = now
        nodes = self.state.ledger.nodes.items()
        self._heartbeats.restart((node_id for node_id, known in nodes if known.alive), now)
        self._returning.clear()
        for job_id in self._deadlines:
            self._set_deadline(self.state.ledger.jobs[job_id])

    # ---- heartbeats

    def _take_heartbeat(self, beat: Heartbeat, now: float) -> Effects:
        known = self.state.ledger.nodes.get(beat.node_id)
        if known is None or known.life != beat.life:
            return []  # the heartbeat came before its NodeJoined, or from an agent that was replaced
        if not known.alive:
            return self._publish_return(beat.node_id, now)
        self._heartbeats.begin(beat.node_id, now)
        self._troubles.pop(beat.node_id, None)
        if beat.troubles:
            self._troubles[beat.node_id] = beat.troubles[:TROUBLES_MAX]
        for job_id, samples_done in beat.progress.items():
            record = self.state.ledger.jobs.get(job_id)
            if record is not None and record.present is not None:
                heard = self._samples_by_leader.setdefault(job_id, {})
                heard[beat.node_id] = samples_done
                samples = record.tally.merged(record.spec.samples, heard)
                self._progress[job_id] = samples, now
                self._mark(job_id, now, samples)
        return []

    def _mark(self, job_id: JobId, now: float, samples: float) -> None:
        earlier, later = self._marks.get(job_id, ((now, samples), (now, samples)))
        if now - later[0] >= MARK_S:
            earlier, later = later, (now, samples)
        self._marks[job_id] = earlier, later

    def _publish_return(self, node_id: NodeId, now: float) -> Effects:
        if node_id in self._returning:
            return []
        self._returning.add(node_id)
        return [Publish(NodeReturned(at=now, node_id=node_id))]

    # ---- facts

    def _fold(self, fact: Event, now: float) -> Effects:
        ends = fold(self.state, fact, self._interruptions_max)
        if isinstance(fact, NodeEvent):
            self._track_node(fact, now)
        elif isinstance(fact, STOPS_RUNNING):
            self._forget_stopped(fact.job_id)
        elif isinstance(fact, JobStarted):
            self._set_deadline(self.state.ledger.jobs.get(fact.job_id))
        return [Publish(end) for end in ends] if ends else []

    def _track_node(self, fact: NodeEvent, now: float) -> None:
        self._returning.discard(fact.node_id)
        if isinstance(fact, NodeJoined | NodeReturned):
            self._heartbeats.begin(fact.node_id, now)
        elif isinstance(fact, NodeLost):
            self._heartbeats.drop(fact.node_id)
            self._troubles.pop(fact.node_id, None)

    def _forget_stopped(self, job_id: JobId) -> None:
        record = self.state.ledger.jobs.get(job_id)
        if record is None or record.present is None:
            self._progress.pop(job_id, None)
            self._marks.pop(job_id, None)
            self._samples_by_leader.pop(job_id, None)
            self._deadlines.pop(job_id, None)

    def _set_deadline(self, record: JobRecord | None) -> None:
        limit_s = record.spec.time_limit_s if record else None
        if record is None or record.present is None or limit_s is None:
            return
        started_at = record.present.started_at
        deadline = started_at + max(limit_s - record.run_s, 0.0)
        if started_at < self._listens_since:
            deadline = max(deadline, self._listens_since + self._lease_s)
        self._deadlines[record.job_id] = deadline
