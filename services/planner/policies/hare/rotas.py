"""Turns by shares of GPUs: how many rounds each job of a rota makes in a cycle. Pure."""

import math
from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from services.planner.policies.hare.parts import TURNS_MOST, Block
from shared.domain.rota import Turn, period
from shared.domain.sums import plain_sum


class RotaJob(msgspec.Struct, frozen=True, kw_only=True):
    """What the turns of a job depend on."""

    task_s: Sequence[float] | Mapping[int, float]
    """seconds of a task, by GPU that has any"""
    rounds: float
    """rounds that are left"""
    weight: float = 1.0


class RotaMember(msgspec.Struct, frozen=True, kw_only=True):
    """A job in a rota."""

    block: Block
    turns: int
    """rounds in a cycle"""
    share: float
    """the job's share of the time in which the rota's GPUs compute"""


class PlannedRota(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs that share GPUs, in the order in which they take turns."""

    gpus: tuple[int, ...]
    members: tuple[RotaMember, ...]
    cycle_s: float
    left_s: float
    """Σ of weight · seconds to its end over its jobs, if the cycle stays the same"""


def rota_of(
    blocks: Sequence[Block], jobs: Mapping[int, RotaJob], switch_s: float, gpus: Sequence[int] = ()
) -> PlannedRota:
    """The rota of these blocks. `gpus`: its GPUs, by default those with tasks.

    Turns are whole numbers, about in proportion to 1 / T. Of the proportions with at most TURNS_MOST turns
    the one is taken that makes Σ weight · turns / (rounds left · cycle) largest; ties: the one with fewest
    turns.
    """
    gpus = gpus or sorted({gpu for block in blocks for gpu in block.tasks})
    busy = [_busy_s(block, gpus, jobs[block.job].task_s) for block in blocks]
    proportions = _proportions(blocks)
    cycles = [_cycle_s(blocks, busy, switch_s, turns) for turns in proportions]
    done = [
        plain_sum(
            jobs[block.job].weight * count / jobs[block.job].rounds
            for block, count in zip(blocks, turns, strict=True)
        )
        / cycle_s
        for turns, cycle_s in zip(proportions, cycles, strict=True)
    ]
    best = done.index(max(done))
    turns, cycle_s = proportions[best], cycles[best]
    load_s = plain_sum(count * plain_sum(own) for own, count in zip(busy, turns, strict=True))
    return PlannedRota(
        gpus=tuple(gpus),
        members=tuple(
            RotaMember(block=block, turns=count, share=count * plain_sum(own) / load_s)
            for block, own, count in zip(blocks, busy, turns, strict=True)
        ),
        cycle_s=cycle_s,
        left_s=cycle_s
        * plain_sum(
            jobs[block.job].weight * jobs[block.job].rounds / count
            for block, count in zip(blocks, turns, strict=True)
        ),
    )


def _busy_s(block: Block, gpus: Sequence[int], task_s: Sequence[float] | Mapping[int, float]) -> list[float]:
    return [block.tasks[gpu] * task_s[gpu] if gpu in block.tasks else 0.0 for gpu in gpus]


def _proportions(blocks: Sequence[Block]) -> list[tuple[int, ...]]:
    """Candidates for the rounds of each block in a cycle, the fewest first, each in lowest terms."""
    speed = 1.0 / np.array([block.round_s for block in blocks])
    share = speed / speed.max()
    found = [np.maximum(np.rint(most * share), 1).astype(int).tolist() for most in range(1, TURNS_MOST + 1)]
    return list(dict.fromkeys(tuple(count // math.gcd(*turns) for count in turns) for turns in found))


def _cycle_s(
    blocks: Sequence[Block], busy: Sequence[Sequence[float]], switch_s: float, turns: Sequence[int]
) -> float:
    return period(
        [
            Turn(busy_s=(own,), exchange_s=block.exchange_s, switch_s=switch_s, rounds=count)
            for block, own, count in zip(blocks, busy, turns, strict=True)
        ]
    )
