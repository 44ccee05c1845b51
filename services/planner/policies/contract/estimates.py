"""Throughputs of configurations: as columns, on the wire, and the last estimate of each. No I/O.

`planner.work.workers` sends the questions. Jobs of one workload train at the same speed on the same GPUs, so
a configuration is asked about and remembered once for all of them: a plan of a million rows asks about some
ten thousand.
"""

import hashlib
from collections.abc import Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from schemas.ids import Fingerprint
from schemas.numbers import MOST
from schemas.plans import Layer
from schemas.questions import LAYERS, EstimateQuestion, Estimates
from services.planner.policies.contract.configurations import Configurations, Pieces
from services.planner.policies.contract.pools import NO_INTS
from services.planner.policies.contract.view import View
from services.planner.solver.problem import subset
from shared.domain.arrays import Floats, Ints

Bytes = npt.NDArray[np.uint8]
Hashes = npt.NDArray[np.uint64]

CACHED = LAYERS.index("cached")
FEW = 64
"""with this number of rows or fewer all are asked about: finding repetitions takes longer than answering"""
REMEMBERED_AT_MOST = 1_000_000
"""rows whose last estimate is kept"""
UNSORTED_INQUIRIES_AT_MOST = 1_000
"""estimates are kept as they came, until they are needed, or there are more inquiries than this or more rows
than are remembered; every sorting goes through all that is remembered, so it is done seldom"""


class Estimated(msgspec.Struct, frozen=True, kw_only=True):
    """Estimates by configuration, in the order of the rows that were asked about."""

    throughput: Floats
    """samples/s of the whole gang; NaN where nothing is known"""
    layer: Bytes
    """index into `LAYERS`"""

    def known(self) -> bool:
        return bool((self.throughput > 0).any())

    def layer_at(self, row: int) -> Layer:
        return Layer(LAYERS[self.layer[row]])

    def at(self, rows: Ints) -> "Estimated":
        return Estimated(throughput=self.throughput.take(rows), layer=self.layer.take(rows))


def unknown(count: int) -> Estimated:
    return Estimated(throughput=np.full(count, np.nan), layer=np.full(count, CACHED, dtype=np.uint8))


# ---- what to ask


class Inquiry(msgspec.Struct, frozen=True, kw_only=True):
    """The configurations to ask about: one of each set that must have equal estimates."""

    asked: Configurations
    workloads: tuple[Fingerprint, ...]
    """by job of `asked`; empty: the workload is not known, so no other job is taken to be like it"""
    which: Ints
    """for every configuration of the plan, the row of `asked` that stands for it"""


def inquiry(wanted: Configurations, view: View) -> Inquiry:
    workload_of = {job.job_id: job.workload for job in view.jobs}
    workloads = tuple(workload_of.get(job_id, Fingerprint("")) for job_id in wanted.jobs)
    if wanted.pieces is None or len(wanted) <= FEW:
        return Inquiry(asked=wanted, workloads=workloads, which=np.arange(len(wanted), dtype=np.int32))
    rows, which = _representatives(wanted, wanted.pieces, workloads)
    start, cells = subset(wanted.start, rows)
    asked = Configurations(
        jobs=wanted.jobs,
        nodes=wanted.nodes,
        job=wanted.job.take(rows),
        start=start,
        node=wanted.node.take(cells),
        gpus=wanted.gpus.take(cells),
        samples=wanted.samples.take(cells) if len(wanted.samples) else wanted.samples,
    )
    return Inquiry(asked=asked, workloads=workloads, which=which)


def question(about: Inquiry) -> EstimateQuestion:
    asked = about.asked
    return EstimateQuestion(
        jobs=asked.jobs,
        workloads=about.workloads,
        nodes=asked.nodes,
        job=_wire(asked.job),
        start=_wire(asked.start),
        node=_wire(asked.node),
        gpus=_wire(asked.gpus),
        samples=_wire(asked.samples),
    )


def estimated(reply: Estimates, count: int) -> Estimated:
    """The columns of a reply; raises ValueError where they do not have `count` rows."""
    throughput = np.frombuffer(reply.throughput, dtype="<f8").astype(np.float64)
    layer = np.frombuffer(reply.layer, dtype="<u1")
    if len(throughput) != count or len(layer) != count or (layer >= len(LAYERS)).any():
        raise ValueError(f"{len(throughput)} estimates for {count} configurations")
    usable = (throughput > 0) & (throughput <= MOST)
    return Estimated(throughput=np.where(usable, throughput, np.nan), layer=layer)


def _representatives(
    wanted: Configurations, pieces: Pieces, workloads: Sequence[Fingerprint]
) -> tuple[Ints, Ints]:
    """The rows of the first piece of each shape and workload; and by row the one that stands for it."""
    start, shape = pieces.start, pieces.shape
    workload = _codes(_names(wanted.jobs, workloads))[wanted.job[start[:-1]]]
    _, first, which = np.unique(
        workload * (int(shape.max()) + 1) + shape, return_index=True, return_inverse=True
    )
    begin, rows = subset(start, first.astype(np.int32))
    shift = begin[:-1][which] - start[:-1]
    return rows, np.arange(len(wanted), dtype=np.int32) + np.repeat(shift, np.diff(start))


def _names(jobs: Sequence[str], workloads: Sequence[Fingerprint]) -> tuple[str, ...]:
    """By job: the name under which its estimates are kept, that of its workload or else its own."""
    return tuple(workload or job_id for job_id, workload in zip(jobs, workloads, strict=True))


def _codes(names: Sequence[str]) -> npt.NDArray[np.int64]:
    known = {name: code for code, name in enumerate(dict.fromkeys(names))}
    return np.array([known[name] for name in names], dtype=np.int64)


# ---- what was answered


class Remembered:
    """The last estimate of every configuration that was asked about, up to a limit of rows.

    It is read only when the estimator does not answer. So new estimates are kept unsorted until then, or
    until there are many of them. They take some 30 bytes a row.
    """

    def __init__(self, limit: int = REMEMBERED_AT_MOST) -> None:
        self._limit = limit
        self._keys: Hashes = np.empty(0, dtype=np.uint64)
        self._throughput: Floats = np.empty(0)
        self._unsorted: list[tuple[Inquiry, Estimated]] = []
        self._rows = 0
        """number of rows of the unsorted estimates"""

    def learn(self, about: Inquiry, estimates: Estimated) -> None:
        self._unsorted.append((msgspec.structs.replace(about, which=NO_INTS), estimates))
        self._rows += len(about.asked)
        if self._rows > self._limit or len(self._unsorted) > UNSORTED_INQUIRIES_AT_MOST:
            self._sort_in()

    def recall(self, about: Inquiry) -> Estimated:
        """The last estimate of each row, NaN where there is none; all are of the layer `cached`."""
        self._sort_in()
        answer = unknown(len(about.asked))
        if len(self._keys):
            keys = hashes(about)
            place = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
            found = self._keys[place] == keys
            answer.throughput[found] = self._throughput[place[found]]
        return answer

    def _sort_in(self) -> None:
        """Merge the unsorted estimates, the newest first: of equal keys `unique` keeps the first."""
        new = self._unsorted[::-1]
        self._unsorted, self._rows = [], 0
        if not new:
            return
        fresh = [hashes(about) for about, _ in new]
        values = [estimates.throughput for _, estimates in new]
        keys, first = np.unique(np.concatenate([*fresh, self._keys]), return_index=True)
        if len(keys) > self._limit:
            fresh, values = fresh[:1], values[:1]
            keys, first = np.unique(fresh[0], return_index=True)
        self._keys = keys
        self._throughput = np.concatenate([*values, self._throughput])[first]


def hashes(about: Inquiry) -> Hashes:
    """By row: a hash of its workload and of its GPUs and samples by node. It is equal in every process."""
    asked = about.asked
    if not len(asked):
        return np.empty(0, dtype=np.uint64)
    names = _name_hashes(_names(asked.jobs, about.workloads))
    taken = asked.gpus.astype(np.uint64)
    if len(asked.samples):
        taken |= asked.samples.astype(np.uint64) << np.uint64(32)
    cells = _mixed(_name_hashes(asked.nodes)[asked.node] + taken)
    places = np.add.reduceat(cells, asked.start[:-1])
    mixed: Hashes = _mixed(names[asked.job] ^ places)
    return mixed


def _mixed(value: Hashes) -> Hashes:
    """The finaliser of splitmix64."""
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))


def _name_hashes(names: Sequence[str]) -> Hashes:
    digests = (hashlib.blake2b(name.encode(), digest_size=8).digest() for name in names)
    return np.frombuffer(b"".join(digests), dtype="<u8").astype(np.uint64)


def _wire(column: npt.NDArray[np.int32]) -> bytes:
    return column.astype("<i4", copy=False).tobytes()
