"""Which job has which groups (HLAS, algorithms 1 and 3, from one event to the next). Pure.

    who runs keeps its groups
    for n in order without groups:  up to need_n idle groups;
                                    none idle: up to need_n groups of the last job in order that runs behind n
    groups still idle:              those that run grow to need_n, in order

The paper decides after each round; between an arrival, a completion and a change of queues its decisions
repeat. A job that runs does not grow at the cost of others.
"""

from collections import deque
from collections.abc import Sequence

import msgspec

from shared.domain.arrays import Flags


class Claimant(msgspec.Struct, frozen=True, kw_only=True):
    """A job, as the groups see it."""

    need: int
    """groups that it has tasks for"""
    usable: Flags
    """by group: whether some GPU of it can run the job"""
    held: tuple[int, ...] = ()
    """groups that it has"""
    warm: frozenset[int] = frozenset()
    """groups where its processes stand by; it takes those before others"""
    fixed: bool = False
    """it may not be moved"""


def served(
    order: Sequence[Claimant], idle: Sequence[int], *, partial_first: bool = False
) -> list[tuple[int, ...]]:
    """Groups by job, in the order given. `partial_first`: a job with too few groups grows in its turn."""
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
    """Up to what it needs of the free groups, which are no more so."""
    found = _warm_first(one, free)[: max(one.need - len(held), 0)]
    free[:] = [group for group in free if group not in found]
    return found


def _warm_first(one: Claimant, groups: Sequence[int]) -> list[int]:
    """Those that it can use."""
    return sorted([group for group in groups if one.usable[group]], key=lambda group: group not in one.warm)


def _given_up(one: Claimant, held: list[list[int]], behind: Sequence[int]) -> list[int]:
    """Up to what it needs of the groups of the last that runs behind it, and has any that it can use."""
    for place in reversed(behind):
        found = _warm_first(one, held[place])[: one.need]
        if found:
            held[place] = [group for group in held[place] if group not in found]
            return found
    return []
