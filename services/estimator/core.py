"""The estimator's decisions: what to write when, and whom to answer with what.

Observations gather in memory until there are enough of them or some time has passed: they are lossy by
nature, and single writes are dear.
"""

import math

import msgspec

from schemas.accuracy import Execution
from schemas.base import Event
from schemas.cluster import Node
from schemas.events import (
    JobEvent,
    JobProfiled,
    JobQueued,
    JobSubmitted,
    NodeJoined,
    NodeLost,
    NodeReturned,
    TimeModules,
)
from schemas.ids import Fingerprint, GpuType, JobId, NodeId
from schemas.jobs import JobSpec
from schemas.questions import (
    Calibrate,
    EstimateQuestion,
    ExportStore,
    ImportStore,
    Refused,
    ShowAccuracy,
)
from schemas.samples import ThroughputObserved
from services.estimator.tasks import (
    Answer,
    Answered,
    Learn,
    Learned,
    Log,
    Look,
    Measure,
    Record,
    Recorded,
    Refine,
)
from shared.domain.accuracy import Executions, fold
from shared.domain.cluster import gpus_by_type
from shared.domain.core import Asked, Effects, Input, Publish, Reply, Work, WorkFailed
from shared.domain.states import ENDED, MOVES, IllegalMove, JobState, next_state

BATCH = 100
"""observations written at once"""
LOGGED = 100
"""executions remembered until the next start"""
BUFFER = 10_000
"""observations held while the store cannot be written; the oldest go first"""


class Job(msgspec.Struct, kw_only=True):
    """An unfinished job."""

    spec: JobSpec
    modules: dict[GpuType, TimeModules] = {}
    """empty: not profiled yet"""
    state: JobState = JobState.SUBMITTED


class Held(msgspec.Struct, kw_only=True):
    node: Node
    alive: bool = True


class State(msgspec.Struct, kw_only=True):
    jobs: dict[JobId, Job] = {}
    nodes: dict[NodeId, Held] = {}
    executions: Executions = msgspec.field(default_factory=Executions)
    logged: list[Execution] = []
    """the last ones, for a store that did not get them"""


class Estimator:
    def __init__(self, *, flush_s: float, calibrates: bool = False) -> None:
        """`flush_s`: how long an observation, or work that failed, waits, cluster seconds.

        `calibrates`: whether the paths of a type that joins are measured unasked.
        """
        self.state = State()
        self._flush_s = flush_s
        self._calibrates = calibrates
        self._measured: set[GpuType] = set()
        self._observed: list[ThroughputObserved] = []
        self._ended: list[Execution] = []
        self._again: dict[JobId, None] = {}
        self._due: float | None = None
        self._refused = False
        """the last write failed, so the next one waits for its time"""

    def handle(self, message: Input, now: float) -> Effects:
        effects: Effects = []
        match message:
            case Event():
                effects = self._learn_fact(message, now)
                self._log(message, now)
            case ThroughputObserved():
                effects = self._observe(message, now)
            case Asked():
                effects = self._asked(message, now)
            case Answered(ticket, answer):
                effects = [] if ticket is None else [Reply(ticket, answer)]
            case Recorded(due):
                effects = [effect for key in due for effect in self._refine(*key)]
            case Learned():
                effects = self._learned(message, now)
            case WorkFailed(task, reason):
                effects = self._failed(task, reason, now)
            case _:
                pass
        return effects

    def next_wakeup(self) -> float | None:
        return self._due

    def wake(self, now: float) -> Effects:
        if self._due is None or now < self._due:
            return []
        self._due, self._refused = None, False
        again, self._again = list(self._again), {}
        taught = [effect for job_id in again for effect in self._teach(job_id)]
        return [*self._flush(), *taught, *self._calibrate(now)]

    def resume(self, now: float) -> Effects:  # noqa: ARG002 - the contract of a core
        """Write again what the store may lack: every open job's modules, and the last executions."""
        taught = [effect for job_id in self.state.jobs for effect in self._teach(job_id)]
        return [*taught, *([Work(Log(tuple(self.state.logged)))] if self.state.logged else [])]

    # ---- facts

    def _learn_fact(self, fact: Event, now: float) -> Effects:
        nodes = self.state.nodes
        match fact:
            case JobEvent() if type(fact) in MOVES:
                return self._move(fact)
            case NodeJoined():
                nodes[fact.node_id] = Held(node=fact.node)
                if self._calibrates and fact.node.gpu_type not in self._measured:
                    self._wait(now)
            case NodeLost() | NodeReturned() if fact.node_id in nodes:
                nodes[fact.node_id].alive = isinstance(fact, NodeReturned)
            case _:
                pass
        return []

    def _move(self, fact: JobEvent) -> Effects:
        jobs, job_id = self.state.jobs, fact.job_id
        try:
            after = next_state(jobs[job_id].state if job_id in jobs else None, fact)
        except IllegalMove:
            return []
        if after in ENDED:
            del jobs[job_id]
        elif isinstance(fact, JobSubmitted):
            jobs[job_id] = Job(spec=fact.spec)
        else:
            jobs[job_id].state = after
        if isinstance(fact, JobProfiled):
            jobs[job_id].modules = fact.modules
            return self._teach(job_id)
        return []

    def _teach(self, job_id: JobId) -> Effects:
        job = self.state.jobs.get(job_id)
        if job is None or not job.modules:
            return []
        nodes = [held.node for _, held in sorted(self.state.nodes.items(), reverse=True)]
        task = Learn(
            job_id=job_id,
            spec=job.spec,
            modules=job.modules,
            nodes={node.gpu_type: node for node in nodes},
            gpus=gpus_by_type(self._alive()),
        )
        return [Work(task)]

    def _learned(self, learned: Learned, now: float) -> Effects:
        job = self.state.jobs.get(learned.job_id)
        if job is None or job.state is not JobState.PROFILED:
            return []
        queued = JobQueued(
            at=now,
            job_id=learned.job_id,
            age_s=learned.age_s,
            sensitivity=learned.sensitivity,
            single_gpu=learned.single_gpu,
        )
        return [Publish(queued)]

    def _log(self, fact: Event, now: float) -> None:
        """An execution that the fact ends goes to the prediction log, with others: single writes are dear."""
        execution = fold(self.state.executions, fact)
        if execution is not None:
            self.state.logged = [*self.state.logged, execution][-LOGGED:]
            self._ended.append(execution)
            self._wait(now)

    def _calibrate(self, now: float) -> Effects:
        """Have the types measured that have joined since the last time."""
        alive = self._alive()
        new = {node.gpu_type for node in alive} - self._measured if self._calibrates else set()
        self._measured |= new
        nodes = tuple(node for node in alive if node.gpu_type in new)
        return [Work(Measure(ticket=None, nodes=nodes, now=now))] if nodes else []

    def _refine(self, fingerprint: Fingerprint, gpu_type: GpuType) -> Effects:
        nodes = [held.node for _, held in sorted(self.state.nodes.items()) if held.node.gpu_type == gpu_type]
        return [Work(Refine(fingerprint=fingerprint, node=nodes[0]))] if nodes else []

    def _alive(self) -> list[Node]:
        return [held.node for _, held in sorted(self.state.nodes.items()) if held.alive]

    # ---- samples

    def _observe(self, seen: ThroughputObserved, now: float) -> Effects:
        if not (0 < seen.throughput < math.inf and 0 < seen.seconds < math.inf and seen.configuration):
            return []
        self._observed.append(seen)
        if len(self._observed) >= BATCH and not self._refused:
            return self._flush()
        self._wait(now)
        return []

    def _flush(self) -> Effects:
        batch, self._observed = self._observed, []
        ended, self._ended = self._ended, []
        record: Effects = [Work(Record(tuple(batch)))] if batch else []
        return [*record, *([Work(Log(tuple(ended)))] if ended else [])]

    def _wait(self, now: float) -> None:
        if self._due is None:
            self._due = now + self._flush_s

    # ---- questions and failures

    def _asked(self, asked: Asked, now: float) -> Effects:
        match asked.question:
            case EstimateQuestion() as question:
                return [Work(self._answer(asked.ticket, question))]
            case Calibrate(measure=True):
                return [Work(Measure(ticket=asked.ticket, nodes=tuple(self._alive()), now=now))]
            case ShowAccuracy() | Calibrate() | ExportStore() | ImportStore() as question:
                return [*self._flush(), Work(Look(asked.ticket, question))]
            case _:
                return [Reply(asked.ticket, Refused(reason="a question for somebody else"))]

    def _answer(self, ticket: int, question: EstimateQuestion) -> Answer:
        held = [self.state.nodes.get(node_id) for node_id in question.nodes]
        given = question.workloads or ("",) * len(question.jobs)
        return Answer(
            ticket=ticket,
            question=question,
            fingerprints=tuple(map(self._fingerprint, question.jobs, given)),
            nodes=tuple(one.node if one else None for one in held),
        )

    def _fingerprint(self, job_id: JobId, given: str) -> Fingerprint | None:
        job = self.state.jobs.get(job_id)
        return Fingerprint(given) if given else job.spec.workload.fingerprint if job else None

    def _failed(self, task: msgspec.Struct, reason: str, now: float) -> Effects:
        match task:
            case Answer(ticket=ticket) | Look(ticket=ticket) | Measure(ticket=int() as ticket):
                return [Reply(ticket, Refused(reason=reason))]
            case Log(executions):
                self._ended = [*executions, *self._ended][-BUFFER:]
                self._wait(now)
            case Learn(job_id=job_id):
                self._again[job_id] = None
                self._wait(now)
            case Record(observations):
                self._observed = [*observations, *self._observed][-BUFFER:]
                self._refused = True
                self._wait(now)
            case _:
                pass
        return []
