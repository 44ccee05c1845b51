"""Claims on GPUs: by planned placements, by running workers, by measurements to be made. Pure.

A GPU is claimed as long as any of the three claims it. A placement that a first plan has superseded is not
planned any more, but claims the GPUs that its workers still hold.
"""

from collections import Counter
from collections.abc import Collection, Mapping

import msgspec

from schemas.events import (
    NodeJoined,
    Outcome,
    ProfilingAdded,
    ProfilingPlanned,
    StartOrdered,
    WorkerStarted,
    WorkerStopped,
)
from schemas.ids import JobId, NodeId, PlacementId
from schemas.placement import Configuration
from schemas.plans import Placement, PlanKind
from shared.domain import gangs, in_turns


class Claims(msgspec.Struct, kw_only=True):
    planned: dict[PlacementId, Placement] = {}
    """planned placements that were neither refused nor superseded, and have not ended"""
    broken: set[PlacementId] = set()
    """planned placements that lost a worker and do not train any more"""
    workers: dict[PlacementId, Configuration] = {}
    """GPUs by node of workers that have started and not stopped, measurements included"""
    profiles: dict[PlacementId, NodeId] = {}
    """measurements that are not over, each with the node that owes it one GPU"""
    of_job: dict[JobId, PlacementId] = {}
    """the planned placement of each job that has one"""
    ordered: dict[PlacementId, set[NodeId]] = {}
    """placements of rotas, each with the nodes whose worker is ordered and may still come up"""
    rotas: dict[PlacementId, str] = {}
    """holders of placements of rotas, as long as they are planned or ordered or have workers"""
    counted: dict[str, Configuration] = {}
    """GPUs by node that each holder claims: a placement, or a rota for all of its own"""
    claimed: dict[NodeId, int] = {}
    """the sum of `counted`: GPUs by node that are in use or promised"""

    def placement_of(self, job_id: JobId) -> Placement | None:
        """The placement on which the job runs or is about to run."""
        placement_id = self.of_job.get(job_id)
        return None if placement_id is None else self.planned[placement_id]

    def reserved(self) -> dict[NodeId, int]:
        """GPUs by node that belong to profiling."""
        return Counter(self.profiles.values())

    def _count(self, placement_id: PlacementId) -> None:
        """Update `counted` and `claimed` for a placement, and for the others of its rota."""
        holder = self._holder(placement_id)
        for node_id, gpus in self.counted.pop(holder, {}).items():
            left = self.claimed[node_id] - gpus
            if left:
                self.claimed[node_id] = left
            else:
                del self.claimed[node_id]
        claim = self._claim(placement_id) if holder == placement_id else self._claim_of_rota(holder)
        if claim:
            self.counted[holder] = claim
        for node_id, gpus in claim.items():
            self.claimed[node_id] = self.claimed.get(node_id, 0) + gpus

    def _holder(self, placement_id: PlacementId) -> str:
        planned = self.planned.get(placement_id)
        holder = in_turns.holder(placement_id, planned.gang) if planned else placement_id
        if holder != placement_id:
            self.rotas[placement_id] = holder
        return self.rotas.get(placement_id, placement_id)

    def _claim_of_rota(self, holder: str) -> Configuration:
        claim: Configuration = {}
        for placement_id in [one for one, own in self.rotas.items() if own == holder]:
            own = self._claim(placement_id)
            claim = _larger(claim, own)
            if not own and placement_id not in self.ordered:
                del self.rotas[placement_id]
        return claim

    def _claim(self, placement_id: PlacementId) -> Configuration:
        planned = self.planned.get(placement_id)
        if planned is not None:
            promised = planned.gang.configuration
        elif placement_id in self.profiles:
            promised = {self.profiles[placement_id]: 1}
        else:
            promised = {}
        held = self.workers.get(placement_id)
        return _larger(promised, held) if held else promised

    # ---- facts

    def reserve(self, fact: ProfilingPlanned | ProfilingAdded) -> None:
        for run in fact.runs:
            self.profiles[run.placement_id] = run.node_id
            self._count(run.placement_id)

    def end_profile(self, placement_id: PlacementId, node_id: NodeId) -> None:
        """End a measurement on that node; reports about other nodes' measurements are ignored."""
        if self.profiles.get(placement_id) == node_id:
            del self.profiles[placement_id]
            self._count(placement_id)

    def withdraw(self, placement_id: PlacementId) -> None:
        planned = self.planned.pop(placement_id, None)
        self.broken.discard(placement_id)
        if planned is not None:
            if self.of_job.get(planned.job_id) == placement_id:
                del self.of_job[planned.job_id]
            self._count(placement_id)

    def order(self, fact: StartOrdered) -> None:
        """Remember the rota that a worker belongs to: it may come up after its placement was withdrawn."""
        if gangs.rota(fact.gang):
            self.ordered.setdefault(fact.placement_id, set()).add(fact.node_id)
            self.rotas[fact.placement_id] = in_turns.holder(fact.placement_id, fact.gang)

    def start_worker(self, fact: WorkerStarted) -> None:
        self._expect_no_more(fact.placement_id, fact.node_id)
        place = self.workers.setdefault(fact.placement_id, {})
        place[fact.node_id] = len(fact.gpu_indices)
        self._count(fact.placement_id)

    def stop_worker(self, fact: WorkerStopped) -> None:
        """End a worker. If it has done all samples and does not lead, its gang stays: the leader goes on."""
        self.end_profile(fact.placement_id, fact.node_id)
        done = fact.outcome is Outcome.COMPLETED and not fact.leads
        self._stop(fact.placement_id, fact.node_id, gang_stays=done)

    def restart_node(self, fact: NodeJoined) -> None:
        """End the workers of the node's earlier life that the agent does not list: they are gone.

        The profiler ends those of its measurements that were ordered; one that waits for its GPU keeps it.
        """
        for placement_id in [pid for pid, place in self.workers.items() if fact.node_id in place]:
            if placement_id not in fact.workers:
                self._stop(placement_id, fact.node_id)
        for placement_id in [pid for pid in self.ordered if pid not in fact.workers]:
            self._expect_no_more(placement_id, fact.node_id)
            self._count(placement_id)

    def plan(self, kind: PlanKind, listed: Collection[Placement]) -> None:
        """Fold a plan: a first plan lists all that is to run, a fragment plan what starts beside it."""
        before = self.planned
        placements = {one.placement_id: _without_ended(one, before) for one in listed}
        of_job = {placement.job_id: placement.placement_id for placement in listed}
        changed = []
        if kind == PlanKind.FIRST:
            self.planned, self.of_job = placements, of_job
            changed = [pid for pid in before if pid not in placements]
        else:
            self.planned = before | placements
            self.of_job |= of_job
        for placement_id, placement in placements.items():
            known = before.get(placement_id)
            if known is not placement and (known is None or known.gang != placement.gang):
                changed.append(placement_id)
        for placement_id in changed:
            self._count(placement_id)
        self.broken = {placement_id for placement_id in self.broken if placement_id in self.planned}

    def drop_job(self, job_id: JobId) -> None:
        """Withdraw the placement of a job that ended: it must not start, and its workers are stopping."""
        placement_id = self.of_job.get(job_id)
        if placement_id is not None:
            self.withdraw(placement_id)

    def _expect_no_more(self, placement_id: PlacementId, node_id: NodeId) -> None:
        """The worker that was ordered on the node is up, or will not come up."""
        expected = self.ordered.get(placement_id, set())
        expected.discard(node_id)
        if not expected:
            self.ordered.pop(placement_id, None)

    def _stop(self, placement_id: PlacementId, node_id: NodeId, *, gang_stays: bool = False) -> None:
        """End a worker's part of its placement's claim: a placement is not started twice."""
        self._expect_no_more(placement_id, node_id)
        held = self.workers.get(placement_id, {})
        held.pop(node_id, None)
        if not held:
            self.workers.pop(placement_id, None)
        planned = None if gang_stays else self.planned.get(placement_id)
        rest = _rest(planned, node_id) if planned else None
        if rest is not None:
            if rest is not planned and not gangs.merges(rest.gang):
                self.broken.add(placement_id)
            self.planned[placement_id] = rest
        elif planned is not None:
            self.withdraw(placement_id)
        self._count(placement_id)

    def lose_copy(self, placement_id: PlacementId, node_id: NodeId) -> None:
        """Take a lost copy out of its placement; GPUs that its workers may still hold stay claimed."""
        planned = self.planned.get(placement_id)
        rest = _rest(planned, node_id) if planned is not None and gangs.merges(planned.gang) else None
        if rest is not None:
            self.planned[placement_id] = rest
            self._count(placement_id)


def _without_ended(listed: Placement, before: Mapping[PlacementId, Placement]) -> Placement:
    """The placement as listed, without copies that ended after the plan was made."""
    known = before.get(listed.placement_id)
    return known if known is not None and gangs.merges(known.gang) else listed


def _rest(planned: Placement, node_id: NodeId) -> Placement | None:
    """The placement without a node; None if no gang is left that could train."""
    rest = gangs.without(planned.gang, node_id)
    if rest is None or not planned.gang.on(node_id):
        return planned if rest is not None else None
    throughput = planned.throughput
    if gangs.merges(rest):
        throughput *= 1.0 - gangs.share(planned.gang, node_id)
    return msgspec.structs.replace(planned, gang=rest, throughput=throughput)


def _larger(one: Configuration, other: Configuration) -> Configuration:
    nodes = dict.fromkeys((*one, *other))
    return {node_id: max(one.get(node_id, 0), other.get(node_id, 0)) for node_id in nodes}
