"""The placer's state: nodes, unfinished jobs, and every placement that is not gone."""

from collections.abc import Iterable
from typing import TypeVar

import msgspec

from schemas.events import PreemptReason
from schemas.ids import JobId, NodeId, PlacementId, PlanId
from schemas.jobs import JobSpec
from schemas.placement import Gang
from schemas.plans import Cause
from services.placer.phases import (
    ComingUp,
    Ending,
    Owed,
    Phase,
    Training,
    Waiting,
    Workers,
    WorkerState,
    check_move,
    workers_in,
)
from shared.domain import gangs, in_turns
from shared.domain.nodes import KnownNode
from shared.domain.tally import Tally

K = TypeVar("K")

ENDED_REMEMBERED = 2_000
"""ended placements whose ids are kept: a plan made seconds after a placement's end may still list it"""


class Placed(msgspec.Struct, kw_only=True):
    """A placement with its phase, from the plan that made it to the end of its last worker."""

    placement_id: PlacementId
    job_id: JobId
    plan_id: PlanId
    gang: Gang
    profile: bool = False
    """a measurement on one GPU, not training"""
    number: int = 0
    """its number in the order in which placements were added"""
    refused: bool = False
    """whether PlacementRefused was published about it"""
    phase: Phase = msgspec.field(default_factory=Waiting)
    tally: Tally = msgspec.field(default_factory=Tally)
    """samples by leader, once starts are ordered"""

    @property
    def holder(self) -> str:
        """The holder of its GPUs: the placement itself, or the rota in which it takes turns."""
        return in_turns.holder(self.placement_id, self.gang)

    @property
    def workers(self) -> Workers:
        return workers_in(self.phase)

    @property
    def all_up(self) -> bool:
        return list(self.workers.values()).count(WorkerState.UP) == len(self.gang.members)

    @property
    def trained(self) -> bool:
        """Whether JobStarted was published about it and the job has not ended."""
        phase = self.phase
        return phase.owed is Owed.PREEMPTION if isinstance(phase, Ending) else isinstance(phase, Training)

    @property
    def copies(self) -> bool:
        """Whether its gang consists of copies, which train independently: if one ends, the others go on."""
        return self.trained and gangs.merges(self.gang)

    @property
    def wanted(self) -> bool:
        return not isinstance(self.phase, Ending)

    def move(self, phase: Phase) -> None:
        """Enter another phase. Raises IllegalMove, and then nothing has changed."""
        check_move(self.phase, phase)
        self.phase = phase

    @property
    def owed(self) -> Owed:
        """The fact to publish about its job at its end."""
        if self.profile:
            return Owed.NOTHING
        return Owed.PREEMPTION if isinstance(self.phase, Training) else Owed.REFUSAL


class UnfinishedJob(msgspec.Struct, kw_only=True):
    spec: JobSpec
    samples_done: float = 0.0
    """samples in its last checkpoint"""
    failures: int = 0
    """placements that ended because a process of the job failed"""
    started: bool = False
    """whether, by the facts of the stream, it ever started"""
    ended: bool = False
    """whether its last worker ended it; the monitor still has to publish that"""


class State(msgspec.Struct, kw_only=True):
    seq: int = 0
    """stream sequence of the last fact; the shell sets it"""
    token: int = 0
    """the newest fencing token seen in a plan"""
    nodes: dict[NodeId, KnownNode] = {}
    retyped: dict[NodeId, int] = {}
    """nodes that came back with GPUs of another type: the sequence of the last NodeJoined that said so"""
    stale: dict[NodeId, dict[PlacementId, int]] = {}
    """GPUs of workers without a wanted placement that may still run: their node was lost, or they started
    after their placement's end"""
    jobs: dict[JobId, UnfinishedJob] = {}
    """unfinished jobs"""
    placements: dict[PlacementId, Placed] = {}
    """oldest first"""
    waiting: dict[PlacementId, None] = {}
    """waiting placements, oldest first"""
    candidates: dict[PlacementId, None] = {}
    """waiting placements that may be able to start, since they are new or something ended that may have kept
    them waiting"""
    coming_up: dict[PlacementId, None] = {}
    """placements that are coming up"""
    changed: dict[PlacementId, None] = {}
    """placements that began to end, or whose workers changed, since `take_changed`"""
    by_job: dict[JobId, dict[PlacementId, None]] = {}
    """placements of each job, oldest first"""
    by_node: dict[NodeId, dict[PlacementId, None]] = {}
    """placements by node of their gangs"""
    added: int = 0
    """placements added so far"""
    ended: dict[PlacementId, None] = {}
    """placements that never start again, oldest first"""

    # ---- what becomes of a placement

    def enter(self, placed: Placed, phase: Phase) -> None:
        """Move a placement to another phase. Raises IllegalMove, and then nothing has changed."""
        placed.move(phase)
        self.waiting.pop(placed.placement_id, None)
        self.coming_up.pop(placed.placement_id, None)
        if isinstance(phase, ComingUp):
            self.coming_up[placed.placement_id] = None
        elif isinstance(phase, Ending):
            self.changed[placed.placement_id] = None

    def worker_up(self, placed: Placed, node_id: NodeId) -> None:
        placed.workers[node_id] = WorkerState.UP
        self.changed[placed.placement_id] = None

    def worker_gone(self, placed: Placed, node_id: NodeId) -> bool:
        """Remove a worker. Returns whether there was one."""
        self.changed[placed.placement_id] = None
        self.gpus_freed(node_id)
        self._reconsider(self.by_job[placed.job_id])
        return placed.workers.pop(node_id, None) is not None

    def gpus_freed(self, node_id: NodeId) -> None:
        """GPUs may have come free on a node, so placements that wait for them are candidates."""
        self._reconsider(self.by_node.get(node_id, ()))

    def _reconsider(self, placements: Iterable[PlacementId]) -> None:
        self.candidates |= {one: None for one in placements if one in self.waiting}

    def take_changed(self) -> list[Placed]:
        """The placements that have changed since the last call, oldest first."""
        changed, self.changed = self.changed, {}
        return oldest_first(self.placements[placement_id] for placement_id in changed)

    def take_candidates(self) -> list[Placed]:
        """The candidates since the last call, and all waiting measurements, oldest first."""
        candidates, self.candidates = self.candidates, {}
        waiting = [self.placements[placement_id] for placement_id in self.waiting]
        return [placed for placed in waiting if placed.profile or placed.placement_id in candidates]

    def stop(self, placed: Placed, why: PreemptReason, cause: Cause | None = None) -> None:
        """End the placement; if it is ending already, the first reason stays."""
        if placed.wanted:
            for node_id in placed.gang.nodes if placed.placement_id in self.waiting else ():
                self.gpus_freed(node_id)
            self.enter(placed, Ending(why=why, owed=placed.owed, workers=placed.workers, cause=cause))

    def fail(self, placed: Placed, cause: Cause) -> bool:
        """End the placement because a process of the job failed, a reason that replaces any other.

        Returns False if one had failed before.
        """
        first = not isinstance(placed.phase, Ending) or placed.phase.why is not PreemptReason.FAILED
        self.stop(placed, PreemptReason.FAILED, cause)
        assert isinstance(placed.phase, Ending)
        placed.phase.why = PreemptReason.FAILED
        return first

    def stop_silently(self, placed: Placed) -> None:
        """End the placement without a fact about it, because the job itself has ended."""
        self.stop(placed, PreemptReason.PLAN)
        assert isinstance(placed.phase, Ending)
        placed.phase.owed = Owed.NOTHING

    # ---- finding them

    def of_job(self, job_id: JobId) -> list[Placed]:
        return [self.placements[placement_id] for placement_id in self.by_job.get(job_id, ())]

    def on_node(self, node_id: NodeId) -> list[Placed]:
        return [self.placements[placement_id] for placement_id in self.by_node.get(node_id, ())]

    def add(self, placed: Placed) -> None:
        placed.number, self.added = self.added, self.added + 1
        self.placements[placed.placement_id] = placed
        self.waiting[placed.placement_id] = self.candidates[placed.placement_id] = None
        self.by_job.setdefault(placed.job_id, {})[placed.placement_id] = None
        for node_id in placed.gang.nodes:
            self.by_node.setdefault(node_id, {})[placed.placement_id] = None

    def shrink(self, placed: Placed, node_id: NodeId) -> None:
        """Take a copy's node out of the placement's gang; the last node stays until the placement ends."""
        rest = gangs.without(placed.gang, node_id)
        if rest is not None and placed.gang.on(node_id):
            placed.gang = rest
            _remove(self.by_node, node_id, placed.placement_id)

    def forget(self, placement_id: PlacementId) -> None:
        """Forget the placement, but for its id."""
        assert not self.placements[placement_id].workers, "workers that are left hold GPUs"
        placed = self.placements.pop(placement_id)
        _remove(self.by_job, placed.job_id, placement_id)
        for node_id in placed.gang.nodes:
            _remove(self.by_node, node_id, placement_id)
        self.ended[placement_id] = None
        while len(self.ended) > ENDED_REMEMBERED:
            del self.ended[next(iter(self.ended))]

    def gpus_wanted(self, node_id: NodeId) -> dict[str, int]:
        """GPUs of a node that wanted placements have or wait for, by holder."""
        return {placed.holder: placed.gang.on(node_id) for placed in self.on_node(node_id) if placed.wanted}

    def gpus_held(self, node_id: NodeId) -> dict[str, int]:
        """GPUs of a node that workers have, are ordered to take or may still have, by holder."""
        held: dict[str, int] = dict(self.stale.get(node_id, {}).items())
        for placed in self.on_node(node_id):
            if node_id in placed.workers:
                held[placed.holder] = placed.gang.on(node_id)
        return held


def oldest_first(placements: Iterable[Placed]) -> list[Placed]:
    return sorted(placements, key=lambda placed: placed.number)


def _remove(index: dict[K, dict[PlacementId, None]], key: K, placement_id: PlacementId) -> None:
    del index[key][placement_id]
    if not index[key]:
        del index[key]
