"""Decides which GPUs of the node are withheld and when the node drains. Pure.

A GPU that is busy although no worker of this agent holds it is used by another program, and withheld until
it is free. Two readings in a row must show it, since a worker's memory is freed a moment after its end. A
broken GPU is withheld at once, for the rest of the agent's life, and the node drains: it has to be reset.

A node that could not start a worker pauses: it refuses all starts, and the GPUs that no other worker holds
are withheld, for longer each time until a worker starts again. Without that, whatever is planned on its idle
GPUs would end there.
"""

from collections.abc import Iterable, Mapping
from math import inf, nextafter

from schemas.events import GpusWithheld, NodeDrained
from schemas.ids import NodeId, PlacementId
from services.agent.state import State, Worker
from services.agent.tasks import Failed, GpusSeen, Interrupted, LastReport, NotStarted, Report, Started
from shared.domain.core import Effects, Publish

FIRST_PAUSE_S, LONGEST_PAUSE_S = 30.0, 900.0
"""cluster seconds; a pause is twice as long as the one before, unless a worker has started since"""


class GpuHealth:
    """What this life of the agent has read and published about its GPUs."""

    def __init__(self, node_id: NodeId, seen: GpusSeen) -> None:
        self._node_id = node_id
        self._seen = seen
        self._busy_before = frozenset[int]()
        """GPUs that were busy at the last reading, but held by no worker"""
        self._withheld: dict[int, str] = {}
        """busy and broken GPUs, each with the reason that was read first"""
        self._paused: dict[int, str] = {}
        """GPUs withheld by a pause, and why"""
        self._published: dict[int, str] = {}
        """withheld GPUs and the reasons, as published last"""
        self._published_at = -inf
        self._pause_s = FIRST_PAUSE_S
        """length of the next pause"""
        self.paused_until = inf
        """cluster time; infinite: there is no pause"""
        self._why = ""
        """why the node pauses"""
        self._drained_for: set[int] = set()
        """broken GPUs for which this life has published a NodeDrained"""

    def first(self, state: State, adopted: Iterable[PlacementId]) -> dict[int, str]:
        """GPUs to withhold from the start of the life, by a single reading."""
        workers = [state.workers[placement_id] for placement_id in adopted if placement_id in state.workers]
        held = {index for worker in workers for index in worker.gpu_indices}
        self._withheld = self._published = _without(self._seen.busy, held) | self._seen.broken
        return self._withheld

    def seen(self, state: State, seen: GpusSeen, now: float) -> Effects:
        """Take a reading; returns the facts that follow from it."""
        self._seen = seen
        foreign = _without(seen.busy, state.held)
        lasting = {
            index: why for index, why in foreign.items() if index in self._busy_before | self._withheld.keys()
        }
        self._busy_before = frozenset(foreign)
        wanted = lasting | seen.broken
        self._withheld = {index: self._withheld.get(index, wanted[index]) for index in wanted}
        self._pause_more(state.free())
        return [*self._changed(now), *self._drain(state, now)]

    def heard(self, state: State, report: Report, now: float) -> Effects:
        """Pause the node after a start that failed by its fault."""
        match report:
            case Started():
                self._pause_s = FIRST_PAUSE_S
            case NotStarted(reason=reason) if self.paused_until == inf:
                self.paused_until = now + self._pause_s
                self._why = f"starts pause for {self._pause_s:g} s after one that failed: {reason}"
                self._pause_s = min(2.0 * self._pause_s, LONGEST_PAUSE_S)
            case _:
                pass
        if self.paused_until == inf or not isinstance(report, LastReport):
            return []
        self._pause_more(state.free(without=report.placement_id))
        return self._changed(now)

    def why_no_start(self) -> str:
        """Why no worker is started at the moment; empty: workers are."""
        return self._why if self.paused_until < inf else ""

    def wake(self, now: float) -> Effects:
        """End the pause if it is over."""
        if now < self.paused_until:
            return []
        self._paused, self.paused_until = {}, inf
        return self._changed(now)

    def judged(self, worker: Worker, report: Report) -> Report:
        """The report, corrected: a failure on a broken GPU is an interruption, no fault of the job."""
        if not isinstance(report, Failed):
            return report
        broken = {index: why for index, why in self._seen.broken.items() if index in worker.gpu_indices}
        if not broken:
            return report
        return Interrupted(
            report.placement_id,
            f"{_described(broken)}; {report.reason}",
            exit_code=report.exit_code,
            signal=report.signal,
        )

    def _pause_more(self, free: Iterable[int]) -> None:
        """Withhold these GPUs too, if the node pauses."""
        if self.paused_until < inf:
            self._paused |= dict.fromkeys(free, self._why)

    def _changed(self, now: float) -> Effects:
        """The fact to publish if other GPUs are withheld than before, or for other reasons."""
        withheld = dict(sorted((self._paused | self._withheld).items()))
        if withheld == self._published:
            return []
        self._published = withheld
        # The time makes the fact's id, and one turn of the shell may bring several.
        self._published_at = max(now, nextafter(self._published_at, inf))
        return [Publish(GpusWithheld(at=self._published_at, node_id=self._node_id, gpus=withheld))]

    def _drain(self, state: State, now: float) -> Effects:
        """Drain the node once for each broken GPU: if an operator restores it, it stays restored."""
        new = _without(self._seen.broken, self._drained_for | state.drained_for)
        if not new:
            return []
        self._drained_for |= new.keys()
        drained = NodeDrained(
            at=now, node_id=self._node_id, reason=_described(new), broken=tuple(sorted(new))
        )
        return [Publish(drained)]


def _without(gpus: Mapping[int, str], indices: Iterable[int]) -> dict[int, str]:
    left_out = set(indices)
    return {index: why for index, why in gpus.items() if index not in left_out}


def _described(gpus: Mapping[int, str]) -> str:
    reasons: dict[str, list[str]] = {}
    for index in sorted(gpus):
        reasons.setdefault(gpus[index], []).append(str(index))
    return "; ".join(f"GPU {','.join(indices)}: {why}" for why, indices in reasons.items())
