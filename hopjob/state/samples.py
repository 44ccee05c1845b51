"""Which samples a rank gets: arithmetic on sample counts, never on batches.

The order of an epoch depends only on the seed and the epoch. From any offset in it, the remaining samples are
divided into steps of on average `batch` samples per rank, and each step into a slice for each rank. So any
number of ranks can go on where others have stopped: no sample comes twice, and only samples that do not fill
an update at the end of the epoch are left out. If ranks compute several tasks of a step, one after another,
the step has a batch for every task.
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
    """samples of one step, mean over the ranks, or of one task"""
    accumulate: int = 1
    """steps of one update"""
    weights: tuple[int, ...] = ()
    """numbers by rank in whose ratios a step is divided; empty: every rank takes a batch"""
    tasks: tuple[int, ...] = ()
    """batches of one step by rank; empty: one for every rank. Never together with weights"""

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
        """The factor on a batch's gradient before ranks average theirs; 1 if every rank has one batch."""
        return self.slices[self.rank] / self.own * self.ranks / self.step


def divided(whole: int, weights: Sequence[int]) -> tuple[int, ...]:
    """`whole` in proportion to `weights`, by largest remainders, each part at least 1.

    `whole` must be at least the number of weights.
    """
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
    """One rank's batches of what is left of the epoch from `offset` on."""
    update = share.step * share.accumulate
    end = offset + (len(order) - offset) // update * update
    slices = share.slices
    before, size = sum(slices[: share.rank]), slices[share.rank] // share.own
    for start in range(offset, end, share.step):
        for task in range(share.own):
            first = start + before + task * size
            yield list(order[first : first + size])


class Progress:
    """Samples done by all ranks together; samples that an epoch leaves out count as done.

    `given`: samples handed to the script. `trained`: samples that an update of the model has used. A
    checkpoint stores `trained`, so samples whose gradients were lost are given again.
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
        """(epoch, offset in the epoch) of the next sample."""
        return divmod(self.given, size)
