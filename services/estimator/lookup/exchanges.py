"""Whose path the nodes of a configuration exchange their gradients over. Pure.

They exchange together, so where their paths are unlike, the exchange takes all of them as long as it takes on
the slowest path.
"""

import msgspec
import numpy as np

from services.estimator.lookup.columns import Wanted
from services.estimator.lookup.theory_table import TheoryTable, gangs_of
from services.estimator.store.table import Whole
from shared.domain.iteration import communication_s


class Rows(msgspec.Struct, frozen=True):
    """Some configurations, and their cells one after another."""

    row: Whole
    begin: Whole
    """first cell of each row"""
    cell: Whole
    """each cell's position in the question"""
    of: Whole
    """each cell's row"""
    widths: Whole


def rows_of(wanted: Wanted, row: Whole) -> Rows:
    widths = np.diff(wanted.start)[row]
    begin = np.cumsum(widths) - widths
    of = np.repeat(np.arange(len(row)), widths)
    cell = wanted.start[row][of] + np.arange(len(of)) - begin[of]
    return Rows(row, begin, cell, of, widths)


def slowest_paths(wanted: Wanted, table: TheoryTable, workload: Whole) -> Whole | None:
    """By cell: the kind of node whose path its configuration has; None: each node has its own.

    `workload`: number of each row's workload. Kinds on which theory does not know it do not count.
    """
    own = table.path[table.kind[wanted.node]]
    row = _unlike(wanted, own)
    if not len(row):
        return None
    rows = rows_of(wanted, row)
    workload, kind = workload[row][rows.of], table.kind[wanted.node[rows.cell]]
    there = np.flatnonzero(table.modules_index[workload, kind] >= 0)
    exchange_s = np.full(len(rows.cell), -1.0)
    if len(there):
        gangs = gangs_of(
            table,
            workload[there],
            kind[there],
            nodes=rows.widths[rows.of[there]],
            gpus=np.add.reduceat(wanted.gpus[rows.cell], rows.begin)[rows.of[there]],
            fewest=np.minimum.reduceat(wanted.gpus[rows.cell], rows.begin)[rows.of[there]],
        )
        parameters = np.array([one.times.parameters for one in gangs.modules])[gangs.which]
        exchange_s[there] = communication_s(
            parameters=parameters,
            gpus=gangs.gpus,
            distributed=gangs.distributed,
            bandwidth=gangs.bandwidth,
            latency_s=gangs.latency_s,
        )
    slowest = np.lexsort((-exchange_s, rows.of))[rows.begin]
    own[rows.cell] = own[rows.cell[slowest]][rows.of]
    return own


def _unlike(wanted: Wanted, path: Whole) -> Whole:
    """The configurations whose nodes have unlike paths."""
    unlike = path[1:] != path[:-1]
    unlike[wanted.start[1:-1] - 1] = False
    return np.unique(np.searchsorted(wanted.start, unlike.nonzero()[0] + 1, side="right") - 1)
