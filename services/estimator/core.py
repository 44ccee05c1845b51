"""The estimator's decisions: when to write what to the store, and how to answer questions.

Observations are collected in memory until there are `BATCH` of them or `flush_s` has passed: single writes
are expensive, and samples may be lost anyway.
"""

from math import inf

import msgspec

from schemas.accuracy import Execution
from schemas.base import Event
from schemas.calibration import BandwidthRow, Calibration
from schemas.cluster import Node
from schemas.events import (
    JobProfiled,
    JobQueued,
    JobTypeEstimated,
    JobTypeProfiled,
    NodeEvent,
    NodeJoined,
)
from schemas.ids import Fingerprint, GpuType, JobId, NodeId
from schemas.questions import (
    Calibrate,
    EstimateQuestion,
    ExportStore,
    ImportStore,
    Refused,
    ShowAccuracy,
)
from schemas.samples import ThroughputObserved
from services.estimator.belief import believed, note
from services.estimator.folds import FOLDS, fold
from services.estimator.state import State
from services.estimator.store.contract import usable
from services.estimator.tasks import (
    Answered,
    Correct,
    Estimate,
    Learn,
    Learned,
    MeasurePaths,
    ObservationsWritten,
    ReadStore,
    Refine,
    WriteExecutions,
    WriteObservations,
)
from shared.domain import gangs
from shared.domain.cluster import gpus_by_type
from shared.domain.core import Asked, Effects, Input, Publish, Reply, Work, WorkFailed

BATCH = 100
"""number of observations from which on they are written at once"""
BUFFER = 10_000
"""observations held while the store cannot be written; of more, the oldest are dropped"""


class _Inventory(msgspec.Struct, frozen=True):
    cluster: tuple[Node, ...]
    """all nodes, lost ones too, by id, each with all its GPUs, whichever of them are withheld"""
    node_by_type: dict[GpuType, Node]
    """the first of them of each type, of those that are not lost if there is one"""
    gpus_alive: dict[GpuType, int]
    """GPUs of nodes that are not lost, by type"""


class Estimator:
    def __init__(self, *, flush_s: float, calibrates: bool = False) -> None:
        """`flush_s`: cluster seconds after which observations are written, and failed work is tried again.

        `calibrates`: whether bandwidths that a type lacks are measured, without a request, when a node joins.
        """
        self.state = State()
        self._flush_s = flush_s
        self._calibrates = calibrates
        self._measured: dict[GpuType, BandwidthRow] = {}
        """as the store had them at the start, or the last calibration says"""
        self._tried: set[GpuType] = set()
        """types of which no node that could matter has joined since a measurement was tried"""
        self._measuring = False
        """a measurement without a request is under way, or what was measured is being read"""
        self._observed: list[ThroughputObserved] = []
        self._ended: list[Execution] = []
        self._queued: dict[JobId, frozenset[GpuType]] = {}
        """the types of jobs that were queued a moment ago, until the stream brings that back"""
        self._retries: dict[JobId, None] = {}
        self._due: float | None = None
        """when to write and to try again, cluster time"""
        self._inventory: _Inventory | None = None
        """None: to be computed again, since a fact about nodes came"""
        self._asked_about: tuple[tuple[NodeId, ...], tuple[Node | None, ...]] | None = None
        """the nodes of the last question; None: as for `_inventory`"""
        self._write_failed = False
        """the last write failed, so the next one waits for its time, and some of it may be written already"""

    def handle(self, message: Input, now: float) -> Effects:
        effects: Effects = []
        match message:
            case Event() if type(message) in FOLDS:
                effects = self._learn(message, now)
            case ThroughputObserved():
                effects = self._observe(message, now)
            case Asked():
                effects = self._asked(message, now)
            case Answered():
                effects = self._answered(message, now)
            case ObservationsWritten(due):
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
        self._due = None
        retries, self._retries = list(self._retries), {}
        effects = [effect for job_id in retries for effect in self._learn_modules(job_id)]
        return [*self._flush(now), *effects, *self._calibrate(now)]

    def resume(self, now: float) -> Effects:
        """Write what the store may lack: every open job's modules, and the last executions.

        Before anything is measured without a request, read what was.
        """
        effects = [effect for job_id in self.state.jobs for effect in self._learn_modules(job_id)]
        if self.state.logged:
            effects.append(Work(WriteExecutions(tuple(self.state.logged))))
        if self._calibrates:
            self._measuring = True
            effects.append(Work(ReadStore(None, Calibrate(measure=False), now)))
        return effects

    # ---- facts

    def _learn(self, fact: Event, now: float) -> Effects:
        note(self.state.executions, self.state.ended, fact)
        moved, execution = fold(self.state, fact)
        if isinstance(fact, NodeEvent):
            self._inventory = self._asked_about = None
        if execution is not None:
            self._ended.append(execution)
            self._set_timer(now)
        match fact:
            case NodeJoined() if self._calibrates and self._lacks(fact.node.gpu_type):
                self._tried.discard(fact.node.gpu_type)
                self._set_timer(now)
            case JobProfiled() | JobTypeProfiled() if moved:
                return self._learn_modules(fact.job_id)
            case _:
                pass
        return []

    def _learn_modules(self, job_id: JobId) -> Effects:
        """Write the job's time modules to the store; `_learned` gets what follows from them."""
        job = self.state.jobs.get(job_id)
        if job is None or not job.modules:
            return []
        task = Learn(
            job_id=job_id,
            spec=job.spec,
            modules=job.modules,
            known=job.queued,
            node_by_type=self._nodes().node_by_type,
            gpus_alive=self._nodes().gpus_alive,
        )
        return [Work(task)]

    def _nodes(self) -> "_Inventory":
        if self._inventory is None:
            nodes = [known for _, known in sorted(self.state.nodes.items()) if not known.removed]
            cluster = tuple([known.whole for known in nodes])
            node_by_type: dict[GpuType, Node] = {}
            for known in sorted(nodes, key=lambda known: not known.alive):
                node_by_type.setdefault(known.whole.gpu_type, known.whole)
            self._inventory = _Inventory(cluster, node_by_type, gpus_by_type(self._alive()))
        return self._inventory

    def _learned(self, learned: Learned, now: float) -> Effects:
        job = self.state.jobs.get(learned.job_id)
        if job is None:
            return []
        known = job.types or self._queued.get(learned.job_id)
        if known is not None:
            return [
                Publish(JobTypeEstimated(at=now, job_id=learned.job_id, gpu_type=gpu_type, single_gpu=speed))
                for gpu_type, speed in sorted(learned.single_gpu.items())
                if gpu_type not in known
            ]
        jobs = self.state.jobs
        self._queued = {
            one: types for one, types in self._queued.items() if one in jobs and not jobs[one].types
        }
        self._queued[learned.job_id] = frozenset(learned.single_gpu)
        queued = JobQueued(
            at=now,
            job_id=learned.job_id,
            age_s=learned.age_s,
            sensitivity=learned.sensitivity,
            single_gpu=learned.single_gpu,
        )
        return [Publish(queued)]

    def _calibrate(self, now: float) -> Effects:
        """Have the paths measured that types lack of which a node has joined since that was tried last.

        So paths that are lacking because nodes were in use wait for the next node: nobody is asked for ever.
        """
        untried = self._untried()
        if self._measuring or not untried:
            return []
        self._tried |= untried
        lacking = set(filter(self._lacks, untried))
        if not lacking:
            return []
        self._measuring = True
        nodes = tuple(node for node in self._alive() if node.gpu_type in lacking)
        return [Work(MeasurePaths(ticket=None, nodes=nodes, now=now))]

    def _untried(self) -> set[GpuType]:
        return self._nodes().gpus_alive.keys() - self._tried if self._calibrates else set()

    def _lacks(self, gpu_type: GpuType) -> bool:
        """Whether the type's largest node, or largest two, can have a larger ring than was measured."""
        gpus = sorted([node.gpus for node in self._alive() if node.gpu_type == gpu_type], reverse=True)
        row = self._measured.get(gpu_type)
        first, second, *_ = *gpus, 0, 0
        return first > max(_largest(row, distributed=False), 1) or second > _largest(row, distributed=True)

    def _answered(self, answered: Answered, now: float) -> Effects:
        if isinstance(answered.message, Calibration):
            self._measured = {row.gpu_type: row for row in answered.message.rows}
        if answered.ticket is not None:
            return [Reply(answered.ticket, answered.message)]
        self._end_measuring(now)
        return []

    def _end_measuring(self, now: float) -> None:
        self._measuring = False
        if self._untried():  # a node has joined meanwhile
            self._set_timer(now)

    def _refine(self, fingerprint: Fingerprint, gpu_type: GpuType) -> Effects:
        node = self._nodes().node_by_type.get(gpu_type)
        return [Work(Refine(fingerprint=fingerprint, node=node))] if node else []

    def _alive(self) -> list[Node]:
        return [known.node for _, known in sorted(self.state.nodes.items()) if known.alive]

    # ---- samples

    def _observe(self, seen: ThroughputObserved, now: float) -> Effects:
        state = self.state
        counted = believed(state.executions, state.ended, seen, now) if usable(seen) else None
        if counted is None:
            return []
        self._observed.append(counted)
        if len(self._observed) >= BATCH and not self._write_failed:
            return self._flush(now)
        self._set_timer(now)
        return []

    def _flush(self, now: float) -> Effects:
        batch, self._observed = self._observed, []
        ended, self._ended = self._ended, []
        again, self._write_failed = self._write_failed, False
        paced = [seen for seen in batch if gangs.paced(seen.gang)]
        record: Effects = [Work(WriteObservations(tuple(paced), now, again))] if paced else []
        if len(paced) < len(batch):
            unlike = tuple([seen for seen in batch if not gangs.paced(seen.gang)])
            record.append(Work(Correct(observations=unlike, cluster=self._nodes().cluster)))
        return [*record, *([Work(WriteExecutions(tuple(ended)))] if ended else [])]

    def _set_timer(self, now: float) -> None:
        if self._due is None:
            self._due = now + self._flush_s

    # ---- questions and failures

    def _asked(self, asked: Asked, now: float) -> Effects:
        match asked.question:
            case EstimateQuestion() as question:
                return [Work(self._answer(asked.ticket, question))]
            case Calibrate(measure=True):
                return [Work(MeasurePaths(ticket=asked.ticket, nodes=tuple(self._alive()), now=now))]
            case ShowAccuracy() | Calibrate() | ExportStore() | ImportStore() as question:
                task = ReadStore(asked.ticket, question, now, self._nodes().cluster)
                return [*self._flush(now), Work(task)]
            case _:
                reason = f"the estimator does not answer {type(asked.question).__name__}"
                return [Reply(asked.ticket, Refused(reason=reason))]

    def _answer(self, ticket: int, question: EstimateQuestion) -> Estimate:
        given = question.workloads or ("",) * len(question.jobs)
        return Estimate(
            ticket=ticket,
            question=question,
            fingerprints=tuple(map(self._fingerprint, question.jobs, given)),
            nodes=self._asked_nodes(question.nodes),
            cluster=self._nodes().cluster,
        )

    def _asked_nodes(self, asked: tuple[NodeId, ...]) -> tuple[Node | None, ...]:
        """The nodes by their ids; the questions of one cluster all bring the same ids."""
        if self._asked_about is None or self._asked_about[0] != asked:
            known = [self.state.nodes.get(node_id) for node_id in asked]
            self._asked_about = asked, tuple([one.node if one else None for one in known])
        return self._asked_about[1]

    def _fingerprint(self, job_id: JobId, given: str) -> Fingerprint | None:
        job = self.state.jobs.get(job_id)
        return Fingerprint(given) if given else job.spec.workload.fingerprint if job else None

    def _failed(self, task: msgspec.Struct, reason: str, now: float) -> Effects:
        match task:
            case (
                Estimate(ticket=ticket)
                | ReadStore(ticket=int() as ticket)
                | MeasurePaths(ticket=int() as ticket)
            ):
                return [Reply(ticket, Refused(reason=reason))]
            case MeasurePaths() | ReadStore():
                self._end_measuring(now)
            case WriteExecutions(executions):
                self._ended = [*executions, *self._ended][-BUFFER:]
                self._set_timer(now)
            case Learn(job_id=job_id):
                self._retries[job_id] = None
                self._set_timer(now)
            case WriteObservations(observations) | Correct(observations=observations):
                self._observed = [*observations, *self._observed][-BUFFER:]
                self._write_failed = True
                self._set_timer(now)
            case _:
                pass
        return []


def _largest(row: BandwidthRow | None, *, distributed: bool) -> float:
    """GPUs of a node in the largest ring that was measured; of a row without paths, any number."""
    if row is None or (row.network if distributed else row.link) is None:
        return 0
    return max([path.gpus for path in row.paths if path.distributed == distributed], default=inf)
