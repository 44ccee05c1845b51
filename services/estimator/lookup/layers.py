"""Top-down through the layers, for many configurations at once (Hops section 3.5). Pure but for the store.

Per node of a configuration: what this server showed, else what its GPU type showed, else theory. Then

    throughput = min over nodes of the per-GPU throughput there · all GPUs

Nodes that are asked about in the same way, in whatever configuration and for whatever job of a workload,
are looked up once: a million configurations of a large cluster are some ten thousand such cells.
"""

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from schemas.calibration import Path
from schemas.cluster import Node
from schemas.ids import Fingerprint, GpuType
from schemas.questions import LAYERS
from services.estimator.lookup.columns import Estimated, Wanted
from services.estimator.store.contract import Bandwidth, Evidence, Keys, Store, Theory
from services.estimator.store.distinct import distinct
from services.estimator.store.table import Whole
from services.estimator.theory.formula import Computed, Gangs, Modules
from services.estimator.theory.paths import exchange, paths_of
from shared.domain.iteration import Column

ENTITY, TYPE, THEORY = (LAYERS.index(name) for name in ("entity", "type", "theory"))


class Enough(msgspec.Struct, frozen=True):
    """With how much evidence a layer answers: either is enough."""

    observations: int
    seconds: float


class _Cells(msgspec.Struct, frozen=True):
    """What is asked about nodes, each thing once: a row a cell."""

    workload: Whole
    """code of the fingerprint"""
    node: Whole
    """index into the wanted nodes"""
    distributed: npt.NDArray[np.bool_]
    size: Whole
    """row in the table: GPUs on the node, or nodes when distributed"""
    gpus: Whole
    """N of the whole configuration"""


class _Found(msgspec.Struct, frozen=True):
    """Filled in from the top layer down, one row a cell."""

    mean: Column
    """samples/s per GPU"""
    variance: Column
    count: Whole
    layer: Whole


def estimate(wanted: Wanted, store: Store, enough: Enough, computed: Computed | None = None) -> Estimated:
    """Answer every configuration; `computed`: what theory came to before. Raises StoreUnavailable."""
    if not len(wanted.job):
        nothing = np.zeros(0)
        return Estimated(throughput=nothing, variance=nothing, count=wanted.job, layer=wanted.job)
    fingerprints = [one for one in dict.fromkeys(wanted.fingerprints) if one is not None]
    cells, which = _cells(wanted, fingerprints)
    found = _nothing(len(cells.node))
    there = np.array([node is not None for node in wanted.nodes], dtype=np.bool_)
    known = (cells.workload < len(fingerprints)) & there[cells.node]
    asked = _Asked(fingerprints, wanted.nodes, store, known)
    for layer in (ENTITY, TYPE):
        _from_evidence(found, cells, asked, layer, enough)
    _from_theory(found, cells, asked, computed or Computed())
    return _per_configuration(wanted, found, which)


# ---- cells


class _Asked(msgspec.Struct, frozen=True):
    fingerprints: list[Fingerprint]
    nodes: Sequence[Node | None]
    store: Store
    known: npt.NDArray[np.bool_]
    """by cell: its workload and its node are"""


def _cells(wanted: Wanted, fingerprints: list[Fingerprint]) -> tuple[_Cells, Whole]:
    """The distinct cells, and which of them each node of each configuration is."""
    widths = np.diff(wanted.start)
    codes = {one: code for code, one in enumerate(fingerprints)}
    unknown = len(fingerprints)
    of_job = np.array([codes.get(one, unknown) for one in wanted.fingerprints], dtype=np.int64)  # type: ignore[arg-type]
    workload, gpus = of_job[wanted.job], _gpus(wanted)
    nodes = np.where(widths > 1, widths, 0)
    if len(wanted.node) > len(widths):
        workload, gpus, nodes = (np.repeat(column, widths) for column in (workload, gpus, nodes))
    # One node: the whole configuration's GPUs are the node's, so N and `nodes` say all.
    first, which = distinct((workload, wanted.node, nodes, gpus))
    workload, nodes, gpus = workload[first], nodes[first], gpus[first]
    cells = _Cells(
        workload=workload,
        node=wanted.node[first],
        distributed=nodes > 0,
        size=np.where(nodes > 0, nodes, gpus),
        gpus=gpus,
    )
    return cells, which


def _nothing(cells: int) -> _Found:
    return _Found(
        mean=np.full(cells, np.nan),
        variance=np.full(cells, np.nan),
        count=np.zeros(cells, dtype=np.int64),
        layer=np.full(cells, THEORY),
    )


def _open(found: _Found, asked: _Asked) -> Whole:
    """Indices of the cells that no layer has answered and some may."""
    return np.flatnonzero(np.isnan(found.mean) & asked.known)


# ---- evidence


def _from_evidence(found: _Found, cells: _Cells, asked: _Asked, layer: int, enough: Enough) -> None:
    todo = _open(found, asked)
    if not len(todo):
        return
    keys = Keys(
        layer=LAYERS[layer],
        fingerprints=asked.fingerprints,
        places=[_place(node, layer) for node in asked.nodes],
        workload=cells.workload[todo],
        place=cells.node[todo],
        distributed=cells.distributed[todo],
        size=cells.size[todo],
    )
    evidence = asked.store.find(keys)
    answered = _enough(evidence, enough)
    at = todo[answered]
    found.mean[at] = evidence.mean[answered]
    found.variance[at] = evidence.variance[answered]
    found.count[at] = evidence.count[answered]
    found.layer[at] = layer


def _place(node: Node | None, layer: int) -> str:
    if node is None:
        return ""
    return node.node_id if layer == ENTITY else node.gpu_type


def _enough(evidence: Evidence, enough: Enough) -> npt.NDArray[np.bool_]:
    many = evidence.count >= enough.observations
    return np.asarray(many | (evidence.seconds >= enough.seconds), dtype=np.bool_)


# ---- theory

_Kind = tuple[GpuType, tuple[Path, ...]]
"""what theory distinguishes nodes by"""
NOWHERE: _Kind = (GpuType(""), ())


def _from_theory(found: _Found, cells: _Cells, asked: _Asked, computed: Computed) -> None:
    codes, kind_of = _kinds(asked.nodes, asked.store.bandwidths())
    theory = asked.store.theory(asked.fingerprints)
    index, modules = _known(theory, asked.fingerprints, list(codes))
    todo = _open(found, asked)
    todo = todo[index[cells.workload[todo], kind_of[cells.node[todo]]] >= 0] if modules else todo[:0]
    if not len(todo):
        return
    workload, kind, nodes = cells.workload[todo], kind_of[cells.node[todo]], _nodes(cells)[todo]
    first, of_cell = distinct((workload, kind, nodes, cells.gpus[todo]))
    workload, kind, nodes, gpus = workload[first], kind[first], nodes[first], cells.gpus[todo[first]]
    batches = np.array([theory[one].batch_size if one in theory else 0 for one in asked.fingerprints])
    kind_paths = [paths for _, paths in codes]
    distributed = nodes > 1
    latency_s, bandwidth = exchange(kind_paths, kind, distributed, gpus / nodes)
    gangs = Gangs(
        modules=modules,
        which=index[workload, kind],
        batch_size=batches[workload],
        gpus=gpus,
        distributed=distributed,
        latency_s=latency_s,
        bandwidth=bandwidth,
    )
    found.mean[todo] = computed.per_gpu_throughput(gangs)[of_cell]


def _kinds(
    nodes: Sequence[Node | None], measured: Mapping[GpuType, Bandwidth]
) -> tuple[dict[_Kind, int], Whole]:
    """Kinds by number, and the number of each node. Most nodes are alike, and looked at once."""
    codes: dict[_Kind, int] = {}
    alike: dict[tuple[object, ...], int] = {}
    kind_of = []
    for node in nodes:
        look = (node.gpu_type, node.link_bandwidth, node.network_bandwidth) if node else ()
        if look not in alike:
            alike[look] = codes.setdefault(_kind(node, measured), len(codes))
        kind_of.append(alike[look])
    return codes, np.array(kind_of, dtype=np.int64)


def _kind(node: Node | None, measured: Mapping[GpuType, Bandwidth]) -> _Kind:
    return (node.gpu_type, paths_of(node, measured.get(node.gpu_type))) if node else NOWHERE


def _nodes(cells: _Cells) -> Whole:
    return np.where(cells.distributed, cells.size, 1)


def _known(
    theory: dict[Fingerprint, Theory], fingerprints: list[Fingerprint], kinds: list[_Kind]
) -> tuple[Whole, list[Modules]]:
    """Time modules by workload and kind: indices into the list, −1 where there are none."""
    index, known = np.full((len(fingerprints) + 1, len(kinds)), -1), list[Modules]()
    for workload, fingerprint in enumerate(fingerprints):
        of_workload = theory.get(fingerprint)
        for kind, (gpu_type, _) in enumerate(kinds):
            if of_workload is not None and gpu_type in of_workload.modules:
                index[workload, kind] = len(known)
                known.append(Modules(of_workload.modules[gpu_type], of_workload.loading.get(gpu_type)))
    return index, known


# ---- configurations


def _per_configuration(wanted: Wanted, found: _Found, which: Whole) -> Estimated:
    """The slowest node decides: its throughput, its layer, its evidence. One unknown: nothing is known."""
    gpus = _gpus(wanted)
    slowest = which
    if len(which) > len(gpus):
        order = np.argsort(np.where(np.isnan(found.mean), -np.inf, found.mean), kind="stable")
        rank = np.empty(len(order), dtype=np.int32)
        rank[order] = np.arange(len(order), dtype=np.int32)
        slowest = order[np.minimum.reduceat(rank[which], wanted.start[:-1])]
    return Estimated(
        throughput=found.mean[slowest] * gpus,
        variance=found.variance[slowest] * np.square(gpus, dtype=np.float64),
        count=found.count[slowest],
        layer=found.layer[slowest],
    )


def _gpus(wanted: Wanted) -> Whole:
    """Of each configuration, over its nodes."""
    upto = np.concatenate([[0], np.cumsum(wanted.gpus)])
    return np.asarray(upto[wanted.start[1:]] - upto[wanted.start[:-1]], dtype=np.int64)
