"""The seam to the multi-layer store: evidence by place, and the time modules beneath (Hops section 3.3).

Two implementations pass one contract suite: DuckDB, the store of record, and one in memory.
"""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple, Protocol

import msgspec
import numpy as np
import numpy.typing as npt

from schemas.accuracy import Execution
from schemas.calibration import Path
from schemas.ids import Fingerprint, GpuType, NodeId
from schemas.jobs import Workload
from schemas.measurements import DataMode, TimeModules
from schemas.samples import ThroughputObserved
from services.estimator.store.table import FOREVER, Whole
from shared.domain import gangs
from shared.domain.iteration import Column

RUNNING = 64
"""observations of a workload on a type from which its loading is refined, and gangs from which its wait is"""


WORKLOADS_IN_MEMORY = 5_000
"""workloads of which a store of record, and lookups, keep what they have read or computed"""


class StoreUnavailable(OSError):
    """The store cannot be opened, read or written; the text names the file and what to do."""


class Keys(msgspec.Struct, frozen=True, kw_only=True):
    """Rows of one layer that are asked for; names once, and columns of indices into them.

    A place is an `entity` in the layer of that name and a GPU type in the type layer. `size` is the number of
    GPUs in an aggregated table, and what `size_of` makes of nodes and GPUs in a distributed one.
    """

    layer: str
    fingerprints: Sequence[Fingerprint]
    places: Sequence[str]
    workload: Whole
    """index into `fingerprints`"""
    place: Whole
    """index into `places`"""
    distributed: npt.NDArray[np.bool_]
    size: Whole


class Shape(NamedTuple):
    """The shape of gangs that were observed on a type."""

    gpu_type: GpuType
    nodes: int
    gpus: int
    """GPUs over all nodes"""


class ShapeMeans(msgspec.Struct, frozen=True):
    """What one workload was observed to do, by shape."""

    shapes: tuple[Shape, ...]
    """in their order; the same object until there is another shape"""
    mean: Column
    """samples/s per GPU"""


class Revision(NamedTuple):
    """Two numbers for a workload on some types; neither returns to an earlier value."""

    evidence: int
    """changes whenever the workload's means by shape on these types may have changed"""
    theory: int
    """changes whenever its theory on these types, or any bandwidth, may have changed"""


class Evidence(msgspec.Struct, frozen=True):
    """What was observed, one row a key; count 0 where nothing was."""

    count: npt.NDArray[np.int64]
    seconds: Column
    """running time observed"""
    weight: Column
    """of these seconds, what still counted at `seen_at`"""
    seen_at: Column
    """cluster time of the newest observation"""
    mean: Column
    """samples/s per GPU, weighted by length and by age"""
    variance: Column
    """variance of the observations around that mean"""


class Loading(msgspec.Struct, frozen=True, kw_only=True):
    """Loading and waiting as refined while jobs ran (Hops eq. 3). It takes precedence over the profile."""

    data: tuple[DataMode, ...]
    wait_factor: float
    """mean T_w that was measured / mean T_w that independent draws from `data` would give"""
    wait_s: float
    """mean T_w that no loading explains, seconds"""
    iterations: int
    """number of iterations that it was fitted to"""
    waits_s: tuple[float, ...] = ()
    """mean T_w as recorded, by component of `data`; empty: no gang has run"""


class Running(NamedTuple):
    """What loading is refined from: observations of a workload on a type, in the order in which they came."""

    latest: Sequence[ThroughputObserved]
    """the last with times of loading, at most `RUNNING`"""
    gangs: Sequence[ThroughputObserved]
    """the last that `shows_wait`, at most `RUNNING`, however many others have come since"""


class Correction(msgspec.Struct, frozen=True, kw_only=True):
    """How far estimates of gangs with unlike shares are off, as far as it is known."""

    factor: float
    """factor by which estimates are multiplied"""
    observations: int


class Bandwidth(msgspec.Struct, frozen=True, kw_only=True):
    """Measured paths of a GPU type's gradients (Hops eq. 2), bytes/s. None: nothing was measured."""

    link: float | None
    """bandwidth inside a node: one figure for all gangs there"""
    network: float | None
    """bandwidth between nodes: one figure for all gangs over several"""
    at: float
    """cluster time of the measurement"""
    measurements: int
    error: float
    """mean |T_c measured − T_c by its path| / T_c measured"""
    paths: tuple[Path, ...] = ()
    """bandwidths by gang, which predictions use"""


class Theory(msgspec.Struct, frozen=True):
    """The lowest layer of one workload."""

    batch_size: int
    modules: dict[GpuType, TimeModules]
    """time modules as profiled"""
    loading: dict[GpuType, Loading]
    """loading as refined by what ran, where anything did"""
    corrections: dict[str, Correction] = {}
    """corrections of gangs with unlike shares, by their GPU types (`theory.correction.types_of`)"""


class Store(Protocol):
    """Every method raises StoreUnavailable."""

    @property
    def half_life_s(self) -> float:
        """Cluster seconds after which an observation counts half."""
        ...

    def add(
        self, observations: Sequence[ThroughputObserved], now: float = FOREVER, earlier_s: float = 0.0
    ) -> None:
        """Fold observations into the entity layer and the type layer, all or none.

        They age as if made `earlier_s` before their time, and at `now` if that is still later.
        """
        ...

    def find(self, keys: Keys) -> Evidence: ...

    def shape_means(self, fingerprint: Fingerprint) -> ShapeMeans:
        """What the type layer has of a workload by the gang's shape."""
        ...

    def latest(self, limit: int) -> list[Fingerprint]:
        """The workloads observed by the gang's shape, the newest first."""
        ...

    def revision(self, fingerprint: Fingerprint, gpu_types: Collection[GpuType]) -> Revision: ...

    def changes(self, of: Fingerprint | None = None) -> int:
        """A number that changes, to a new value, whenever a revision of the workload may have changed.

        None: of any workload.
        """
        ...

    def observations(self, after: int, limit: int) -> list[ThroughputObserved]:
        """Observations in the order in which they came, without the first `after` that ever came."""
        ...

    def dropped(self) -> int:
        """How many of the first observations it no longer has."""
        ...

    def unknown(self, observations: Sequence[ThroughputObserved]) -> list[ThroughputObserved]:
        """The observations that the store does not have, each once; placement, node and time identify one."""
        ...

    def workloads(self) -> list[Fingerprint]:
        """All workloads whose theory is known, in alphabetical order."""
        ...

    def keep(self, workload: Workload, modules: Mapping[GpuType, TimeModules]) -> None:
        """Write the theory layer of a workload; types it does not mention stay as they are."""
        ...

    def theory(self, fingerprints: Iterable[Fingerprint]) -> dict[Fingerprint, Theory]:
        """The theory layers that are known."""
        ...

    def running(self, fingerprint: Fingerprint, gpu_type: GpuType) -> Running: ...

    def refine(self, fingerprint: Fingerprint, gpu_type: GpuType, loading: Loading) -> None:
        """Write a workload's refined loading."""
        ...

    def correct(self, fingerprint: Fingerprint, gpu_types: str, correction: Correction) -> None:
        """Write the correction of a workload on these types, where the workload is known."""
        ...

    def together(self) -> AbstractContextManager[None]:
        """Within it `keep`, `refine` and `correct` write nothing: at its end all is written, or nothing."""
        ...

    def bandwidths(self) -> dict[GpuType, Bandwidth]: ...

    def calibrate(self, measured: Mapping[GpuType, Bandwidth]) -> None:
        """Write measured bandwidths; types it does not mention stay as they are."""
        ...

    def log(self, executions: Sequence[Execution]) -> int:
        """Write executions to the prediction log, and say how many it did not have."""
        ...

    def logged(self, after: int, limit: int) -> list[Execution]:
        """The prediction log in the order in which it was written, without the first `after`."""
        ...

    def executions(self) -> list[Execution]:
        """The prediction log, in the order in which gangs formed."""
        ...

    def close(self) -> None: ...


def keep_profile(
    store: Store, workload: Workload, modules: Mapping[GpuType, TimeModules], *, known: bool
) -> None:
    """Write a job's time modules. Raises StoreUnavailable.

    `known`: some were written before; since then the workload may have been profiled again, so only those of
    types that the store lacks are written.
    """
    there = store.theory([workload.fingerprint]).get(workload.fingerprint) if known else None
    lacking = {one: its for one, its in modules.items() if not there or one not in there.modules}
    if lacking:
        store.keep(workload, lacking)


Identity = tuple[str, str, float]


def identity_of(observation: ThroughputObserved) -> Identity:
    return observation.placement_id, observation.node_id, observation.at


def places(observation: ThroughputObserved) -> tuple[tuple[str, str], tuple[str, str]]:
    """Layer and place of the two records that every observation is."""
    gpu_type = observation.gpu_type
    return ("entity", entity(observation.node_id, gpu_type)), ("type", gpu_type)


def entity(node_id: NodeId, gpu_type: GpuType) -> str:
    """Place in the entity layer: a node that comes back with GPUs of another type is another server."""
    return f"{node_id}/{gpu_type}"


SIZE_OF_A_NODE = 2**13
"""gangs with about this many GPUs or more share a row"""
NODES_MOST = 2**12 - 1
"""gangs on this many nodes or more share a row"""


def size_of(nodes: Whole, gpus: Whole) -> Whole:
    """Row of the distributed table: by nodes and GPUs of all of them."""
    tall = np.minimum(nodes, NODES_MOST) * SIZE_OF_A_NODE
    return np.asarray(tall + np.minimum(gpus, SIZE_OF_A_NODE - 1), dtype=np.int64)


def shape_in(gpu_type: GpuType, size: int, *, distributed: bool) -> Shape | None:
    """The shape of a row's gangs; None for a row that is by the number of nodes alone."""
    if not distributed:
        return Shape(gpu_type, 1, size)
    nodes, gpus = divmod(size, SIZE_OF_A_NODE)
    return Shape(gpu_type, nodes, gpus) if nodes else None


def usable(observation: ThroughputObserved) -> bool:
    """Whether a store can learn from it: neither pace nor time is 0, and its mode is observed."""
    possible = 0 < observation.throughput < math.inf and 0 < observation.seconds < math.inf
    return possible and gangs.observed(observation.gang)


def shows_wait(observation: ThroughputObserved) -> bool:
    """Whether it shows how long processes wait for each other: a process that is alone never waits."""
    return observation.gang.gpus > 1 and bool(observation.wait_s)


def table_of(observation: ThroughputObserved, *, counts: bool) -> tuple[bool, int]:
    """Whether the distributed table is meant, and the row in it (Hops fig. 3).

    `counts`: there, by nodes and GPUs; else by the number of nodes alone, as the paper has it.
    """
    nodes = len(observation.gang.members)
    if nodes == 1:
        return False, observation.gpus_on_node
    if not counts:
        return True, nodes
    return True, min(nodes, NODES_MOST) * SIZE_OF_A_NODE + min(observation.gang.gpus, SIZE_OF_A_NODE - 1)
