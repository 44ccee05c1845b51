"""The seam to the multi-layer store: evidence by place, and the time modules beneath (Hops section 3.3).

Two implementations pass one contract suite: DuckDB, the store of record, and one in memory.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

import msgspec
import numpy as np
import numpy.typing as npt

from schemas.events import TimeModules
from schemas.ids import Fingerprint, GpuType
from schemas.jobs import Workload
from schemas.samples import ThroughputObserved
from shared.domain.iteration import Column

Names = npt.NDArray[np.object_]
"""a column of strings"""


class StoreUnavailable(OSError):
    """The store cannot be opened, read or written; the text names the file and what to do."""


class Keys(msgspec.Struct, frozen=True):
    """Rows of one table of one layer that are asked for.

    `place` is a node's id in the entity layer and a GPU type in the type layer. `size` is the number of
    GPUs in an aggregated table, and of nodes in a distributed one.
    """

    layer: str
    fingerprint: Names
    place: Names
    distributed: npt.NDArray[np.bool_]
    size: npt.NDArray[np.int32]


class Evidence(msgspec.Struct, frozen=True):
    """What was observed, one row a key; count 0 where nothing was."""

    count: npt.NDArray[np.int64]
    seconds: Column
    """running time observed"""
    mean: Column
    """samples/s per GPU, weighted by length and by age"""
    variance: Column
    """of the observations around that mean"""


class Theory(msgspec.Struct, frozen=True):
    """The lowest layer of one workload."""

    batch_size: int
    modules: dict[GpuType, TimeModules]


class Store(Protocol):
    """Every method raises StoreUnavailable."""

    def add(self, observations: Sequence[ThroughputObserved]) -> None:
        """Fold observations into the entity layer and the type layer, all or none."""
        ...

    def find(self, keys: Keys) -> Evidence: ...

    def keep(self, workload: Workload, modules: Mapping[GpuType, TimeModules]) -> None:
        """Write the theory layer of a workload; types it does not mention stay as they are."""
        ...

    def theory(self, fingerprints: Iterable[Fingerprint]) -> dict[Fingerprint, Theory]:
        """The theory layers that are known."""
        ...

    def close(self) -> None: ...


def fading(later: float, earlier: float, half_life_s: float) -> float:
    """How much an observation counts once time has gone on: 2^(−Δt / half-life)."""
    return float(2.0 ** (-max(later - earlier, 0.0) / half_life_s))


def places(observation: ThroughputObserved) -> tuple[tuple[str, str], tuple[str, str]]:
    """Layer and place of the two records that every observation is."""
    return ("entity", observation.node_id), ("type", observation.gpu_type)


def table_of(observation: ThroughputObserved) -> tuple[bool, int]:
    """Whether the distributed table is meant, and the row in it (Hops fig. 3)."""
    nodes = len(observation.configuration)
    return (True, nodes) if nodes > 1 else (False, observation.gpus_on_node)
