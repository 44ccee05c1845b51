"""HLAS (IEEE TCC 12(4), 2024, section IV-C): least attained service, counted alike on fast and slow GPUs.

GPUs are divided into groups that are about equally fast for every job. A job's virtual size is the number of
rounds it has run × the time of a round on a mean group. K queues by that size are served in order, each FIFO.
A job gets enough groups for the D tasks of a round; where there are fewer, its tasks take turns on the GPUs
it has. How long a job will run is not used.

HLAS-P (section V) adds the rounds that a job is predicted to run further; HLAS-L adds all rounds that are
left by a fit of the job's losses. `docs/policies/hlas.md` says what the paper leaves open.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import ClassVar

import msgspec

from schemas.ids import GpuType, JobId, NodeId
from schemas.placement import Mode, Relaxed
from schemas.plans import Layer, Measures, PlanKind, Standing, Waiting
from services.planner.policies.contract.configurations import Configurations, explicit
from services.planner.policies.contract.decision import SOONEST_S, Choice, Decision, Left, Trigger
from services.planner.policies.contract.estimates import Estimated
from services.planner.policies.contract.view import View
from services.planner.policies.hlas.contenders import Contender, contenders
from services.planner.policies.hlas.memory import (
    JOBS_AT_MOST,
    HlasMemory,
    RememberedJob,
    at_most,
    remembered,
    stored,
    with_ended,
)
from services.planner.policies.hlas.options import HlasLOptions, HlasOptions, HlasPOptions
from services.planner.policies.hlas.predicting import JobSoFar, conservative, entire, named
from services.planner.policies.hlas.queues import QueuePlace
from services.planner.policies.hlas.room import room_of
from services.planner.policies.hlas.rotas import without_rotas
from services.planner.policies.hlas.scene import Arrangement, scene
from services.planner.policies.kit.ordered import EVENTS, walk_s
from services.planner.policies.kit.thresholds import ascending
from services.planner.solver.problem import Solve
from shared.domain import gangs

MEASURES = Measures(priority="level, by virtual size, 1 first")


class Reading(msgspec.Struct, frozen=True):
    """What the policy has computed from a view, before any estimate."""

    before: HlasMemory
    aside: tuple[Choice, ...]
    """the jobs of rotas that stay as they are (see `rotas`)"""
    arrangement: Arrangement


class Hlas:
    Options: ClassVar[type[HlasOptions]] = HlasOptions
    calls: ClassVar[Mapping[Trigger, PlanKind]] = EVENTS
    sees_staying: ClassVar[bool] = True
    modes: ClassVar[frozenset[type[Mode]]] = frozenset({Relaxed})

    def __init__(self, options: HlasOptions) -> None:
        self._options = options
        self._thresholds = ascending(options.hlas_thresholds)
        self._last: tuple[View, Reading] | None = None

    # ---- the contract of a policy

    def wants(self, view: View) -> Configurations:
        """New gangs of several GPUs, as if in lockstep: from their estimates follows the exchange time."""
        seen = self._seen(view).arrangement
        moved = [
            (one.job.job_id, one.gang.configuration)
            for one in seen.queue
            if one.gang is not None and not one.stays_put and one.gang.gpus > 1
        ]
        return explicit(moved, view.nodes)

    def decide(
        self,
        view: View,
        wanted: Configurations,
        estimates: Estimated,
        solve: Solve,  # noqa: ARG002 - there is no integer program
    ) -> Decision:
        looked = self._seen(view)
        before, seen = looked.before, looked.arrangement
        rows = {wanted.jobs[job]: row for row, job in enumerate(wanted.job.tolist())}
        kind_of = {node.node_id: node.gpu_type for node in view.nodes}
        found = (_choice(one, rows.get(one.job.job_id), kind_of, estimates) for one in seen.queue)
        choices = {choice.job_id: choice for choice in found if choice is not None}
        return Decision(
            choices=(*looked.aside, *choices.values()),
            left=tuple(_left(one) for one in seen.queue if one.job.job_id not in choices),
            solve_s=walk_s(view),
            configurations=len(wanted),
            memory=stored(_memory(view, before, seen, choices)),
            again_at=self._again_at(view, seen.queue, choices),
            measures=MEASURES,
            standings={one.job.job_id: Standing(priority=one.queue_place.queue + 1.0) for one in seen.queue},
        )

    def _seen(self, view: View) -> Reading:
        """The reading of a view; computed once for each view."""
        if self._last is None or self._last[0] is not view:
            self._last = view, self._looked_at(view)
        return self._last[1]

    def _looked_at(self, whole: View) -> Reading:
        view, aside = without_rotas(whole)
        there = {job.job_id for job in whole.jobs} | whole.apart.keys()
        before = remembered(view.memory, there)
        if view.kind is PlanKind.FIRST:
            before = msgspec.structs.replace(before, ended=with_ended(before, there, view.at))
        now = [
            self._in_present_queue(one, before, view.at) for one in contenders(view, before, self._options)
        ]
        return Reading(before, aside, scene(room_of(view, before), before, now, self._options))

    # ---- the jobs in their queues

    def _in_present_queue(self, one: Contender, before: HlasMemory, at: float) -> Contender:
        queue_place = self.foreseen(one, before) if one.rates else one.queue_place
        queue_place = queue_place.sized(one.rounds, one.yard, self._thresholds, at)
        return msgspec.structs.replace(one, queue_place=queue_place)

    def foreseen(self, one: Contender, before: HlasMemory) -> QueuePlace:  # noqa: ARG002 - for subclasses
        """The job's place in the queues, with the rounds that it is predicted to run further."""
        return one.queue_place

    def _again_at(
        self, view: View, queue: Iterable[Contender], choices: Mapping[JobId, Choice]
    ) -> float | None:
        """When the next running job reaches another queue; None: none does."""
        moves = [
            (self._samples_at_move(one) - one.job.samples_done) / choices[one.job.job_id].throughput
            for one in queue
            if one.job.job_id in choices and choices[one.job.job_id].throughput > 0
        ]
        soonest = min(moves, default=math.inf)
        return view.at + max(soonest, SOONEST_S) if math.isfinite(soonest) else None

    def _samples_at_move(self, one: Contender) -> float:
        return one.queue_place.next_move_at(one.rounds, one.yard, self._thresholds) * one.yard.round_samples


class HlasP(Hlas):
    """HLAS-P: as `hlas`, and counts the rounds that jobs are predicted to run further."""

    Options: ClassVar[type[HlasOptions]] = HlasPOptions

    def __init__(self, options: HlasPOptions | HlasLOptions) -> None:
        super().__init__(options)
        self._predictor = named(options.predictor)

    def foreseen(self, one: Contender, before: HlasMemory) -> QueuePlace:
        queue_place = one.queue_place
        if not queue_place.is_to_be_asked(one.rounds):
            return queue_place
        samples = one.yard.round_samples
        ended = [each / samples for each in before.ended.get(one.job.workload, ())]
        asked = JobSoFar(job=one.job, rounds=one.rounds, round_samples=samples, ended=ended)
        alpha = math.ceil(self._thresholds[0] / one.yard.round_s)
        return queue_place.foreseeing(one.rounds, self.further(asked, alpha))

    def further(self, asked: JobSoFar, alpha: int) -> int:
        """Rp: the rounds that the job is predicted to run further."""
        return conservative(asked, self._predictor, alpha)


class HlasL(HlasP):
    """HLAS-L: as `hlas`, and counts the rounds that are left too, by a fit of the losses."""

    Options = HlasLOptions

    def further(self, asked: JobSoFar, alpha: int) -> int:  # noqa: ARG002 - it takes all
        return entire(asked, self._predictor)


# ---- the outcome


def _choice(
    one: Contender, row: int | None, kind_of: Mapping[NodeId, GpuType], estimates: Estimated
) -> Choice | None:
    """The choice of a job; None: it waits. `row`: of its estimate; None: it was not asked about."""
    if one.gang is None:
        return None
    job_id, present = one.job.job_id, one.job.present
    if one.stays_put and present is not None:
        return Choice(job_id=job_id, gang=one.gang, throughput=present.throughput, layer=present.layer)
    rates = [one.rates[kind_of[node_id]] for node_id in one.gang.nodes]
    batch, exchange_s, layer = one.job.batch_size, 0.0, Layer.THEORY
    if row is not None and estimates.throughput[row] > 0:
        lockstep_s = one.gang.gpus * batch / float(estimates.throughput[row])
        exchange_s, layer = max(lockstep_s - batch / min(rates), 0.0), estimates.layer_at(row)
    speed = gangs.throughput(one.gang, rates, batch, exchange_s)
    return Choice(job_id=job_id, gang=one.gang, throughput=speed, layer=layer)


def _left(one: Contender) -> Left:
    if not one.rates:
        return Left(job_id=one.job.job_id, reason=Waiting.NO_CONFIGURATION)
    return Left(job_id=one.job.job_id, reason=Waiting.OUTWEIGHED)


def _memory(view: View, before: HlasMemory, seen: Arrangement, choices: Mapping[JobId, Choice]) -> HlasMemory:
    unseen = _unseen(view, before, seen) if view.kind is PlanKind.FRAGMENT else {}
    return HlasMemory(
        at=view.at,
        groups=seen.formed.groups,
        jobs=at_most(JOBS_AT_MOST, unseen | dict(_known(seen.queue, choices))),
        speeds=seen.speeds,
        ended=before.ended,
    )


def _unseen(view: View, before: HlasMemory, seen: Arrangement) -> dict[JobId, RememberedJob]:
    """Entries of jobs that the view does not have, with the samples that were expected of them since."""
    ran_s = max(view.at - before.at, 0.0)
    return {
        job_id: msgspec.structs.replace(
            job, groups=seen.formed.held.get(job_id, ()), samples=job.samples + job.rate * ran_s
        )
        for job_id, job in before.jobs.items()
    }


def _known(
    queue: Iterable[Contender], choices: Mapping[JobId, Choice]
) -> Iterator[tuple[JobId, RememberedJob]]:
    """The entries of the queue's jobs. A job that has not begun, and without a prediction, needs none."""
    for one in queue:
        choice, job = choices.get(one.job.job_id), one.job
        if choice is None and not job.samples_done and not one.queue_place.until:
            continue
        yield (
            job.job_id,
            RememberedJob(
                scale=one.scale,
                queue_place=one.queue_place,
                groups=one.groups,
                workload=job.workload,
                samples=job.samples_done,
                rate=choice.throughput if choice else 0.0,
            ),
        )
