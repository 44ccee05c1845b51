"""Top-down through the layers, for many configurations at once (Hops section 3.5). Pure but for the store.

Per node of a configuration: what this server showed, else what its GPU type showed, else theory. Then

    throughput = min over nodes of the per-GPU throughput there · all GPUs

Rows that ask for the same thing are looked up once.
"""

from collections.abc import Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from schemas.cluster import Node
from schemas.events import TimeModules
from schemas.ids import Fingerprint, GpuType
from schemas.questions import LAYERS
from services.estimator.columns import Answer, Wanted, Whole
from services.estimator.formula import Gangs, per_gpu_throughput
from services.estimator.store import Evidence, Keys, Names, Store, Theory
from shared.domain.iteration import Column

ENTITY, TYPE, THEORY = (LAYERS.index(name) for name in ("entity", "type", "theory"))


class Enough(msgspec.Struct, frozen=True):
    """With how much evidence a layer answers: either is enough."""

    observations: int
    seconds: float


class _Rows(msgspec.Struct, frozen=True):
    """One row a node of a configuration."""

    workload: Whole
    """code of the fingerprint; −1: not known"""
    node: Whole
    """index into the wanted nodes"""
    kind: Whole
    """code of the node's type and bandwidths; −1: not known"""
    distributed: Whole
    """0 or 1"""
    size: Whole
    """row in the table: GPUs on the node, or nodes when distributed"""
    gpus: Whole
    """N of the whole configuration"""


class _Found(msgspec.Struct):
    """Filled in from the top layer down, one row a node of a configuration."""

    mean: Column
    """samples/s per GPU"""
    variance: Column
    count: Whole
    layer: Whole


def estimate(wanted: Wanted, store: Store, enough: Enough) -> Answer:
    """Answer every configuration. Raises StoreUnavailable."""
    if not len(wanted.job):
        nothing = np.zeros(0)
        return Answer(throughput=nothing, variance=nothing, count=wanted.job, layer=wanted.job)
    fingerprints = [one for one in dict.fromkeys(wanted.fingerprints) if one is not None]
    kinds = list(dict.fromkeys(_kind(node) for node in wanted.nodes if node is not None))
    rows = _rows(wanted, fingerprints, kinds)
    found = _nothing(len(rows.node))
    look = _Look(store, fingerprints, enough)
    node_ids = _names([node.node_id if node else "" for node in wanted.nodes])
    _from_evidence(found, rows, look, ENTITY, _Places(node_ids, rows.node))
    _from_evidence(found, rows, look, TYPE, _types(wanted, rows))
    _from_theory(found, rows, store.theory(fingerprints), fingerprints, kinds)
    return _per_configuration(wanted, found)


# ---- rows

_Kind = tuple[GpuType, float, float]
"""GPU type, link and network bandwidth: what theory tells nodes apart by"""


def _kind(node: Node) -> _Kind:
    return node.gpu_type, node.link_bandwidth, node.network_bandwidth


def _names(names: Sequence[str]) -> Names:
    column = np.empty(len(names), dtype=object)
    column[:] = names
    return column


def _rows(wanted: Wanted, fingerprints: list[Fingerprint], kinds: list[_Kind]) -> _Rows:
    widths = np.diff(wanted.start)
    configuration = np.repeat(np.arange(len(widths)), widths)
    workload_codes = {one: code for code, one in enumerate(fingerprints)}
    kind_codes = {one: code for code, one in enumerate(kinds)}
    workload = [workload_codes[one] if one is not None else -1 for one in wanted.fingerprints]
    kind = [kind_codes[_kind(node)] if node else -1 for node in wanted.nodes]
    distributed = widths[configuration] > 1
    return _Rows(
        workload=np.array(workload, dtype=np.int64)[wanted.job[configuration]],
        node=wanted.node,
        kind=np.array(kind, dtype=np.int64)[wanted.node],
        distributed=distributed.astype(np.int64),
        size=np.where(distributed, widths[configuration], wanted.gpus),
        gpus=np.add.reduceat(wanted.gpus, wanted.start[:-1])[configuration],
    )


def _nothing(rows: int) -> _Found:
    return _Found(
        mean=np.full(rows, np.nan),
        variance=np.full(rows, np.nan),
        count=np.zeros(rows, dtype=np.int64),
        layer=np.full(rows, THEORY),
    )


def _open(found: _Found, rows: _Rows) -> Whole:
    """Indices of the rows that no layer has answered and some may."""
    return np.flatnonzero(np.isnan(found.mean) & (rows.workload >= 0) & (rows.kind >= 0))


def _unique(*columns: Whole) -> tuple[Whole, Whole]:
    """First row of each distinct combination, and for every row which combination it is."""
    key = columns[0].copy()
    for column in columns[1:]:
        key = key * (int(column.max()) + 1) + column
    _, first, which = np.unique(key, return_index=True, return_inverse=True)
    return first, which


# ---- evidence


class _Look(msgspec.Struct, frozen=True):
    store: Store
    fingerprints: list[Fingerprint]
    enough: Enough


class _Places(msgspec.Struct, frozen=True):
    """Where a layer keeps its records."""

    names: Names
    of_row: Whole
    """index into `names`"""


def _types(wanted: Wanted, rows: _Rows) -> _Places:
    gpu_types = [node.gpu_type if node else "" for node in wanted.nodes]
    codes = {gpu_type: code for code, gpu_type in enumerate(dict.fromkeys(gpu_types))}
    of_node = np.array([codes[gpu_type] for gpu_type in gpu_types], dtype=np.int64)
    return _Places(_names(list(codes)), of_node[rows.node])


def _from_evidence(found: _Found, rows: _Rows, look: _Look, layer: int, places: _Places) -> None:
    todo = _open(found, rows)
    if not len(todo):
        return
    columns = (rows.workload[todo], places.of_row[todo], rows.distributed[todo], rows.size[todo])
    first, which = _unique(*columns)
    workload, place, distributed, size = (column[first] for column in columns)
    keys = Keys(
        layer=LAYERS[layer],
        fingerprint=_names(look.fingerprints)[workload],
        place=places.names[place],
        distributed=distributed.astype(np.bool_),
        size=size.astype(np.int32),
    )
    evidence = look.store.find(keys)
    answered = _enough(evidence, look.enough)[which]
    at, source = todo[answered], which[answered]
    found.mean[at] = evidence.mean[source]
    found.variance[at] = evidence.variance[source]
    found.count[at] = evidence.count[source]
    found.layer[at] = layer


def _enough(evidence: Evidence, enough: Enough) -> npt.NDArray[np.bool_]:
    many = evidence.count >= enough.observations
    return np.asarray(many | (evidence.seconds >= enough.seconds), dtype=np.bool_)


# ---- theory


class _Known(msgspec.Struct, frozen=True):
    """Time modules by workload and kind of node."""

    index: Whole
    """(workloads, kinds) into `modules`; −1: none"""
    modules: list[TimeModules]


def _from_theory(
    found: _Found,
    rows: _Rows,
    theory: dict[Fingerprint, Theory],
    fingerprints: list[Fingerprint],
    kinds: list[_Kind],
) -> None:
    known = _known(theory, fingerprints, kinds)
    todo = _open(found, rows)
    todo = todo[known.index[rows.workload[todo], rows.kind[todo]] >= 0] if known.modules else todo[:0]
    if not len(todo):
        return
    columns = (rows.workload[todo], rows.kind[todo], rows.distributed[todo], rows.gpus[todo])
    first, of_row = _unique(*columns)
    workloads, kinds_asked, distributed, gpus = (column[first] for column in columns)
    batches = np.array([theory[one].batch_size if one in theory else 0 for one in fingerprints])
    link, network = np.array([bandwidths for _, *bandwidths in kinds], dtype=np.float64).T
    gangs = Gangs(
        modules=known.modules,
        which=known.index[workloads, kinds_asked],
        batch_size=batches[workloads],
        gpus=gpus,
        distributed=distributed.astype(np.bool_),
        bandwidth=np.where(distributed, network[kinds_asked], link[kinds_asked]),
    )
    found.mean[todo] = per_gpu_throughput(gangs)[of_row]


def _known(theory: dict[Fingerprint, Theory], fingerprints: list[Fingerprint], kinds: list[_Kind]) -> _Known:
    known = _Known(np.full((len(fingerprints), len(kinds)), -1), [])
    for workload, fingerprint in enumerate(fingerprints):
        by_type = theory[fingerprint].modules if fingerprint in theory else {}
        for kind, (gpu_type, _, _) in enumerate(kinds):
            if gpu_type in by_type:
                known.index[workload, kind] = len(known.modules)
                known.modules.append(by_type[gpu_type])
    return known


# ---- configurations


def _per_configuration(wanted: Wanted, found: _Found) -> Answer:
    """The slowest node decides: its throughput, its layer, its evidence."""
    first, widths = wanted.start[:-1], np.diff(wanted.start)
    slowest_mean = np.minimum.reduceat(found.mean, first)  # NaN wins: one unknown node, nothing known
    is_slowest = found.mean == np.repeat(slowest_mean, widths)
    index = np.where(is_slowest, np.arange(len(found.mean)), len(found.mean))
    slowest = np.minimum.reduceat(index, first)
    slowest = np.where(np.isnan(slowest_mean), first, slowest)
    unknown = np.isnan(slowest_mean)
    gpus = np.add.reduceat(wanted.gpus, first)
    return Answer(
        throughput=slowest_mean * gpus,
        variance=np.where(unknown, np.nan, found.variance[slowest] * gpus.astype(np.float64) ** 2),
        count=np.where(unknown, 0, found.count[slowest]),
        layer=np.where(unknown, THEORY, found.layer[slowest]),
    )
