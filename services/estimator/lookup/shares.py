"""Gangs whose nodes take unlike parts of the batch (JPS, eq. 12 and 13). Pure.

A GPU takes s samples of an iteration, where in lockstep it would take b. With the pace, samples/s, that the
layers found for it in lockstep, it needs

    T(s) = b / pace · T_theory(s) / T_theory(b)
    T_theory(s): T_d, T_f and T_b times s / b, T_u as it is, T_c by the slowest path of all nodes
    throughput = Σ samples / max over nodes of T(⌈samples / GPUs⌉) · correction

So where theory is all that is known, T(s) = T_theory(s); and where evidence showed a node to be slower than
theory, it stays slower by the same factor. Without theory T(s) = s / pace. The correction is what gangs on
these GPU types showed (see `theory.correction`).
"""

from collections.abc import Mapping

import msgspec
import numpy as np
import numpy.typing as npt

from schemas.cluster import Node
from schemas.ids import Fingerprint
from services.estimator.lookup.columns import Estimated, Wanted
from services.estimator.lookup.exchanges import Rows, rows_of
from services.estimator.lookup.theory_table import TheoryTable, gangs_of
from services.estimator.store.contract import Correction
from services.estimator.store.table import Whole
from services.estimator.theory.correction import types_of
from services.estimator.theory.formula import per_gpu_throughput
from shared.domain.iteration import Column


class LockstepPaces(msgspec.Struct, frozen=True):
    """Paces by cell (a node of a configuration), from whichever layer answered."""

    mean: Column
    """samples/s per GPU"""
    variance: Column
    count: Whole
    layer: Whole


Corrections = Mapping[Fingerprint, Mapping[str, Correction]]
"""corrections by workload and GPU types"""


class ShareContext(msgspec.Struct, frozen=True):
    theory: TheoryTable
    workload: Whole
    """number of each row's workload"""
    path: Whole
    """by cell: the kind of node whose path it is on"""
    corrections: Corrections


def shared(wanted: Wanted) -> Whole:
    """The configurations with unlike shares."""
    if not len(wanted.samples):
        return wanted.job[:0]
    return np.flatnonzero(wanted.samples[wanted.start[:-1]] > 0)


def with_shares(wanted: Wanted, found: Estimated, paces: LockstepPaces, context: ShareContext) -> Estimated:
    """`found`, with the configurations of unlike shares estimated again."""
    row = shared(wanted)
    if not len(row):
        return found
    rows = rows_of(wanted, row)
    taken_s = _taken_s(wanted, rows, paces, context)
    longest_s = np.maximum.reduceat(taken_s, rows.begin)  # of unknown and known: unknown
    throughput = np.add.reduceat(wanted.samples[rows.cell], rows.begin) / longest_s
    throughput *= _corrections(wanted, rows, context)
    slowest = rows.cell[_first(taken_s == longest_s[rows.of], rows)]
    answer = msgspec.structs.replace(
        found,
        throughput=found.throughput.copy(),
        variance=found.variance.copy(),
        count=found.count.copy(),
        layer=found.layer.copy(),
    )
    answer.throughput[row] = throughput
    answer.variance[row] = paces.variance[slowest] * np.square(throughput / paces.mean[slowest])
    answer.count[row] = paces.count[slowest]
    answer.layer[row] = paces.layer[slowest]
    return answer


def _first(here: npt.NDArray[np.bool_], rows: Rows) -> Whole:
    """Position of the first cell of each row that is `here`; of its very first where none is."""
    positions = np.where(here, np.arange(len(here)), len(here))
    first = np.minimum.reduceat(positions, rows.begin)
    return np.asarray(np.where(first < len(here), first, rows.begin), dtype=np.int64)


def _taken_s(wanted: Wanted, rows: Rows, paces: LockstepPaces, context: ShareContext) -> Column:
    """Seconds that a GPU of each cell takes for an iteration; NaN where nothing is known."""
    theory, cell = context.theory, rows.cell
    each = -(-wanted.samples[cell] // wanted.gpus[cell])
    pace = paces.mean[cell]
    taken_s = each / pace
    workload, kind = context.workload[rows.row][rows.of], theory.kind[wanted.node[cell]]
    there = np.flatnonzero((theory.modules_index[workload, kind] >= 0) & ~np.isnan(pace))
    if not len(there):
        return taken_s
    gpus = np.add.reduceat(wanted.gpus[cell], rows.begin)[rows.of]
    fewest = np.minimum.reduceat(wanted.gpus[cell], rows.begin)[rows.of]
    batch_size = theory.batch_size[workload[there]]
    alike = gangs_of(
        theory,
        workload[there],
        kind[there],
        nodes=rows.widths[rows.of[there]],
        gpus=gpus[there],
        fewest=fewest[there],
        path=context.path[cell[there]],
    )
    unlike = msgspec.structs.replace(alike, share=each[there] / batch_size)
    ideal = per_gpu_throughput(alike)
    taken_s[there] = each[there] / per_gpu_throughput(unlike) * (ideal / pace[there])
    return taken_s


def _corrections(wanted: Wanted, rows: Rows, context: ShareContext) -> Column:
    factors = np.ones(len(rows.row))
    if not any(context.corrections.values()):
        return factors
    ends = np.append(rows.begin[1:], len(rows.cell))
    known: dict[tuple[Node | None, ...], str] = {}
    for index, (begin, end) in enumerate(zip(rows.begin.tolist(), ends.tolist(), strict=True)):
        fingerprint = wanted.fingerprints[wanted.job[rows.row[index]]]
        of_workload = context.corrections.get(fingerprint, {}) if fingerprint else {}
        if of_workload:
            nodes = tuple(wanted.nodes[node] for node in wanted.node[rows.cell[begin:end]].tolist())
            types = known.setdefault(nodes, types_of(node.gpu_type for node in nodes if node))
            if types in of_workload:
                factors[index] = of_workload[types].factor
    return factors
