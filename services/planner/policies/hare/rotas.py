"""From shares to turns: how many rounds each job of a rota makes in a cycle. Pure."""

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from services.planner.policies.hare.blocks import Block
from shared.domain.arrays import Floats
from shared.domain.rota import Turn, period

TURNS_MOST = 8
"""rounds of a job in a cycle"""


class RotaMember(msgspec.Struct, frozen=True, kw_only=True):
    block: Block
    turns: int
    share: float
    """of the time that the rota's GPUs compute"""


class PlannedRota(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs that share GPUs, in the order in which they take turns."""

    gpus: tuple[int, ...]
    members: tuple[RotaMember, ...]
    cycle_s: float
    left_s: float
    """what its jobs still take by their weights, were all to go on like this"""


def rota_of(
    blocks: Sequence[Block],
    task_s: Mapping[int, Floats],
    left: Mapping[int, float],
    switch_s: float,
    gpus: Sequence[int] = (),
) -> PlannedRota:
    """`task_s`: by job and GPU; `left`: rounds by job, times its weight; `gpus`: by default those with tasks.

    Turns are in proportion to 1 / T, in whole numbers: of these the ones with which the weighted sum of what
    the jobs still take is least, were all to go on like this; ties: the fewest.
    """
    gpus = gpus or sorted({gpu for block in blocks for gpu in block.tasks})
    busy = [_busy_s(block, gpus, task_s[block.job]) for block in blocks]
    best = min(
        (_cycle(blocks, busy, left, switch_s, turns) for turns in _proportions(blocks)),
        key=lambda found: found[0],
    )
    left_s, cycle_s, turns = best
    load_s = sum(count * sum(own) for own, count in zip(busy, turns, strict=True))
    return PlannedRota(
        gpus=tuple(gpus),
        members=tuple(
            RotaMember(block=block, turns=count, share=count * sum(own) / load_s)
            for block, own, count in zip(blocks, busy, turns, strict=True)
        ),
        cycle_s=cycle_s,
        left_s=left_s,
    )


def _busy_s(block: Block, gpus: Sequence[int], task_s: Floats) -> list[float]:
    return [block.tasks[gpu] * float(task_s[gpu]) if gpu in block.tasks else 0.0 for gpu in gpus]


def _proportions(blocks: Sequence[Block]) -> list[tuple[int, ...]]:
    """Rounds in a cycle, the fewest first."""
    speed = 1.0 / np.array([block.round_s for block in blocks])
    share = speed / speed.max()
    found = [
        tuple(np.maximum(np.rint(most * share), 1).astype(int).tolist()) for most in range(1, TURNS_MOST + 1)
    ]
    return list(dict.fromkeys(found))


def _cycle(
    blocks: Sequence[Block],
    busy: Sequence[Sequence[float]],
    left: Mapping[int, float],
    switch_s: float,
    turns: tuple[int, ...],
) -> tuple[float, float, tuple[int, ...]]:
    """The weighted sum, seconds of a cycle, and the turns."""
    cycle_s = period(
        [
            Turn(busy_s=(own,), exchange_s=block.exchange_s, switch_s=switch_s, rounds=count)
            for block, own, count in zip(blocks, busy, turns, strict=True)
        ]
    )
    cycles = sum(left[block.job] / count for block, count in zip(blocks, turns, strict=True))
    return cycles * cycle_s, cycle_s, turns
