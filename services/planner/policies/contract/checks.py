"""Checks the configurations that a policy asks about, since later code relies on their form. Pure."""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from services.planner.policies.contract.configurations import Configurations, Pieces
from services.planner.policies.contract.view import View
from shared.domain.arrays import Ints


def misfit(view: View, wanted: object) -> str | None:
    """What is wrong with `wanted`, in words; None where it keeps what `Configurations` promises.

    Its type must be `Configurations` itself: the planner must be able to read what the process of policies
    sends without importing a policy's code.
    """
    if type(wanted) is not Configurations:
        return f"{type(wanted).__name__} is not Configurations"
    broken = (words for fits, words in _checks(view, wanted) if not fits)
    return next(broken, None)


def _checks(view: View, wanted: Configurations) -> Iterator[tuple[bool, str]]:
    """Each check relies on those before it."""
    columns = (wanted.job, wanted.start, wanted.node, wanted.gpus, wanted.samples)
    yield all(map(_is_column, columns)), "a column is not an array of int32"
    yield {type(name) for name in (*wanted.jobs, *wanted.nodes)} <= {str}, "a name is not text"
    yield _among(wanted.jobs, [job.job_id for job in view.jobs]), "a job is not in the view"
    yield _among(wanted.nodes, [node.node_id for node in view.nodes]), "a node is not in the view"
    yield _tiles(wanted.start, len(wanted.node)), "the rows do not cover the cells"
    yield len(wanted.start) == len(wanted.job) + 1, "not as many rows as entries in `job`"
    yield len(wanted.gpus) == len(wanted.node), "not as many GPU counts as nodes"
    yield bool((np.diff(wanted.job) >= 0).all()), "the rows of a job are apart"
    yield _within(wanted.job, len(wanted.jobs)), "a row is of no job"
    yield _within(wanted.node, len(wanted.nodes)), "a cell is on no node"
    yield bool((wanted.gpus > 0).all()), "a cell has no GPU"
    yield len(wanted.samples) in (0, len(wanted.node)), "not as many samples as nodes"
    yield _is_shared(wanted), "a row has samples for only some of its GPUs"
    yield _has_sound_pieces(wanted), "the pieces do not cover the rows"


def _among(names: Sequence[str], known: Iterable[str]) -> bool:
    return not names or not set(names).difference(known)


def _is_shared(wanted: Configurations) -> bool:
    """Whether every row is without samples, or has at least one for each GPU."""
    if not len(wanted.samples):
        return True
    enough = wanted.samples >= wanted.gpus
    least = np.logical_and.reduceat(enough, wanted.start[:-1])
    none = np.logical_and.reduceat(wanted.samples == 0, wanted.start[:-1])
    return bool((least | none).all())


def _has_sound_pieces(wanted: Configurations) -> bool:
    pieces = wanted.pieces
    if pieces is None:
        return True
    if type(pieces) is not Pieces or not (_is_column(pieces.start) and _is_column(pieces.shape)):
        return False
    return _tiles(pieces.start, len(wanted)) and len(pieces.start) == len(pieces.shape) + 1


def _is_column(column: object) -> bool:
    return type(column) is np.ndarray and column.dtype == np.int32 and column.ndim == 1


def _tiles(start: Ints, end: int) -> bool:
    """Whether `start` cuts 0 … end − 1 into parts, none of them empty: their beginnings, then `end`."""
    return len(start) > 0 and start[0] == 0 and start[-1] == end and bool((np.diff(start) > 0).all())


def _within(column: Ints, count: int) -> bool:
    return not len(column) or (int(column.min()) >= 0 and int(column.max()) < count)
