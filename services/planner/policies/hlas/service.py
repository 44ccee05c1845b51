"""Which job has which groups (HLAS, algorithms 1 and 3, from one event to the next). Pure.

    a running job                     keeps its groups
    each job n without groups, in     gets up to need_n idle groups; if there are none, up to need_n groups of
    the order                             last running job behind n
    groups that are still idle        go to running jobs with fewer than need_n groups, in order

The paper decides after each round, but its decision changes only when a job arrives, ends or changes its
queue. A running job gets no further groups at the cost of others.
"""

from collections import deque
from collections.abc import Sequence

import msgspec

from shared.domain.arrays import Flags


class Claimant(msgspec.Struct, frozen=True, kw_only=True):
    """A job that has groups, or is to get some."""

    need: int
    """how many groups it has tasks for"""
    usable: Flags
    """by group: whether the job can run on some GPU of it"""
    held: tuple[int, ...] = ()
    """the groups that it has"""
    warm: frozenset[int] = frozenset()
    """groups where its processes stand by, which it takes before others"""
    fixed: bool = False
    """it may not be moved"""


def served(
    order: Sequence[Claimant], idle: Sequence[int], *, partial_first: bool = False
) -> list[tuple[int, ...]]:
    """The groups of each job. `idle`: groups that no job has.

    `partial_first`: a running job with too few groups gets further ones in its turn, not after all waiting
    jobs.
    """
    held, free = [list(one.held) for one in order], list(idle)
    running = deque(place for place, one in enumerate(order) if held[place] and not one.fixed)
    for place, one in enumerate(order):
        if one.fixed or (held[place] and not partial_first):
            continue
        found = _taken(one, held[place], free) if free else []
        if not found and not held[place]:
            while running and running[0] <= place:
                running.popleft()
            found = _given_up(one, held, running)
        held[place] += found
    for place, one in enumerate(order):
        if held[place] and not one.fixed and free:
            held[place] += _taken(one, held[place], free)
    return [tuple(sorted(groups)) for groups in held]


def _taken(one: Claimant, held: Sequence[int], free: list[int]) -> list[int]:
    """Further groups up to the job's need; they are taken out of `free`."""
    found = _warm_first(one, free)[: max(one.need - len(held), 0)]
    free[:] = [group for group in free if group not in found]
    return found


def _warm_first(one: Claimant, groups: Sequence[int]) -> list[int]:
    """The groups that the job can use, those where it is warm first."""
    return sorted([group for group in groups if one.usable[group]], key=lambda group: group not in one.warm)


def _given_up(one: Claimant, held: list[list[int]], behind: Sequence[int]) -> list[int]:
    """Groups up to the job's need, taken from the last job `behind` it that has any which it can use."""
    for place in reversed(behind):
        found = _warm_first(one, held[place])[: one.need]
        if found:
            held[place] = [group for group in held[place] if group not in found]
            return found
    return []
