"""Estimates by layers of evidence, for many configurations (Hops section 3.5). Pure but for the store.

Per node of a configuration: what this server showed, else what its GPU type showed (of a type that stands in
several models of server, those of this model: `hosts`), else theory. Then

    throughput = min over nodes of the per-GPU throughput there · all GPUs

A *cell* is a question about one node: workload, node, and the shape of the gang there. Equal cells, in
whatever configuration and for whatever job of a workload, are answered once: a million configurations of a
large cluster have some ten thousand. Configurations whose nodes take unlike shares of the batch are answered
in `shares`, from the paces found here.
"""

from functools import lru_cache

import msgspec
import numpy as np
import numpy.typing as npt

from schemas.cluster import Node
from schemas.ids import Fingerprint
from schemas.questions import LAYERS
from services.estimator.lookup.columns import Estimated, Wanted
from services.estimator.lookup.exchanges import slowest_paths
from services.estimator.lookup.hosts import CLUSTERS_KEPT, Hosts, hosts_of, of_like_servers
from services.estimator.lookup.ideals import Alike
from services.estimator.lookup.residuals import LookupContext, Residuals
from services.estimator.lookup.shares import LockstepPaces, ShareContext, shared, with_shares
from services.estimator.lookup.theory_table import TheoryTable, theory_table
from services.estimator.store.contract import Evidence, Keys, Store, entity, size_of
from services.estimator.store.distinct import distinct
from services.estimator.store.table import Whole
from shared.domain.iteration import OURS, Column, Law

ENTITY, TYPE, THEORY = (LAYERS.index(name) for name in ("entity", "type", "theory"))


class EvidenceThreshold(msgspec.Struct, frozen=True):
    """How much evidence a layer needs to answer: a number of observations, or of seconds of running."""

    observations: int
    seconds: float


class _Cells(msgspec.Struct, frozen=True):
    """The distinct cells, a row each."""

    workload: Whole
    """number of the fingerprint"""
    node: Whole
    """index into the wanted nodes"""
    distributed: npt.NDArray[np.bool_]
    nodes: Whole
    """nodes of the whole configuration"""
    gpus: Whole
    """N, GPUs of the whole configuration"""
    fewest: Whole
    """GPUs of the node that has the fewest"""
    size: Whole
    """the store's row for the shape (see `Keys.size`)"""
    path: Whole
    """kind of node whose path the configuration exchanges over"""


class _Found(msgspec.Struct, frozen=True):
    """Answers by cell, filled in from the top layer down."""

    mean: Column
    """samples/s per GPU"""
    variance: Column
    count: Whole
    layer: Whole


def estimate(
    wanted: Wanted,
    store: Store,
    threshold: EvidenceThreshold,
    law: Law = OURS,
    *,
    cluster: tuple[Node, ...] = (),
    residuals: Residuals | None = None,
) -> Estimated:
    """Answer every configuration. Raises StoreUnavailable.

    `cluster`: all nodes that are known, whether the question names them or not; `residuals`: of the same law
    and store.
    """
    if not len(wanted.job):
        nothing = np.zeros(0)
        return Estimated(throughput=nothing, variance=nothing, count=wanted.job, layer=wanted.job)
    fingerprints = [one for one in dict.fromkeys(wanted.fingerprints) if one is not None]
    gpus, workload = _gpus(wanted), _workloads(wanted, fingerprints)
    theory = theory_table(fingerprints, wanted.nodes, store, law, cluster)
    path = slowest_paths(wanted, theory, workload)
    cells, which = _cells(wanted, workload, gpus, theory, path)
    found = _nothing(len(cells.node))
    known = (cells.workload < len(fingerprints)) & _there(wanted.nodes)[cells.node]
    hosts = hosts_of(wanted.nodes, cluster)
    unlike = path is not None
    asked = _Asked(fingerprints, wanted.nodes, store, threshold, theory, known, hosts, unlike)
    if any(_places(wanted.nodes, ENTITY)):
        _from_evidence(found, cells, asked, ENTITY)
    _from_like_servers(found, cells, asked)
    _from_types(found, cells, asked, residuals or Residuals())
    answer = _per_configuration(wanted, gpus, found, which)
    if not len(shared(wanted)):
        return answer
    paces = LockstepPaces(
        mean=found.mean[which],
        variance=found.variance[which],
        count=found.count[which],
        layer=found.layer[which],
    )
    corrections = {one: of.corrections for one, of in store.theory(fingerprints).items()}
    context = ShareContext(theory, workload, cells.path[which], corrections)
    return with_shares(wanted, answer, paces, context)


# ---- cells


class _Asked(msgspec.Struct, frozen=True):
    fingerprints: list[Fingerprint]
    nodes: tuple[Node | None, ...]
    store: Store
    threshold: EvidenceThreshold
    theory: TheoryTable
    known: npt.NDArray[np.bool_]
    """whether the cell's workload and node are known"""
    hosts: Hosts
    unlike_paths: bool
    """whether some configuration has nodes on unlike paths"""


def _cells(
    wanted: Wanted, workload: Whole, gpus: Whole, theory: TheoryTable, path: Whole | None
) -> tuple[_Cells, Whole]:
    """The distinct cells, and which of them each node of each configuration is.

    `gpus`: of all nodes of a configuration; `path`: as `slowest_paths` has it.
    """
    widths = wanted.start[1:] - wanted.start[:-1]
    nodes, fewest = np.where(widths > 1, widths, 0), gpus
    if len(wanted.node) > len(widths):
        fewest = np.minimum.reduceat(wanted.gpus, wanted.start[:-1])
        columns = (workload, gpus, nodes, fewest)
        workload, gpus, nodes, fewest = (np.repeat(column, widths) for column in columns)
    # One node: the whole configuration's GPUs are the node's, so N and `nodes` say all.
    first, which = distinct((workload, wanted.node, nodes, gpus, fewest, *([] if path is None else [path])))
    workload, nodes, gpus, fewest = (column[first] for column in (workload, nodes, gpus, fewest))
    node = wanted.node[first]
    cells = _Cells(
        workload=workload,
        node=node,
        distributed=nodes > 0,
        nodes=np.maximum(nodes, 1),
        gpus=gpus,
        fewest=fewest,
        size=np.where(nodes > 0, size_of(nodes, gpus) if theory.law.counts else nodes, gpus),
        path=theory.path[theory.kind[node]] if path is None else path[first],
    )
    return cells, which


def _workloads(wanted: Wanted, fingerprints: list[Fingerprint]) -> Whole:
    """The number of each row's fingerprint; for an unknown job, one beyond the last."""
    codes = {one: code for code, one in enumerate(fingerprints)}
    unknown = len(fingerprints)
    of_job = np.array([codes.get(one, unknown) for one in wanted.fingerprints], dtype=np.int64)  # type: ignore[arg-type]
    return np.asarray(of_job[wanted.job], dtype=np.int64)


def _nothing(cells: int) -> _Found:
    return _Found(
        mean=np.full(cells, np.nan),
        variance=np.full(cells, np.nan),
        count=np.zeros(cells, dtype=np.int64),
        layer=np.full(cells, THEORY),
    )


def _open(found: _Found, asked: _Asked) -> Whole:
    """Indices of the cells that no layer has answered, of known workloads and nodes."""
    return (np.isnan(found.mean) & asked.known).nonzero()[0]


# ---- evidence


def _from_evidence(found: _Found, cells: _Cells, asked: _Asked, layer: int) -> None:
    todo = _open(found, asked)
    if not len(todo):
        return
    keys = Keys(
        layer=LAYERS[layer],
        fingerprints=asked.fingerprints,
        places=_places(asked.nodes, layer),
        workload=cells.workload[todo],
        place=cells.node[todo],
        distributed=cells.distributed[todo],
        size=cells.size[todo],
    )
    _fill(found, todo, asked.store.find(keys), layer, asked.threshold)


def _from_like_servers(found: _Found, cells: _Cells, asked: _Asked) -> None:
    """Answer from the pooled evidence of all servers of the node's model, looked up once for all of them."""
    hosts = asked.hosts
    if not hosts.place:
        return
    todo = _open(found, asked)
    todo = todo[hosts.kind[cells.node[todo]] >= 0]
    if not len(todo):
        return
    kind, distributed, size = hosts.kind[cells.node[todo]], cells.distributed[todo], cells.size[todo]
    first, of_cell = distinct((cells.workload[todo], kind, distributed.astype(np.int64), size))
    evidence = of_like_servers(
        hosts,
        asked.store,
        asked.fingerprints,
        workload=cells.workload[todo][first],
        kind=kind[first],
        distributed=distributed[first],
        size=size[first],
    )
    of_each = Evidence(*(getattr(evidence, name)[of_cell] for name in Evidence.__struct_fields__))
    _fill(found, todo, of_each, TYPE, asked.threshold)


def _where_alike(asked: _Asked, cells: _Cells) -> _Asked:
    """Leave out nodes whose type stands in unlike servers: theory is nearer than what other models showed."""
    if not (asked.hosts.place and asked.theory.law.learns):
        return asked
    return msgspec.structs.replace(asked, known=asked.known & (asked.hosts.kind[cells.node] < 0))


def _fill(found: _Found, todo: Whole, evidence: Evidence, layer: int, threshold: EvidenceThreshold) -> None:
    """Enter the answers of cells for which there is enough evidence."""
    answered = _suffices(evidence, threshold)
    at = todo[answered]
    found.mean[at] = evidence.mean[answered]
    found.variance[at] = np.where(evidence.count > 1, evidence.variance, np.nan)[answered]
    found.count[at] = evidence.count[answered]
    found.layer[at] = layer


@lru_cache(CLUSTERS_KEPT)
def _there(nodes: tuple[Node | None, ...]) -> npt.NDArray[np.bool_]:
    return np.array([node is not None for node in nodes], dtype=np.bool_)


@lru_cache(2 * CLUSTERS_KEPT)
def _places(nodes: tuple[Node | None, ...], layer: int) -> tuple[str, ...]:
    """The store's place of each node; empty for an unknown node and, in the entity layer, one without id."""
    return tuple([_place(node, layer) for node in nodes])


def _place(node: Node | None, layer: int) -> str:
    if node is None or (layer == ENTITY and not node.node_id):
        return ""
    return entity(node.node_id, node.gpu_type) if layer == ENTITY else node.gpu_type


def _suffices(evidence: Evidence, threshold: EvidenceThreshold) -> npt.NDArray[np.bool_]:
    many = evidence.count >= threshold.observations
    return np.asarray(many | (evidence.seconds >= threshold.seconds), dtype=np.bool_)


# ---- types


def _from_types(found: _Found, cells: _Cells, asked: _Asked, residuals: Residuals) -> None:
    """Answer from the type layer, else from theory; cells equal but for the node are answered once.

    Where a type stands in unlike servers, theory comes before what the other models of server showed.
    """
    todo = _open(found, asked)
    if not len(todo):
        return
    node = cells.node[todo]
    columns = [cells.workload[todo], asked.theory.kind[node], cells.nodes[todo], cells.gpus[todo]]
    columns.append(cells.fewest[todo])
    if asked.unlike_paths:
        columns.append(cells.path[todo])
    if asked.hosts.place:
        columns.append(asked.hosts.kind[node] + 1)
    first, of_cell = distinct(columns)
    rows = todo[first]
    alike = _Cells(*(getattr(cells, name)[rows] for name in _Cells.__struct_fields__))
    one = msgspec.structs.replace(asked, known=np.ones(len(rows), dtype=np.bool_))
    own = _nothing(len(rows))
    where_alike = _where_alike(one, alike)
    _from_evidence(own, alike, where_alike, TYPE)
    _from_theory(own, alike, one, residuals)
    if where_alike is not one:
        _from_evidence(own, alike, one, TYPE)
    for name in _Found.__struct_fields__:
        getattr(found, name)[todo] = getattr(own, name)[of_cell]


def _from_theory(found: _Found, cells: _Cells, asked: _Asked, residuals: Residuals) -> None:
    """Answer from theory, times the factor that residuals give. `cells`: all distinct."""
    theory = asked.theory
    todo = _open(found, asked)
    workload, kind = cells.workload[todo], theory.kind[cells.node[todo]]
    answers = theory.modules_index[workload, kind] >= 0
    if not answers.any():
        return
    todo, workload, kind = todo[answers], workload[answers], kind[answers]
    nodes, gpus = cells.nodes[todo], cells.gpus[todo]
    alike = Alike(
        workload=workload, kind=kind, path=cells.path[todo], nodes=nodes, gpus=gpus, fewest=cells.fewest[todo]
    )
    throughput = residuals.ideals.of(alike, theory, asked.fingerprints, asked.store)
    if theory.law.learns:
        context = LookupContext(asked.store, theory, asked.hosts)
        learnt = residuals.factors(context, asked.fingerprints)
        hosts = asked.hosts.kind[cells.node[todo]]
        place = [
            asked.hosts.place[host] if host >= 0 else (theory.gpu_types[one], "")
            for one, host in zip(kind.tolist(), hosts.tolist(), strict=True)
        ]
        throughput *= learnt.of(workload, place, nodes, gpus)
    found.mean[todo] = throughput


# ---- configurations


def _per_configuration(wanted: Wanted, gpus: Whole, found: _Found, which: Whole) -> Estimated:
    """Each configuration with the answer of its slowest node; unknown if one of its nodes is unknown."""
    slowest = which
    if len(which) > len(gpus):
        pace = np.where(np.isnan(found.mean), -np.inf, found.mean)[which]
        first = wanted.start[:-1]
        least = np.repeat(np.minimum.reduceat(pace, first), np.diff(wanted.start))
        slowest = np.minimum.reduceat(np.where(pace == least, which, len(found.mean)), first)
    return Estimated(
        throughput=found.mean[slowest] * gpus,
        variance=found.variance[slowest] * np.square(gpus, dtype=np.float64),
        count=found.count[slowest],
        layer=found.layer[slowest],
    )


def _gpus(wanted: Wanted) -> Whole:
    """GPUs of each configuration, over its nodes."""
    if len(wanted.node) == len(wanted.job):
        return wanted.gpus
    upto = np.concatenate([[0], np.cumsum(wanted.gpus)])
    return np.asarray(upto[wanted.start[1:]] - upto[wanted.start[:-1]], dtype=np.int64)
