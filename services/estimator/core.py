"""The estimator's decisions: what to write when, and whom to answer with what.

Observations gather in memory until there are enough of them or some time has passed: they are lossy by
nature, and single writes are dear.
"""

import math

import msgspec

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
from schemas.ids import GpuType, JobId, NodeId
from schemas.jobs import JobSpec
from schemas.questions import EstimateQuestion, Refused
from schemas.samples import ThroughputObserved
from services.estimator.tasks import Answer, Answered, Learn, Learned, Record
from shared.domain.cluster import gpus_by_type
from shared.domain.core import Asked, Effects, Input, Publish, Reply, Work, WorkFailed
from shared.domain.states import ENDED, MOVES, IllegalMove, JobState, next_state

BATCH = 100
"""observations written at once"""
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


class Estimator:
    def __init__(self, *, flush_s: float) -> None:
        """`flush_s`: how long an observation, or work that failed, waits, cluster seconds."""
        self.state = State()
        self._flush_s = flush_s
        self._observed: list[ThroughputObserved] = []
        self._again: dict[JobId, None] = {}
        self._due: float | None = None
        self._refused = False
        """the last write failed, so the next one waits for its time"""

    def handle(self, message: Input, now: float) -> Effects:
        effects: Effects = []
        match message:
            case Event():
                effects = self._learn_fact(message)
            case ThroughputObserved():
                effects = self._observe(message, now)
            case Asked(ticket, EstimateQuestion() as question):
                effects = [Work(self._answer(ticket, question))]
            case Asked(ticket, _):
                effects = [Reply(ticket, Refused(reason="the estimator answers estimate questions only"))]
            case Answered(ticket, answer):
                effects = [Reply(ticket, answer)]
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
        return [*self._flush(), *(effect for job_id in again for effect in self._teach(job_id))]

    def resume(self, now: float) -> Effects:  # noqa: ARG002 - the contract of a core
        """Write every open job's modules again: the store may be younger than the state."""
        return [effect for job_id in self.state.jobs for effect in self._teach(job_id)]

    # ---- facts

    def _learn_fact(self, fact: Event) -> Effects:
        nodes = self.state.nodes
        match fact:
            case JobEvent() if type(fact) in MOVES:
                return self._move(fact)
            case NodeJoined():
                nodes[fact.node_id] = Held(node=fact.node)
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
        alive = [held.node for held in self.state.nodes.values() if held.alive]
        task = Learn(
            job_id=job_id,
            spec=job.spec,
            modules=job.modules,
            nodes={node.gpu_type: node for node in nodes},
            gpus=gpus_by_type(alive),
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
        return [Work(Record(tuple(batch)))] if batch else []

    def _wait(self, now: float) -> None:
        if self._due is None:
            self._due = now + self._flush_s

    # ---- questions and failures

    def _answer(self, ticket: int, question: EstimateQuestion) -> Answer:
        jobs, nodes = self.state.jobs, self.state.nodes
        known = [jobs.get(job_id) for job_id in question.jobs]
        held = [nodes.get(node_id) for node_id in question.nodes]
        return Answer(
            ticket=ticket,
            question=question,
            fingerprints=tuple(job.spec.workload.fingerprint if job else None for job in known),
            nodes=tuple(one.node if one else None for one in held),
        )

    def _failed(self, task: msgspec.Struct, reason: str, now: float) -> Effects:
        match task:
            case Answer(ticket=ticket):
                return [Reply(ticket, Refused(reason=reason))]
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
