"""What theory knows of the workloads and nodes of a question, by number. Pure but for the store."""

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

import msgspec
import numpy as np

from schemas.calibration import Path
from schemas.cluster import Node
from schemas.ids import Fingerprint, GpuType
from services.estimator.lookup.hosts import CLUSTERS_KEPT
from services.estimator.store.contract import Bandwidth, Store, Theory
from services.estimator.store.table import Whole
from services.estimator.theory.formula import Gangs, Modules
from services.estimator.theory.paths import exchange, paths_of
from shared.domain.iteration import OURS, Column, Law

_Kind = tuple[GpuType, tuple[Path, ...]]
"""a GPU type and the paths of its gradients: theory takes nodes of one kind for alike"""
NOWHERE: _Kind = (GpuType(""), ())


class TheoryTable(msgspec.Struct, frozen=True):
    kind: Whole
    """kind of each node"""
    gpu_types: list[GpuType]
    """GPU type of each kind"""
    paths: list[tuple[Path, ...]]
    """measured paths of each kind"""
    path: Whole
    """of each kind, the first kind that has equal paths"""
    modules_index: Whole
    """by workload and kind; −1: theory knows nothing of it"""
    modules: list[Modules]
    batch_size: Whole
    """samples per GPU and iteration, by workload; the last entry, for an unknown workload, is 0"""
    types: Mapping[GpuType, tuple[Path, ...]]
    """types of the cluster, each with the paths of its first kind"""
    law: Law = OURS


class WorkloadTheory(msgspec.Struct, frozen=True):
    """What theory knows of one workload: a table with one kind a type."""

    table: TheoryTable
    kinds: dict[GpuType, int]
    """kinds in the table, by type, for the types on which theory knows the workload"""


def theory_table(
    fingerprints: list[Fingerprint],
    nodes: tuple[Node | None, ...],
    store: Store,
    law: Law = OURS,
    cluster: tuple[Node, ...] = (),
) -> TheoryTable:
    """`nodes`: of the question; `cluster`: others that may be there. Raises StoreUnavailable."""
    codes, types, kind_of, path = _kinds(nodes, cluster, tuple(store.bandwidths().items()), law)
    theory = store.theory(fingerprints)
    index, modules = _modules(theory, fingerprints, codes)
    batches = [theory[one].batch_size if one in theory else 0 for one in fingerprints]
    return TheoryTable(
        kind=kind_of,
        gpu_types=[gpu_type for gpu_type, _ in codes],
        paths=[paths for _, paths in codes],
        path=path,
        modules_index=index,
        modules=modules,
        batch_size=np.array([*batches, 0]),
        types=types,
        law=law,
    )


def workload_theory(
    fingerprint: Fingerprint, types: Mapping[GpuType, tuple[Path, ...]], store: Store, law: Law = OURS
) -> WorkloadTheory:
    """Raises StoreUnavailable."""
    theory = store.theory([fingerprint])
    index, modules = _modules(theory, [fingerprint], list(types.items()))
    table = TheoryTable(
        kind=np.arange(len(types)),
        gpu_types=list(types),
        paths=list(types.values()),
        path=np.arange(len(types)),
        modules_index=index,
        modules=modules,
        batch_size=np.array([one.batch_size for one in theory.values()] or [0]),
        types=types,
        law=law,
    )
    return WorkloadTheory(table, {one: kind for kind, one in enumerate(types) if index[0, kind] >= 0})


def _types(kinds: Iterable[_Kind]) -> dict[GpuType, tuple[Path, ...]]:
    """The paths of each type: those of its first kind in an order that does not depend on the nodes'."""
    found: dict[GpuType, tuple[Path, ...]] = {}
    for gpu_type, paths in sorted(kinds, key=lambda kind: (kind[0], *map(msgspec.structs.astuple, kind[1]))):
        if gpu_type:
            found.setdefault(gpu_type, paths)
    return found


def gangs_of(
    table: TheoryTable,
    workload: Whole,
    kind: Whole,
    *,
    nodes: Whole,
    gpus: Whole,
    fewest: Whole | None = None,
    path: Whole | None = None,
    share: Column | None = None,
) -> Gangs:
    """A row a gang.

    `fewest`: GPUs of the node that has the fewest; None: all nodes have as many. `path`: the kind whose path
    it is on; None: its own. `share`: samples that a GPU takes of an iteration / batch size.
    """
    fewest = gpus // nodes if fewest is None else fewest
    path = kind if path is None else path
    latency_s, bandwidth = exchange(table.paths, path, nodes > 1, fewest=fewest, gpus=gpus)
    return Gangs(
        modules=table.modules,
        which=table.modules_index[workload, kind],
        batch_size=table.batch_size[workload],
        gpus=gpus,
        distributed=nodes > 1,
        latency_s=latency_s,
        bandwidth=bandwidth,
        share=share,
        law=table.law,
    )


@lru_cache(CLUSTERS_KEPT)
def _kinds(
    nodes: tuple[Node | None, ...],
    cluster: tuple[Node, ...],
    bandwidths: tuple[tuple[GpuType, Bandwidth], ...],
    law: Law,
) -> tuple[tuple[_Kind, ...], Mapping[GpuType, tuple[Path, ...]], Whole, Whole]:
    """Kinds of the question's nodes by number, the paths of types, the kind of each node, and `path`."""
    measured = dict(bandwidths)
    alike: dict[tuple[object, ...], _Kind] = {}
    kinds = []
    for node in (*nodes, *cluster):
        look = (node.gpu_type, node.link_bandwidth, node.network_bandwidth) if node else ()
        if look not in alike:
            alike[look] = _kind(node, measured, law)
        kinds.append(alike[look])
    codes = {kind: code for code, kind in enumerate(dict.fromkeys(kinds[: len(nodes)]))}
    kind_of = np.array([codes[kind] for kind in kinds[: len(nodes)]], dtype=np.int64)
    paths = [paths for _, paths in codes]
    path = np.array([paths.index(one) for one in paths], dtype=np.int64)
    return tuple(codes), _types(dict.fromkeys(kinds)), kind_of, path


def _kind(node: Node | None, measured: Mapping[GpuType, Bandwidth], law: Law) -> _Kind:
    return (node.gpu_type, paths_of(node, measured.get(node.gpu_type), law)) if node else NOWHERE


def _modules(
    theory: dict[Fingerprint, Theory], fingerprints: list[Fingerprint], kinds: Sequence[_Kind]
) -> tuple[Whole, list[Modules]]:
    """Time modules by workload and kind: indices into the list, −1 where there are none."""
    index, found = np.full((len(fingerprints) + 1, len(kinds)), -1), list[Modules]()
    for workload, fingerprint in enumerate(fingerprints):
        of_workload = theory.get(fingerprint)
        for kind, (gpu_type, _) in enumerate(kinds):
            if of_workload is not None and gpu_type in of_workload.modules:
                index[workload, kind] = len(found)
                found.append(Modules(of_workload.modules[gpu_type], of_workload.loading.get(gpu_type)))
    return index, found
