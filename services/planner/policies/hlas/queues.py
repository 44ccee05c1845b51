"""Virtual sizes and the queues they lead to (HLAS, section IV-C; HLAS-P, section V-B). Pure.

    T̄ = D / s̄,   s̄ = mean speed of a group in tasks/s = Σ over all GPUs of s / U
    H = (rounds run + rounds predicted further) · T̄

A job of size H is in queue k where E[k−1] ≤ H < E[k]. It begins in the first queue, and never goes back to an
earlier one. T̄ is the job's yardstick: it is the same whatever GPUs the job ran on. A real round takes longer.
"""

import math
from bisect import bisect_right
from collections.abc import Sequence

import msgspec

NEARLY = 1e-6
"""the part of a round by which rounding may leave an ended round incomplete"""


class Yardstick(msgspec.Struct, frozen=True):
    """What the virtual size of a job is measured with."""

    round_samples: float
    """samples of all tasks of a round"""
    round_s: float
    """T̄; infinite for a job that no GPU can run"""

    def rounds(self, samples: float) -> int:
        """The number of whole rounds in this number of samples."""
        return math.floor(samples / self.round_samples + NEARLY)

    def rounds_to(self, size_s: float) -> int:
        """The least number of rounds, at least 1, with which a job's virtual size is `size_s` or more."""
        return max(math.ceil(size_s / self.round_s - NEARLY), 1)


def yardstick(round_samples: float, speed: float, groups: int) -> Yardstick:
    """The yardstick of a job. `speed`: the sum of its samples/s on each GPU alone; `groups`: U."""
    return Yardstick(round_samples, round_samples * groups / speed if speed > 0 else math.inf)


def queue_of(size_s: float, thresholds: Sequence[float]) -> int:
    """The queue for a virtual size; 0 is the first."""
    return bisect_right(thresholds, size_s * (1.0 + NEARLY))


class QueuePlace(msgspec.Struct, frozen=True, array_like=True):
    """A job's place in the queues."""

    queue: int = 0
    entered_at: float = 0.0
    until: int = 0
    """the number of rounds after which all predicted ones have run; 0: none are predicted"""
    asked_at: int = -1
    """the rounds that it had run at the last prediction; −1: there was none"""

    def further(self, rounds: int) -> int:
        """Rp: predicted rounds that are still to come, once `rounds` have run."""
        return max(self.until - rounds, 0)

    def is_to_be_asked(self, rounds: int) -> bool:
        """Whether a prediction is due: before the job begins, and whenever all predicted rounds have run."""
        return self.asked_at < 0 or (rounds >= self.until and rounds > self.asked_at)

    def foreseeing(self, rounds: int, further: int) -> "QueuePlace":
        """The same place with `further` rounds predicted beyond the `rounds` that have run."""
        return msgspec.structs.replace(self, until=rounds + further if further else 0, asked_at=rounds)

    def sized(self, rounds: int, yard: Yardstick, thresholds: Sequence[float], at: float) -> "QueuePlace":
        """The job's place in the queue for its present size."""
        due = queue_of(max(rounds, self.until) * yard.round_s, thresholds) if rounds or self.until else 0
        return msgspec.structs.replace(self, queue=due, entered_at=at) if due > self.queue else self

    def next_move_at(self, rounds: int, yard: Yardstick, thresholds: Sequence[float]) -> float:
        """After how many rounds the job changes its queue or sub-queue (see `urgency`); infinite: never."""
        if rounds < self.until:
            return self.until
        return yard.rounds_to(thresholds[self.queue]) if self.queue < len(thresholds) else math.inf

    def urgency(self, rounds: int) -> tuple[int, int, float]:
        """What jobs are sorted by; the smallest is served first.

        Each queue has two sub-queues: q¹ has the jobs with predicted rounds to come, the largest Rp first;
        after it comes q², in order of entry.
        """
        further = self.further(rounds)
        return self.queue, -further, self.entered_at
