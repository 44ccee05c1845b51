"""The placer's decisions: facts in, orders out.

A fact first changes what is wanted or what is known to be there; then `converge` orders whatever brings
the two together.
"""

from collections.abc import Callable, Mapping
from typing import Any

from schemas.base import Event
from schemas.events import (
    JobCancelled,
    JobCompleted,
    JobFailed,
    JobRejected,
    JobSubmitted,
    NodeJoined,
    NodeLost,
    NodeReturned,
    Outcome,
    PlacementRefused,
    PlanPublished,
    PreemptReason,
    ProfileFailed,
    ProfilingPlanned,
    StopOrdered,
    WorkerCheckpointed,
    WorkerStarted,
    WorkerStopped,
)
from schemas.ids import JobId, NodeId, PlacementId, PlanId
from schemas.plans import Placement, PlanKind
from services.placer.converge import converge, stop_order
from services.placer.objections import objection
from services.placer.state import KnownNode, OpenJob, Placed, State, WorkerState
from shared.domain.core import Effect, Effects, Input, Publish


class Placer:
    """`start_timeout_s`: cluster seconds for all workers of a placement to come up."""

    def __init__(self, *, start_timeout_s: float, profile_iterations: int) -> None:
        self.state = State()
        self._start_timeout_s = start_timeout_s
        self._profile_iterations = profile_iterations
        self._timed_out: set[PlacementId] = set()
        self._at = 0.0
        self._out: Effects = []

    # ---- the core contract

    def handle(self, message: Input, now: float) -> Effects:  # noqa: ARG002 - facts carry their time
        fold = self._FOLDS.get(type(message))
        if fold is None or not isinstance(message, Event):
            return []
        self._at = message.at
        fold(self, message)
        return [*self._taken(), *self._converged()]

    def next_wakeup(self) -> float | None:
        """When the first of the placements that are coming up is out of time."""
        deadlines = [
            placed.ordered_at + self._start_timeout_s
            for placed in self.state.placements.values()
            if placed.ordered_at is not None and self._coming_up(placed)
        ]
        return min(deadlines, default=None)

    def wake(self, now: float) -> Effects:
        for placed in self.state.placements.values():
            late = placed.ordered_at is not None and now >= placed.ordered_at + self._start_timeout_s
            if late and self._coming_up(placed):
                self._timed_out.add(placed.placement_id)
                self._at = now
                self._refuse(placed.placement_id, placed.plan_id, placed.job_id, "not up in time")
        return self._taken()

    def resume(self, now: float) -> Effects:
        self._at = now
        return [*self._taken(), *self._converged()]

    def _coming_up(self, placed: Placed) -> bool:
        waiting = placed.wanted and not placed.started and not placed.profile
        return waiting and placed.placement_id not in self._timed_out

    # ---- plans: what is wanted

    def _plan_published(self, plan: PlanPublished) -> None:
        if plan.token < self.state.token:
            for placement in plan.placements:
                if placement.placement_id not in self.state.placements:  # what runs is not touched
                    self._refuse_new(placement, plan.plan_id, "the plan is of an older leader")
            return
        self.state.token = plan.token
        if plan.kind is PlanKind.FIRST:
            kept = {placement.placement_id for placement in plan.placements}
            for placed in list(self.state.placements.values()):
                if not placed.profile and placed.placement_id not in kept:
                    self._unwant(placed, PreemptReason.PLAN)
        for placement in plan.placements:
            if placement.placement_id not in self.state.placements:
                self._admit(placement, plan)

    def _admit(self, placement: Placement, plan: PlanPublished) -> None:
        reason = objection(self.state, placement)
        if reason:
            self._refuse_new(placement, plan.plan_id, reason)
            return
        self.state.placements[placement.placement_id] = Placed(
            placement_id=placement.placement_id,
            job_id=placement.job_id,
            plan_id=plan.plan_id,
            configuration=dict(sorted(placement.configuration.items())),
            round=plan.round,
        )

    def _round_opened(self, opened: ProfilingPlanned) -> None:
        plan_id = PlanId(f"round-{opened.round}")
        for placed in list(self.state.placements.values()):
            if placed.profile and placed.ordered_at is None:
                self._refuse(placed.placement_id, placed.plan_id, placed.job_id, "no GPU came free")
                self._unwant(placed, PreemptReason.PLAN)
        for run in opened.runs:
            known = self.state.nodes.get(run.node_id)
            if run.job_id not in self.state.jobs or known is None or not known.alive:
                self._refuse(run.placement_id, plan_id, run.job_id, f"node {run.node_id} is not there")
            elif run.placement_id not in self.state.placements:
                self.state.placements[run.placement_id] = Placed(
                    placement_id=run.placement_id,
                    job_id=run.job_id,
                    plan_id=plan_id,
                    configuration={run.node_id: 1},
                    profile=True,
                    round=opened.round,
                )

    def _profile_failed(self, failed: ProfileFailed) -> None:
        if placed := self.state.placements.get(failed.placement_id):
            self._unwant(placed, PreemptReason.PLAN)

    def _placement_refused(self, refused: PlacementRefused) -> None:
        if placed := self.state.placements.get(refused.placement_id):
            self._unwant(placed, PreemptReason.PLAN)

    def _unwant(self, placed: Placed, why: PreemptReason) -> None:
        if placed.wanted:
            placed.wanted, placed.why = False, why

    # ---- jobs

    def _job_submitted(self, submitted: JobSubmitted) -> None:
        self.state.jobs.setdefault(submitted.job_id, OpenJob(spec=submitted.spec))

    def _job_ended(self, ended: JobCompleted | JobFailed | JobCancelled | JobRejected) -> None:
        self.state.jobs.pop(ended.job_id, None)
        self._let_go(ended.job_id)

    def _let_go(self, job_id: JobId) -> None:
        """Whatever there is of the job shall end, and no preemption is told."""
        for placed in self.state.of_job(job_id):
            placed.over = True
            self._unwant(placed, PreemptReason.PLAN)

    # ---- workers: what is there

    def _worker_started(self, worker: WorkerStarted) -> None:
        placed = self.state.placements.get(worker.placement_id)
        if placed is None or worker.node_id not in placed.workers:
            self._disown(worker)
        elif placed.workers[worker.node_id] is WorkerState.ORDERED:
            placed.workers[worker.node_id] = WorkerState.UP

    def _disown(self, worker: WorkerStarted) -> None:
        """A worker nobody wants any more, ordered before its agent's new life was known here."""
        if known := self.state.nodes.get(worker.node_id):
            known.stale[worker.placement_id] = len(worker.gpu_indices)
        self._tell(
            StopOrdered(
                at=self._at,
                node_id=worker.node_id,
                placement_id=worker.placement_id,
                job_id=worker.job_id,
            )
        )

    def _worker_checkpointed(self, worker: WorkerCheckpointed) -> None:
        if worker.placement_id in self.state.placements:
            self._save_progress(worker.job_id, worker.samples_done)

    def _worker_stopped(self, worker: WorkerStopped) -> None:
        if known := self.state.nodes.get(worker.node_id):
            known.stale.pop(worker.placement_id, None)
        placed = self.state.placements.get(worker.placement_id)
        if placed is None or worker.node_id not in placed.workers:
            return
        del placed.workers[worker.node_id]
        if worker.outcome is Outcome.REFUSED:
            self._refuse(
                placed.placement_id, placed.plan_id, placed.job_id, worker.reason or "refused by the node"
            )
        elif worker.leads:
            self._save_progress(worker.job_id, worker.samples_done)
        self._unwant(placed, PreemptReason.PLAN)
        if _ends_the_job(placed, worker):
            if job := self.state.jobs.get(worker.job_id):
                job.over = True
            self._let_go(worker.job_id)

    def _save_progress(self, job_id: JobId, samples_done: float) -> None:
        if job := self.state.jobs.get(job_id):
            job.samples_done = max(job.samples_done, samples_done)

    # ---- nodes

    def _node_joined(self, joined: NodeJoined) -> None:
        known = self.state.nodes.get(joined.node_id)
        if known is not None and known.life != joined.life:
            self._bereave(joined.node_id, PreemptReason.AGENT_RESTARTED, keep=frozenset(joined.workers))
        self.state.nodes[joined.node_id] = KnownNode(node=joined.node, life=joined.life)

    def _node_lost(self, lost: NodeLost) -> None:
        known = self.state.nodes.get(lost.node_id)
        if known is None or not known.alive:
            return
        known.alive = False
        known.stale |= self._bereave(lost.node_id, PreemptReason.NODE_LOST, keep=frozenset())
        for placement_id in known.stale:
            if placed := self.state.placements.get(placement_id):
                self._tell(stop_order(placed, lost.node_id, self._at))  # read once it returns

    def _node_returned(self, returned: NodeReturned) -> None:
        if known := self.state.nodes.get(returned.node_id):
            known.alive = True

    def _bereave(
        self, node_id: NodeId, why: PreemptReason, *, keep: frozenset[PlacementId]
    ) -> dict[PlacementId, int]:
        """Take the workers on a node for gone; the GPUs they had."""
        gone: dict[PlacementId, int] = {}
        for placed in self.state.placements.values():
            if node_id not in placed.configuration or placed.placement_id in keep:
                continue
            had_worker = placed.workers.pop(node_id, None) is not None
            if had_worker:
                gone[placed.placement_id] = placed.configuration[node_id]
            if had_worker or why is PreemptReason.NODE_LOST:
                self._unwant(placed, why)
        return gone

    # ---- telling

    def _refuse_new(self, placement: Placement, plan_id: PlanId, reason: str) -> None:
        self._refuse(placement.placement_id, plan_id, placement.job_id, reason)

    def _refuse(self, placement_id: PlacementId, plan_id: PlanId, job_id: JobId, reason: str) -> None:
        self._tell(
            PlacementRefused(
                at=self._at, placement_id=placement_id, plan_id=plan_id, job_id=job_id, reason=reason
            )
        )

    def _tell(self, event: Event) -> None:
        self._out.append(Publish(event))

    def _converged(self) -> Effects:
        return [Publish(event) for event in converge(self.state, self._at, self._profile_iterations)]

    def _taken(self) -> list[Effect]:
        out, self._out = self._out, []
        return out

    _FOLDS: Mapping[type, Callable[["Placer", Any], None]] = {
        PlanPublished: _plan_published,
        ProfilingPlanned: _round_opened,
        ProfileFailed: _profile_failed,
        PlacementRefused: _placement_refused,
        JobSubmitted: _job_submitted,
        JobCompleted: _job_ended,
        JobFailed: _job_ended,
        JobCancelled: _job_ended,
        JobRejected: _job_ended,
        WorkerStarted: _worker_started,
        WorkerCheckpointed: _worker_checkpointed,
        WorkerStopped: _worker_stopped,
        NodeJoined: _node_joined,
        NodeLost: _node_lost,
        NodeReturned: _node_returned,
    }


def _ends_the_job(placed: Placed, worker: WorkerStopped) -> bool:
    """Whether the monitor will say of the job that it completed or failed: one failed worker is enough."""
    completed = worker.outcome is Outcome.COMPLETED and worker.leads
    return not placed.profile and (completed or worker.outcome is Outcome.FAILED)
