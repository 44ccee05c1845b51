"""Rows that ask for the same thing, found without sorting where their codes lie close together. Pure."""

from collections.abc import Sequence

import numpy as np

from services.estimator.store.table import Whole

DENSE = 16
"""codes a row up to which a table over all codes is cheaper than sorting the rows"""
FEW = 10_000
"""codes that are always laid out"""
LEADING = 2
"""columns that keep their codes where all columns together lie too far apart; the others become one column"""
SMALL = 64
"""rows, at most, that are compared one by one"""


def distinct(columns: Sequence[Whole]) -> tuple[Whole, Whole]:
    """A row of each distinct combination, and for every row which combination it is. No value is negative.

    Combinations are in ascending order.
    """
    if len(columns[0]) <= SMALL:
        return _of_few(list(zip(*[column.tolist() for column in columns], strict=True)))
    key = columns[0].astype(np.int64)
    codes = int(key.max()) + 1
    for column in columns[1:]:
        width = int(column.max()) + 1
        key *= width
        key += column
        codes *= width
    if codes > DENSE * len(key) + FEW:
        if len(columns) > LEADING + 1:
            _, rest = distinct(columns[LEADING:])  # of few combinations, which then lie close together
            return distinct((*columns[:LEADING], rest))
        _, first, which = np.unique(key, return_index=True, return_inverse=True)
        return first, which
    row = np.full(codes, -1, dtype=np.int32)
    row[key] = np.arange(len(key), dtype=np.int32)
    present = np.flatnonzero(row >= 0)
    number = np.empty(codes, dtype=np.int32)
    number[present] = np.arange(len(present), dtype=np.int32)
    return row[present].astype(np.int64), number[key].astype(np.int64)


def _of_few(rows: list[tuple[int, ...]]) -> tuple[Whole, Whole]:
    """As `distinct`, for few rows, for which arrays cost more than they save."""
    at = {row: place for place, row in enumerate(rows)}
    number = {row: place for place, row in enumerate(sorted(at))}
    return np.array([at[row] for row in number]), np.array([number[row] for row in rows])
