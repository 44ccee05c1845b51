"""Measured durations of restarts: means by workload and GPU type. Pure.

A restart has two parts: the stop, from its order until the GPUs are free, and the start, from its order until
the gang is up. Where all of a job's processes stand by, the start is a switch, which has a mean of its own.
The duration expected before any observation (`before_s`, seconds) counts as one observation.
"""

from collections.abc import Callable, Iterable, Mapping

import msgspec

from schemas.ids import Fingerprint, GpuType
from schemas.settings import Switching

START_SHARE = 2 / 3
"""the start's share of a restart, before any observation: 10 s of 15 s (Hadar)"""
SWITCH_S: Mapping[Switching, float] = {"default": 5.8748, "pipeswitch": 0.00636, "hare": 0.00314}
"""seconds of a switch before any observation: means of all models (Hare, table III)"""
REMEMBERED = 20
"""observations that a mean is made of; older ones count less and less, so it follows changes"""
WORKLOADS_REMEMBERED = 10_000


class Mean(msgspec.Struct, frozen=True, array_like=True):
    seconds: float = 0.0
    count: int = 0

    def with_one(self, seconds: float) -> "Mean":
        count = min(self.count + 1, REMEMBERED)
        return Mean(self.seconds + (seconds - self.seconds) / count, count)

    def believed(self, before_s: float) -> float:
        return (before_s + self.seconds * self.count) / (1 + self.count)


class Restart(msgspec.Struct, frozen=True, array_like=True):
    start: Mean = Mean()
    stop: Mean = Mean()
    switch: Mean = Mean()
    """a start where all of the job's processes stand by"""

    def expected_s(self, before_s: float) -> float:
        return self.start.believed(before_s * START_SHARE) + self.stop.believed(before_s * (1 - START_SHARE))

    def expected_switch_s(self, before_s: float) -> float:
        """Seconds of a switch and of the stop before it, which takes none until it is observed to.

        A job that stands by is saved while the next one runs.
        """
        return self.switch.believed(before_s) + self.stop.believed(0.0)


class RestartTimes(msgspec.Struct, kw_only=True):
    known: dict[Fingerprint, dict[GpuType, Restart]] = {}
    """by workload; an entry is replaced, never changed, so that caches can compare identities"""
    longest_start_s: float = 0.0
    """the longest start that was ever observed"""
    longest_stop_s: float = 0.0

    def started(self, workload: Fingerprint, types: Iterable[GpuType], seconds: float) -> None:
        self.longest_start_s = max(self.longest_start_s, seconds)
        self._learn(
            workload, types, lambda known: msgspec.structs.replace(known, start=known.start.with_one(seconds))
        )

    def switched(self, workload: Fingerprint, types: Iterable[GpuType], seconds: float) -> None:
        """A job started where its processes stood by."""
        self._learn(
            workload,
            types,
            lambda known: msgspec.structs.replace(known, switch=known.switch.with_one(seconds)),
        )

    def stopped(self, workload: Fingerprint, types: Iterable[GpuType], seconds: float) -> None:
        self.longest_stop_s = max(self.longest_stop_s, seconds)
        self._learn(
            workload, types, lambda known: msgspec.structs.replace(known, stop=known.stop.with_one(seconds))
        )

    def _learn(
        self, workload: Fingerprint, types: Iterable[GpuType], learn: Callable[[Restart], Restart]
    ) -> None:
        while workload not in self.known and len(self.known) >= WORKLOADS_REMEMBERED:
            del self.known[next(iter(self.known))]
        own = self.known.get(workload, {})
        self.known[workload] = own | {one: learn(own.get(one, Restart())) for one in types}

    def expected_s(self, workload: Fingerprint, before_s: float) -> dict[GpuType, float]:
        """Seconds of running that a restart takes, for the types on which the workload ran."""
        return {gpu_type: one.expected_s(before_s) for gpu_type, one in self.known.get(workload, {}).items()}

    def expected_switches_s(self, workload: Fingerprint, before_s: float) -> dict[GpuType, float]:
        """Seconds of running that a switch takes, where the job's processes stand by; by type."""
        return {
            gpu_type: one.expected_switch_s(before_s)
            for gpu_type, one in self.known.get(workload, {}).items()
        }

    def switch_cost_s(self, workload: Fingerprint, types: Iterable[GpuType], before_s: float) -> float:
        """Seconds of a switch of a gang on these types: the longest of its types."""
        own = self.known.get(workload, {})
        return max(
            (own.get(gpu_type, Restart()).expected_switch_s(before_s) for gpu_type in types), default=before_s
        )

    def cost_s(self, workload: Fingerprint, types: Iterable[GpuType], before_s: float) -> float:
        """Seconds of a restart of a gang on these types: the longest of its types."""
        own = self.known.get(workload, {})
        return max(
            (own.get(gpu_type, Restart()).expected_s(before_s) for gpu_type in types), default=before_s
        )

    def at_most_s(self, before_s: float) -> float:
        """Seconds that no restart of any workload is expected to exceed."""
        return before_s + self.longest_start_s + self.longest_stop_s
