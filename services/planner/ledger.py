"""Which GPUs are spoken for: placements that were planned, workers that run, profiles to be made. Pure.

A claim on a node's GPUs lasts as long as any of the three says so. A placement superseded by a first
plan has no plan any more, but claims what its workers still hold.
"""

import msgspec

from schemas.base import Event
from schemas.events import (
    JobPreempted,
    NodeJoined,
    PlacementRefused,
    PlanPublished,
    ProfileFailed,
    ProfileMeasured,
    ProfilingPlanned,
    WorkerStarted,
    WorkerStopped,
)
from schemas.ids import JobId, NodeId, PlacementId
from schemas.plans import Configuration, Placement, PlanKind


class Ledger(msgspec.Struct, kw_only=True):
    planned: dict[PlacementId, Placement] = {}
    """planned and neither refused nor ended nor superseded"""
    workers: dict[PlacementId, Configuration] = {}
    """started and not stopped: GPUs by node, profiling included"""
    profiles: dict[PlacementId, NodeId] = {}
    """one GPU each, promised to a measurement that is not over"""

    def placement_of(self, job_id: JobId) -> Placement | None:
        """Where the job runs or is about to run."""
        found = (placement for placement in self.planned.values() if placement.job_id == job_id)
        return next(found, None)

    def placements(self) -> dict[JobId, Placement]:
        return {placement.job_id: placement for placement in self.planned.values()}

    def reserved(self) -> dict[NodeId, int]:
        """GPUs by node that belong to profiling."""
        gpus: dict[NodeId, int] = {}
        for node_id in self.profiles.values():
            gpus[node_id] = gpus.get(node_id, 0) + 1
        return gpus

    def claimed(self) -> dict[NodeId, int]:
        """GPUs by node that somebody has or was promised."""
        claims: dict[PlacementId, Configuration] = {pid: {node: 1} for pid, node in self.profiles.items()}
        for pid, placement in self.planned.items():
            claims[pid] = placement.configuration
        gpus: dict[NodeId, int] = {}
        for pid in dict.fromkeys((*claims, *self.workers)):
            for node_id, count in _larger(claims.get(pid, {}), self.workers.get(pid, {})).items():
                gpus[node_id] = gpus.get(node_id, 0) + count
        return gpus

    # ---- facts

    def fold(self, fact: Event) -> None:
        match fact:
            case ProfilingPlanned():
                self.profiles |= {run.placement_id: run.node_id for run in fact.runs}
            case ProfileMeasured() | ProfileFailed():
                self.profiles.pop(fact.placement_id, None)
            case PlacementRefused() | JobPreempted():
                self.planned.pop(fact.placement_id, None)
            case WorkerStarted():
                place = self.workers.setdefault(fact.placement_id, {})
                place[fact.node_id] = len(fact.gpu_indices)
            case WorkerStopped():
                self.profiles.pop(fact.placement_id, None)
                self._stop(fact.placement_id, fact.node_id)
            case NodeJoined():
                self._restart(fact)
            case _:
                pass

    def plan(self, fact: PlanPublished) -> None:
        """A first plan says all that shall run; a fragment plan what shall start besides."""
        news = {placement.placement_id: placement for placement in fact.placements}
        self.planned = news if fact.kind == PlanKind.FIRST else self.planned | news

    def drop_job(self, job_id: JobId) -> None:
        """The job ended: it shall not start, and what still runs of it is stopping."""
        self.planned = {pid: kept for pid, kept in self.planned.items() if kept.job_id != job_id}

    def _stop(self, placement_id: PlacementId, node_id: NodeId) -> None:
        """A worker is gone, and placements are not started twice: that part of the claim is over."""
        self.workers[placement_id] = _without(self.workers.get(placement_id, {}), node_id)
        if not self.workers[placement_id]:
            del self.workers[placement_id]
        planned = self.planned.get(placement_id)
        if planned is None:
            return
        rest = _without(planned.configuration, node_id)
        if rest:
            self.planned[placement_id] = msgspec.structs.replace(planned, configuration=rest)
        else:
            del self.planned[placement_id]

    def _restart(self, fact: NodeJoined) -> None:
        """Workers of the node's earlier life that it does not list are gone."""
        for placement_id in [pid for pid, place in self.workers.items() if fact.node_id in place]:
            if placement_id not in fact.workers:
                self._stop(placement_id, fact.node_id)
        for placement_id in [pid for pid, node in self.profiles.items() if node == fact.node_id]:
            if placement_id not in fact.workers:
                del self.profiles[placement_id]


def _larger(one: Configuration, other: Configuration) -> Configuration:
    nodes = dict.fromkeys((*one, *other))
    return {node_id: max(one.get(node_id, 0), other.get(node_id, 0)) for node_id in nodes}


def _without(place: Configuration, node_id: NodeId) -> Configuration:
    return {node: gpus for node, gpus in place.items() if node != node_id}
