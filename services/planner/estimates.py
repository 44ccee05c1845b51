"""Throughputs of configurations: columns, their form on the wire, and the last ones known.

No I/O here: `desk` asks. Configurations are remembered by a 64-bit hash of job, nodes and GPUs.
"""

import hashlib

import msgspec
import numpy as np
import numpy.typing as npt

from schemas.plans import Layer
from schemas.questions import LAYERS, EstimateQuestion, Estimates
from services.planner.configurations import Configurations
from services.planner.problem import Floats

Bytes = npt.NDArray[np.uint8]
Hashes = npt.NDArray[np.uint64]

CACHED = LAYERS.index("cached")
REMEMBERED_AT_MOST = 1_000_000
"""configurations"""


class Estimated(msgspec.Struct, frozen=True, kw_only=True):
    """One row a configuration."""

    throughput: Floats
    """samples/s of the whole configuration; NaN where nothing is known"""
    layer: Bytes
    """index into `LAYERS`"""

    def known(self) -> bool:
        return bool((self.throughput > 0).any())

    def layer_at(self, row: int) -> Layer:
        return Layer(LAYERS[self.layer[row]])


def unknown(count: int) -> Estimated:
    return Estimated(throughput=np.full(count, np.nan), layer=np.full(count, CACHED, dtype=np.uint8))


def question(wanted: Configurations) -> EstimateQuestion:
    return EstimateQuestion(
        jobs=wanted.jobs,
        nodes=wanted.nodes,
        job=_wire(wanted.job),
        start=_wire(wanted.start),
        node=_wire(wanted.node),
        gpus=_wire(wanted.gpus),
    )


def estimated(reply: Estimates, count: int) -> Estimated:
    """The columns of a reply; raises ValueError where they do not have `count` rows."""
    throughput = np.frombuffer(reply.throughput, dtype="<f8").astype(np.float64)
    layer = np.frombuffer(reply.layer, dtype="<u1")
    if len(throughput) != count or len(layer) != count or (layer >= len(LAYERS)).any():
        raise ValueError(f"{len(throughput)} estimates for {count} configurations")
    usable = np.isfinite(throughput) & (throughput > 0)
    return Estimated(throughput=np.where(usable, throughput, np.nan), layer=layer)


class Remembered:
    """The last estimate of every configuration asked about, up to a limit."""

    def __init__(self, limit: int = REMEMBERED_AT_MOST) -> None:
        self._limit = limit
        self._keys: Hashes = np.empty(0, dtype=np.uint64)
        self._throughput: Floats = np.empty(0)

    def learn(self, wanted: Configurations, estimates: Estimated) -> None:
        keys = np.concatenate([hashes(wanted), self._keys])
        throughput = np.concatenate([estimates.throughput, self._throughput])
        unique, first = np.unique(keys, return_index=True)
        if len(unique) > self._limit:
            unique, first = np.unique(keys[: len(wanted)], return_index=True)
        self._keys, self._throughput = unique, throughput[first]

    def recall(self, wanted: Configurations) -> Estimated:
        """What is known of them, each from the cached layer."""
        answer = unknown(len(wanted))
        if len(self._keys):
            keys = hashes(wanted)
            place = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
            found = self._keys[place] == keys
            answer.throughput[found] = self._throughput[place[found]]
        return answer


def hashes(wanted: Configurations) -> Hashes:
    """A hash of every configuration, the same in every plan and process."""
    jobs = _name_hashes(wanted.jobs)
    cells = _mixed(_name_hashes(wanted.nodes)[wanted.node] + wanted.gpus.astype(np.uint64))
    if not len(wanted):
        return np.empty(0, dtype=np.uint64)
    places = np.add.reduceat(cells, wanted.start[:-1])
    mixed: Hashes = _mixed(jobs[wanted.job] ^ places)
    return mixed


def _mixed(value: Hashes) -> Hashes:
    """The finaliser of splitmix64."""
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))


def _name_hashes(names: tuple[str, ...]) -> Hashes:
    digests = (hashlib.blake2b(name.encode(), digest_size=8).digest() for name in names)
    return np.frombuffer(b"".join(digests), dtype="<u8").astype(np.uint64)


def _wire(column: npt.NDArray[np.int32]) -> bytes:
    return column.astype("<i4", copy=False).tobytes()
