"""Damage to stored data: a process that finds it ends with one sentence, and is not restarted."""

import os
from collections.abc import Iterable

EXIT_CODE = os.EX_DATAERR
"""exit code of a process that found damage; a restart would find it again"""
RANGES_SHOWN = 5
REMEDY = (
    "Restore a backup into a new folder (`hopyard restore FILE --data DIR`), or go on without what is lost "
    "(HOPYARD_ALLOW_LOST_FACTS=1)"
)


class Damaged(Exception):
    """What is stored is damaged. The text says what, what is lost, and which command to run."""


def leaf_of(error: BaseException) -> BaseException:
    """The first single error in nested exception groups."""
    return leaf_of(error.exceptions[0]) if isinstance(error, BaseExceptionGroup) else error


def ranges_text(ranges: Iterable[range]) -> str:
    """Ranges as text: 77, 90 to 165."""
    gaps = list(ranges)
    shown = [str(one[0]) if len(one) == 1 else f"{one[0]} to {one[-1]}" for one in gaps[:RANGES_SHOWN]]
    more = len(gaps) - len(shown)
    return ", ".join([*shown, *([f"{more} more gaps"] if more else [])])


def joined(seqs: Iterable[int]) -> list[range]:
    """Ascending numbers as ranges."""
    found: list[range] = []
    for seq in seqs:
        if found and found[-1].stop == seq:
            found[-1] = range(found[-1].start, seq + 1)
        else:
            found.append(range(seq, seq + 1))
    return found
