"""Does the estimator's work on the store, one task at a time."""

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import TypeVar

import msgspec
import numpy as np

from schemas.base import Message
from schemas.calibration import BandwidthRow, Calibration
from schemas.cluster import Node
from schemas.ids import Fingerprint, GpuType, NodeId
from schemas.measurements import DataMode
from schemas.numbers import MOST
from schemas.questions import Calibrate, ExportStore, ImportStore, Refused, ShowAccuracy
from schemas.samples import ThroughputObserved
from services.estimator import tasks
from services.estimator.lookup.columns import (
    Estimated,
    UnreadableQuestion,
    Wanted,
    estimates,
    of_gang,
    wanted,
)
from services.estimator.lookup.layers import EvidenceThreshold, estimate
from services.estimator.lookup.residuals import Residuals
from services.estimator.store.archive import enter, page
from services.estimator.store.contract import Running, Store, StoreUnavailable, Theory, keep_profile
from services.estimator.theory.ageing import age_s, sensitivity, shares
from services.estimator.theory.calibration import Timing, bandwidths, merged
from services.estimator.theory.correction import NONE_YET, corrected, types_of
from services.estimator.theory.refinement import due, refined
from shared.domain.accuracy import KEYS, report, worth_measuring
from shared.domain.iteration import OURS, Law
from shared.runtime.offload import Lane

HANGS_AFTER_S = 10.0
"""real seconds after which work on the store counts as hanging; on a working disk it takes milliseconds"""
LOOK_EVERY_S = 10.0
"""real seconds between two looks at where the store's file is, while nothing else is done with it"""
RETRIED_WITHIN_S = 60.0
"""real seconds, beyond the time to a retry, after which failed work is known not to be tried again"""
ELSEWHERE = (
    "was moved, deleted or replaced: what is learnt is lost when the estimator ends. Put it back; or keep "
    "all by `hopyard store export`, `hopyard restart estimator` and `hopyard store import`"
)
TYPICAL_KEPT = 256
"""nodes that stand for their types, those asked about last, that are kept"""
A = TypeVar("A")


class StoreLane:
    """Does work on the store in order, in one thread, and reports what is wrong with the store's file."""

    def __init__(
        self, lane: Lane, path: str, retried: Collection[Callable[..., object]], retry_real_s: float = 0.0
    ) -> None:
        """`path`: of the store's open file. `retried`: kinds of work that the core tries again.

        It does so after `retry_real_s`, unless what the work was for is gone. A failure of other work goes to
        the caller.
        """
        self._lane = lane
        self._path = path
        self._opened = _file_at(path)
        self._elsewhere = False
        """at the end of the last work another file was at the path, or none"""
        self._retried = retried
        self._began: float | None = None
        self._retry_s = retry_real_s
        self._failed: dict[Callable[..., object], tuple[str, float]] = {}
        """retried kinds of work whose last attempt failed: why, and when"""

    async def do(self, work: Callable[..., A], *arguments: object) -> A:
        return await self._lane.do(self._timed, work, *arguments)

    def _timed(self, work: Callable[..., A], *arguments: object) -> A:
        self._began = time.monotonic()
        try:
            done = work(*arguments)
        except StoreUnavailable as error:
            if work in self._retried:
                self._failed[work] = str(error), time.monotonic()
            raise
        finally:
            opened = self._opened
            self._elsewhere = opened is not None and _file_at(self._path, unknown=opened) != opened
            self._began = None
        self._failed.pop(work, None)
        return done

    async def look(self) -> None:
        """Find out where the file is."""
        await self.do(_nothing)

    def troubles(self) -> tuple[str, ...]:
        began, now = self._began, time.monotonic()
        hangs = began is not None and now - began > HANGS_AFTER_S
        since = now - self._retry_s - RETRIED_WITHIN_S
        return (
            *dict.fromkeys(why for why, at in self._failed.copy().values() if at >= since),
            *([f"the disk of {self._path} has not answered for {HANGS_AFTER_S:g} s"] if hangs else []),
            *([f"{self._path} {ELSEWHERE}"] if self._elsewhere else []),
        )

    def close(self) -> None:
        self._lane.close()


def _nothing() -> None:
    """Work that leaves the store as it is."""


def _file_at(path: str, unknown: tuple[int, int] | None = None) -> tuple[int, int] | None:
    """Which file is at the path now, whatever it contains; None: there is none.

    `unknown`: what it is taken for where one cannot look at it, as while a network disk is away.
    """
    try:
        there = Path(path).stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError:
        return unknown
    return there.st_dev, there.st_ino


class StoreWorkers:
    def __init__(self, store: Store, threshold: EvidenceThreshold, law: Law = OURS) -> None:
        self._store = store
        self._threshold = threshold
        self._law = law
        self._residuals = Residuals()
        self._running: Counter[tuple[Fingerprint, GpuType]] = Counter()
        """observations with loading times, since this start"""

    def record(self, task: tasks.WriteObservations) -> tasks.ObservationsWritten:
        """Write observations. Raises StoreUnavailable; then none of them is written.

        One that was given up may be written all the same, once the disk answers.
        """
        new = self._store.unknown(task.observations) if task.again else task.observations
        self._store.add(new, task.now)
        return tasks.ObservationsWritten(tuple(self._due(task.observations)))

    def _due(self, observations: Iterable[ThroughputObserved]) -> Iterator[tuple[Fingerprint, GpuType]]:
        for seen in observations:
            if seen.data_s:
                key = seen.fingerprint, seen.gpu_type
                self._running[key] += 1
                if due(self._running[key]):
                    yield key

    def correct(self, task: tasks.Correct) -> None:
        """Learn corrections from gangs of unlike shares.

        Raises StoreUnavailable; then the first observations of the task may be written.
        """
        known = {node.node_id: node for node in task.cluster}
        for seen in task.observations:
            theory = self._store.theory([seen.fingerprint]).get(seen.fingerprint)
            if theory is not None and known.keys() >= set(seen.gang.nodes):
                self._correct(seen, theory, [known[node_id] for node_id in seen.gang.nodes], task.cluster)

    def _correct(
        self, seen: ThroughputObserved, theory: Theory, nodes: Sequence[Node], cluster: tuple[Node, ...]
    ) -> None:
        asked = of_gang(seen.fingerprint, nodes, seen.gang, theory.batch_size)
        estimated = float(self._estimate(asked, cluster).throughput[0])
        if estimated > 0:
            types = types_of(node.gpu_type for node in nodes)
            known = theory.corrections.get(types, NONE_YET)
            ratio = seen.throughput * seen.gang.gpus / estimated
            self._store.correct(seen.fingerprint, types, corrected(known, ratio))

    def log(self, task: tasks.WriteExecutions) -> None:
        """Raises StoreUnavailable."""
        self._store.log(task.executions)

    # ---- refinement and calibration

    def running(self, task: tasks.Refine) -> Running:
        """Raises StoreUnavailable."""
        return self._store.running(task.fingerprint, task.node.gpu_type)

    def refine(self, task: tasks.Refine, data: tuple[DataMode, ...], seen: Running) -> None:
        """Raises StoreUnavailable."""
        gpu_type = task.node.gpu_type
        theory = self._store.theory([task.fingerprint]).get(task.fingerprint)
        if theory is not None and gpu_type in theory.modules:
            known = self._store.bandwidths().get(gpu_type)
            loading = refined(theory.modules[gpu_type], data, seen, task.node, known, law=self._law)
            self._store.refine(task.fingerprint, gpu_type, loading)

    def calibrate(
        self, task: tasks.MeasurePaths, timings: Sequence[Timing], left_out: dict[NodeId, str]
    ) -> tasks.Answered:
        """Raises StoreUnavailable."""
        known = self._store.bandwidths()
        found = bandwidths(timings, task.now)
        self._store.calibrate({one: merged(known.get(one), speeds) for one, speeds in found.items()})
        return tasks.Answered(task.ticket, self._calibration(left_out))

    def _calibration(self, left_out: dict[NodeId, str]) -> Calibration:
        rows = (
            BandwidthRow(gpu_type=gpu_type, **msgspec.structs.asdict(known))
            for gpu_type, known in sorted(self._store.bandwidths().items())
        )
        return Calibration(rows=tuple(rows), left_out=left_out)

    # ---- questions

    def look(self, task: tasks.ReadStore) -> tasks.Answered:
        """Raises StoreUnavailable."""
        match task.question:
            case ShowAccuracy() as question:
                answer: Message = self._accuracy(question)
            case Calibrate():
                answer = self._calibration({})
            case ExportStore() as question:
                answer = page(self._store, question, task.cluster)
            case ImportStore() as question:
                answer = enter(self._store, question, task.now)
        return tasks.Answered(task.ticket, answer)

    def _accuracy(self, question: ShowAccuracy) -> Message:
        unknown = [name for name in question.by if name not in KEYS]
        if unknown:
            return Refused(reason=f"no key to group by: {', '.join(unknown)}; the keys are {', '.join(KEYS)}")
        return report(worth_measuring(self._store.executions(), question.shortest_s), question.by)

    def answer(self, task: tasks.Estimate) -> tasks.Answered:
        """The estimates, or Refused for a question that cannot be read. Raises StoreUnavailable."""
        try:
            asked = wanted(task.question, task.fingerprints, task.nodes)
        except UnreadableQuestion as error:
            return tasks.Answered(task.ticket, Refused(reason=str(error)))
        return tasks.Answered(task.ticket, estimates(self._estimate(asked, task.cluster)))

    def _estimate(self, asked: Wanted, cluster: tuple[Node, ...]) -> Estimated:
        return estimate(
            asked, self._store, self._threshold, self._law, cluster=cluster, residuals=self._residuals
        )

    def learn(self, task: tasks.Learn) -> tasks.Learned:
        """Types on which no pace follows from the modules are left out.

        Raises StoreUnavailable, also where that leaves no type.
        """
        workload = task.spec.workload
        keep_profile(self._store, workload, task.modules, known=task.known)
        single, paired = self._probe(workload.fingerprint, sorted(task.modules), task.node_by_type)
        known = {one: rate for one, rate in single.items() if _possible(rate) and _possible(paired[one])}
        if not known:
            raise StoreUnavailable(
                f"no throughput on any GPU type follows from what the store has of {workload.fingerprint}: "
                "correct an export of it, and rebuild the store (`hopyard store rebuild --from FILE`)"
            )
        share = shares(list(known), task.gpus_alive)
        return tasks.Learned(
            job_id=task.job_id,
            age_s=min(age_s(task.spec.samples, task.spec.demand, known, share), MOST),
            sensitivity=min(sensitivity(known, paired, share), MOST),
            single_gpu=known,
        )

    def _probe(
        self, fingerprint: Fingerprint, gpu_types: list[GpuType], nodes: Mapping[GpuType, Node]
    ) -> tuple[dict[GpuType, float], dict[GpuType, float]]:
        """Per-GPU samples/s of {a: 1} and of {a: 1, b: 1} on each type.

        a and b stand for any two nodes of the type, even where only one has joined. They have no node id, so
        that no single server, and no model of server, stands for its type.
        """
        count = len(gpu_types)
        asked = Wanted(
            fingerprints=(fingerprint,),
            nodes=tuple([_typical(gpu_type, nodes.get(gpu_type)) for gpu_type in gpu_types]),
            job=np.zeros(2 * count, dtype=np.int64),
            start=np.array([0, *_starts(count)], dtype=np.int64),
            node=np.array(list(chain.from_iterable([k, k, k] for k in range(count))), dtype=np.int64),
            gpus=np.ones(3 * count, dtype=np.int64),
        )
        typical = tuple([_typical(gpu_type, node) for gpu_type, node in sorted(nodes.items())])
        throughput = self._estimate(asked, cluster=typical).throughput.tolist()
        single = dict(zip(gpu_types, throughput[0::2], strict=True))
        paired = dict(zip(gpu_types, (both / 2 for both in throughput[1::2]), strict=True))
        return single, paired


def _possible(rate: float) -> bool:
    """Whether it is a rate that messages can have, and can be divided by; NaN: it is not known."""
    return 1 / MOST <= rate <= MOST


def _starts(count: int) -> list[int]:
    """Ends of `count` pairs of rows, the first of one node and the second of two."""
    return [end for k in range(count) for end in (3 * k + 1, 3 * k + 3)]


@lru_cache(TYPICAL_KEPT)
def _typical(gpu_type: GpuType, node: Node | None) -> Node:
    if node is not None:
        return msgspec.structs.replace(node, node_id=NodeId(""))
    return Node(  # no node of the type has joined, so nothing is known of its paths
        node_id=NodeId(""),
        gpu_type=gpu_type,
        gpus=1,
        server="",
        link_bandwidth=np.inf,
        network_bandwidth=np.inf,
    )
