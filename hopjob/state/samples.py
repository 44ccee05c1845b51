"""Which samples a rank gets: arithmetic on sample counts, never on batches.

An epoch's order follows from seed and epoch alone. From any offset in it the samples left are dealt in steps
of `batch` a rank in the mean, each rank its slice of the step, so any number of ranks goes on where others
have ended: nothing twice, nothing left out but what does not fill a step of all ranks at the epoch's end.
Where ranks compute several tasks of a step, one after another, a step has as many batches as there are tasks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Share:
    """How a step is divided among the ranks."""

    rank: int
    ranks: int
    batch: int
    """samples of a rank in one step, in the mean"""
    accumulate: int = 1
    """steps to one update"""
    weights: tuple[int, ...] = ()
    """parts of a step by rank, in whose ratios it is divided; empty: a batch each"""
    tasks: tuple[int, ...] = ()
    """batches of one step by rank; empty: one each. Never together with weights"""

    @property
    def step(self) -> int:
        """Samples of all ranks in one step."""
        return self.batch * self._batches

    @property
    def own(self) -> int:
        """Batches of this rank in one step."""
        return self.tasks[self.rank] if self.tasks else 1

    @property
    def _batches(self) -> int:
        """Batches of all ranks in one step."""
        return sum(self.tasks) or self.ranks

    @property
    def slices(self) -> tuple[int, ...]:
        """Samples of each rank in one step."""
        if self.tasks:
            return tuple(tasks * self.batch for tasks in self.tasks)
        if not self.weights:
            return (self.batch,) * self.ranks
        return divided(self.step, self.weights)

    @property
    def gradient_weight(self) -> float:
        """What a batch's gradient counts, where those of all ranks are averaged: 1, if each rank has one."""
        return self.slices[self.rank] / self.own * self.ranks / self.step


def divided(whole: int, weights: Sequence[int]) -> tuple[int, ...]:
    """In proportion, by largest remainders, but at least 1 each; `whole` is at least as many."""
    parts = _divided(whole, weights)
    return parts if min(parts) else tuple(1 + part for part in _divided(whole - len(weights), weights))


def _divided(whole: int, weights: Sequence[int]) -> tuple[int, ...]:
    total = sum(weights)
    parts = [whole * weight // total for weight in weights]
    order = sorted(range(len(parts)), key=lambda index: -(whole * weights[index] % total))
    for index in order[: whole - sum(parts)]:
        parts[index] += 1
    return tuple(parts)


def batches(order: Sequence[int], offset: int, share: Share) -> Iterator[list[int]]:
    """What is left of an epoch from `offset` on, batch by batch, for one rank."""
    update = share.step * share.accumulate
    end = offset + (len(order) - offset) // update * update
    slices = share.slices
    before, size = sum(slices[: share.rank]), slices[share.rank] // share.own
    for start in range(offset, end, share.step):
        for task in range(share.own):
            first = start + before + task * size
            yield list(order[first : first + size])


class Progress:
    """Samples done by all ranks together; what an epoch leaves out counts as done.

    `given`: handed to the script. `trained`: those that an update of the model has used; a checkpoint
    counts these, so samples whose gradients were lost are given again.
    """

    def __init__(self) -> None:
        self.given = self.trained = self.updates = 0
        self.computed = 0
        """samples handed out by this process and its peers, without those left out"""

    def restore(self, samples: int) -> None:
        self.given = self.trained = samples

    def give(self, samples: int) -> None:
        self.given += samples
        self.computed += samples

    def update(self) -> None:
        self.trained = self.given
        self.updates += 1

    def end_epoch(self, size: int) -> None:
        """Go on to the next epoch; this one had `size` samples."""
        complete = self.trained == self.given
        self.given = (max(self.given - 1, 0) // size + 1) * size
        if complete:
            self.trained = self.given

    def place(self, size: int) -> tuple[int, int]:
        """Epoch, and offset in it."""
        return divmod(self.given, size)
