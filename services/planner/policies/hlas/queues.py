"""Virtual sizes and the queues they lead to (HLAS, section IV-C; HLAS-P, section V-B). Pure.

    T̄ = D / s̄,   s̄ = mean speed of a group in tasks/s = Σ over all GPUs of s / U
    H = (rounds run + rounds predicted further) · T̄

A job of size H is in queue k where E[k−1] ≤ H < E[k]. It begins in the first, and never rises. T̄ is a
yardstick that is the same wherever the job ran; a round takes longer.
"""

import math
from bisect import bisect_right
from collections.abc import Sequence

import msgspec

NEARLY = 1e-6
"""rounds: what rounding may take from one that has ended"""


class Yardstick(msgspec.Struct, frozen=True):
    """Of one job."""

    round_samples: float
    """of all tasks of a round"""
    round_s: float
    """T̄; infinite for a job that no GPU can run"""

    def rounds(self, samples: float) -> int:
        """Whole ones."""
        return math.floor(samples / self.round_samples + NEARLY)

    def rounds_to(self, size_s: float) -> int:
        """Of which a job is of this size, or larger; it has none before its first has ended."""
        return max(math.ceil(size_s / self.round_s - NEARLY), 1)


def yardstick(round_samples: float, speed: float, groups: int) -> Yardstick:
    """`speed`: samples/s of all GPUs, each by itself."""
    return Yardstick(round_samples, round_samples * groups / speed if speed > 0 else math.inf)


def queue_of(size_s: float, thresholds: Sequence[float]) -> int:
    """0 the first."""
    return bisect_right(thresholds, size_s * (1.0 + NEARLY))


class QueuePlace(msgspec.Struct, frozen=True, array_like=True):
    """A job's place in the queues."""

    queue: int = 0
    entered_at: float = 0.0
    until: int = 0
    """rounds, at which those predicted have run"""
    asked_at: int = -1
    """rounds, at the last prediction; −1: there was none"""

    def further(self, rounds: int) -> int:
        """Rp: rounds of those predicted that are still to come."""
        return max(self.until - rounds, 0)

    def is_to_be_asked(self, rounds: int) -> bool:
        """Before it begins, and whenever all that was predicted has run."""
        return self.asked_at < 0 or (rounds >= self.until and rounds > self.asked_at)

    def foreseeing(self, rounds: int, further: int) -> "QueuePlace":
        """With so many rounds predicted beyond those that have run."""
        return msgspec.structs.replace(self, until=rounds + further if further else 0, asked_at=rounds)

    def sized(self, rounds: int, yard: Yardstick, thresholds: Sequence[float], at: float) -> "QueuePlace":
        """In the queue of its size by now."""
        due = queue_of(max(rounds, self.until) * yard.round_s, thresholds) if rounds or self.until else 0
        return msgspec.structs.replace(self, queue=due, entered_at=at) if due > self.queue else self

    def next_move_at(self, rounds: int, yard: Yardstick, thresholds: Sequence[float]) -> float:
        """Rounds at which it is in another queue or sub-queue; infinite: it stays for good."""
        if rounds < self.until:
            return self.until
        return yard.rounds_to(thresholds[self.queue]) if self.queue < len(thresholds) else math.inf

    def urgency(self, rounds: int) -> tuple[int, int, float]:
        """The smaller, the earlier served: q¹ before q², larger Rp first in it; FIFO by entry in q²."""
        further = self.further(rounds)
        return self.queue, -further, self.entered_at
