"""The profiler's decisions: when a round opens, when a run has failed, when a job is profiled.

After every fact that matters the core publishes all facts that are due by its state. A fact that it has
published before has the same id, so the shell drops it.

A round opens with measurements that may take GPUs from jobs. With `at_once`, jobs are measured within a round
too, on idle GPUs only: at once after a job was submitted or a node came, and `settle_s` after GPUs came free,
since jobs that are planned on them go first.
"""

from collections.abc import Iterable, Iterator, Mapping
from math import inf
from operator import itemgetter

import msgspec

from schemas.base import Event
from schemas.events import (
    GpusWithheld,
    JobEvent,
    JobProfiled,
    JobRejected,
    JobReleased,
    JobSubmitted,
    JobTypeProfiled,
    NodeEvent,
    NodeJoined,
    NodeRestored,
    NodeReturned,
    PlacementRefused,
    ProfileFailed,
    ProfileMeasured,
    ProfilingAdded,
    ProfilingPlanned,
    StartOrdered,
    StopOrdered,
    WorkerStarted,
    WorkerStopped,
)
from schemas.ids import Fingerprint, GpuType, JobId, PlacementId
from schemas.measurements import TimeModules
from schemas.questions import FitLoading, FittedLoading, Refused
from services.profiler.folds import FOLDS, fold
from services.profiler.modules import fitted, one_mode
from services.profiler.needs import Needs, Types, lacks_open_type, needs_of, types_of
from services.profiler.runs import added_runs, opening_runs
from services.profiler.state import KnownJob, PendingRun, Rules, State
from services.profiler.tasks import Fit, Fitted, FittedTimes, FitTimes
from shared.domain.cluster import round_at, round_by
from shared.domain.core import Asked, Behind, Effect, Effects, Input, Publish, Reply, Work, WorkFailed
from shared.domain.iteration import OURS, Law, unhidden_share
from shared.domain.timeouts import overslept

ABOUT_RUNS = (StartOrdered, StopOrdered, WorkerStarted, WorkerStopped, PlacementRefused)
"""facts about workers: they may end a measurement, but say nothing about what a job needs"""
MEASURE_AT_ONCE = (
    JobSubmitted,
    JobReleased,
    NodeJoined,
    NodeReturned,
    NodeRestored,
    GpusWithheld,
    ProfilingPlanned,
    ProfilingAdded,
)
"""facts after which a job may be measured at once"""
MEASURE_SOON = (WorkerStopped, ProfileMeasured, ProfileFailed, PlacementRefused)
"""facts after which a job may be measured once `settle_s` has passed"""


class Profiler:
    def __init__(
        self,
        *,
        round_s: float,
        timeout_s: float,
        attempts: int,
        bucket_bytes: float = 0.0,
        at_once: bool = True,
        every_job: bool = False,
        law: Law = OURS,
        settle_s: float = 0.5,
    ) -> None:
        """All times are cluster seconds.

        `timeout_s`: how long a measurement may run. `attempts`: failed measurements after which a job does
        not use a GPU type, and rounds for which a job waits for a type without an open node. `bucket_bytes`:
        size of a gradient bucket (see `unhidden_share`). `every_job`: jobs of known workloads are measured
        too. `law`: the equations by which overlap patterns are recognised. `settle_s`: time after which GPUs
        that came free are used to measure.
        """
        self.state = State()
        self._rules = Rules(attempts=attempts, every_job=every_job)
        self._round_s = round_s
        self._timeout_s = timeout_s
        self._bucket_bytes = bucket_bytes
        self._law = law
        self._at_once = at_once
        self._settle_s = settle_s
        self._opened, self._opened_at = -1, 0.0
        """number of the last round that this life opened, and when"""
        self._last_addition = -1
        """number of the last `ProfilingAdded` that this life published; −1: none"""
        self._look_at = inf
        """when to look for idle GPUs"""
        self._given_up: set[PlacementId] = set()
        self._listens_since = 0.0
        """time from which on facts reach this life as they come; no run's time limit begins before"""
        self._asked: set[tuple[Fingerprint, GpuType]] = set()
        self._fits: dict[tuple[Fingerprint, GpuType], TimeModules] = {}
        self._types: Types | None = None
        """None: to be computed again, since a fact about nodes came"""
        self._late: dict[JobId, None] = {}
        """profiled jobs that lack a type of which a node is open"""

    def handle(self, message: Input, now: float) -> Effects:
        match message:
            case Fitted(fingerprint, gpu_type, modules):
                return self._fitted(fingerprint, gpu_type, modules, now)
            case WorkFailed(Fit(fingerprint, gpu_type, measurement, law)):
                modules = fitted(measurement, one_mode(measurement.data_s), law)
                return self._fitted(fingerprint, gpu_type, modules, now)
            case Event() if type(message) in FOLDS:
                return self._learn(message, now) + self._look(message, now)
            case Asked() | FittedTimes() | WorkFailed(FitTimes()):
                return [_about_loading(message)]
            case Behind():
                self._listens_since = now
                return []
            case _:
                return []

    def next_wakeup(self) -> float | None:
        due = min(self._boundary(), self._look_at)
        return min([due, *(limit for _, limit in self._limits())]) if self.state.runs else due

    def wake(self, now: float) -> Effects:
        effects: Effects = []
        if overslept(min([limit for _, limit in self._limits()], default=None), self._timeout_s, now):
            self._listens_since = now
        for run, limit in list(self._limits()):
            if limit <= now:
                self._given_up.add(run.plan.placement_id)
                late = (
                    "it did not start in time"
                    if run.started_at is None
                    else f"it brought no measurement within {self._timeout_s:g} s"
                )
                effects.append(self._failure(run, late, now))
        return effects + self._open_round(now) + self._add_runs(now)

    def resume(self, now: float) -> Effects:
        self._opened = self._last_addition = -1
        self._look_at = inf
        self._listens_since = now
        self._given_up.clear()
        self._fits.clear()
        self._asked.clear()
        self._look_for_late(self.state.profiled)
        return [
            *self._fit_new(),
            *self._failures(now),
            *self._verdicts(now, self.state.jobs),
            *self._further_types(now),
            *self._open_round(now),
            *self._look_for_room(now),
        ]

    # ---- facts

    def _learn(self, fact: Event, now: float) -> Effects:
        measured_as = self._measured_as(fact) if isinstance(fact, JobProfiled | JobTypeProfiled) else None
        fold(self.state, fact, self._rules)
        if isinstance(fact, NodeEvent):
            self._types = None
            self._look_for_late(self.state.profiled)
        elif isinstance(fact, JobEvent | ProfileFailed):
            self._look_for_late((fact.job_id,))
        if isinstance(fact, ABOUT_RUNS):
            return list(self._failures(now)) if fact.placement_id in self.state.runs else []
        if isinstance(fact, ProfileFailed | ProfileMeasured):
            self._given_up.discard(fact.placement_id)
        touched, further = self._touched(fact), isinstance(fact, NodeEvent)
        if isinstance(fact, JobProfiled | JobTypeProfiled) and measured_as is not None:
            known = fact.modules if isinstance(fact, JobProfiled) else (fact.gpu_type,)
            self._forget_fits(measured_as, known)
            touched, further = self._alike(measured_as), True
        return [
            *self._fit_new(),
            *self._failures(now),
            *self._verdicts(now, touched),
            *(self._further_types(now) if further else ()),
        ]

    def _look_for_late(self, job_ids: Iterable[JobId]) -> None:
        """Enter the jobs that lack a type of which a node is open, and drop the others."""
        types = self._types_there()
        for job_id in job_ids:
            job = self.state.profiled.get(job_id)
            if job is not None and lacks_open_type(job, self.state, types):
                self._late[job_id] = None
            else:
                self._late.pop(job_id, None)

    def _measured_as(self, fact: JobProfiled | JobTypeProfiled) -> Fingerprint:
        """The key of the job's measurements: the one it had before it was profiled, if it was known."""
        job = self.state.job(fact.job_id)
        return job.fingerprint if job else self._rules.measured_as(fact.job_id, fact.workload)

    def _touched(self, fact: Event) -> dict[JobId, KnownJob]:
        """The jobs of which `fact` may have completed the profile, unless it says that one is profiled."""
        jobs = self.state.jobs
        match fact:
            case JobSubmitted(job_id=job_id) | ProfileFailed(job_id=job_id) | ProfileMeasured(job_id=job_id):
                return {job_id: jobs[job_id]} if job_id in jobs else {}
            case JobEvent():
                return {}
            case _:
                return jobs

    def _alike(self, fingerprint: Fingerprint) -> dict[JobId, KnownJob]:
        """The jobs that wait for the same measurements."""
        return {job_id: job for job_id, job in self.state.jobs.items() if job.fingerprint == fingerprint}

    # ---- rounds

    def _boundary(self) -> float:
        last = (self._opened, self._opened_at), (self.state.round, self.state.opened_at)
        return (round_by(*max(last, key=itemgetter(0)), self._round_s) + 1) * self._round_s

    def _open_round(self, now: float) -> Effects:
        if now < self._boundary():
            return []
        last = max(self.state.round, self._opened)
        self._opened, self._opened_at = max(round_at(now, self._round_s), last + 1), now
        runs = opening_runs(
            self.state, self._fits, self._types_there(), self._opened, self._rules.attempts, late=self._late
        )
        return [Publish(ProfilingPlanned(at=now, round=self._opened, runs=runs))]

    # ---- within a round

    def _look(self, fact: Event, now: float) -> Effects:
        """After a fact that may leave GPUs idle: measure jobs there, now or after `settle_s`."""
        if isinstance(fact, MEASURE_AT_ONCE):
            return self._look_for_room(now)
        if isinstance(fact, MEASURE_SOON) and self._at_once and (self.state.jobs or self._late):
            self._look_at = min(self._look_at, now + self._settle_s)
        return []

    def _look_for_room(self, now: float) -> Effects:
        self._look_at = now
        return self._add_runs(now)

    def _add_runs(self, now: float) -> Effects:
        """Publish measurements that can be made now.

        One `ProfilingAdded` at a time: until the stream brings the last one back, the state lacks its runs.
        """
        if now < self._look_at:
            return []
        self._look_at = inf
        on_the_way = self._last_addition >= self.state.additions or self._opened > self.state.round
        if not self._at_once or on_the_way or self.state.round < 0 or now >= self._boundary():
            return []
        runs = added_runs(self.state, self._fits, self._types_there(), self._rules.attempts, late=self._late)
        if not runs:
            return []
        self._last_addition = self.state.additions
        return [
            Publish(ProfilingAdded(at=now, round=self.state.round, number=self._last_addition, runs=runs))
        ]

    # ---- runs

    def _limits(self) -> Iterator[tuple[PendingRun, float]]:
        """The runs under way, each with its time limit; until it starts, a run has a round's length more."""
        for placement_id, run in self.state.runs.items():
            if not run.failure and placement_id not in self._given_up:
                began = run.planned_at + self._round_s if run.started_at is None else run.started_at
                yield run, max(began, self._listens_since) + self._timeout_s

    def _failures(self, now: float) -> Iterator[Effect]:
        for run in self.state.runs.values():
            if run.failure:
                yield self._failure(run, run.failure, now)

    def _failure(self, run: PendingRun, reason: str, now: float) -> Effect:
        plan = run.plan
        job = self.state.job(plan.job_id)
        tries = job.failed_runs.get(plan.gpu_type, 0) if job else 0
        return Publish(
            ProfileFailed(
                at=now,
                job_id=plan.job_id,
                placement_id=plan.placement_id,
                gpu_type=plan.gpu_type,
                node_id=plan.node_id,
                reason=reason,
                final=not run.excused and tries + 1 >= self._rules.attempts,
            )
        )

    # ---- modules and verdicts

    def _fit_new(self) -> Iterator[Effect]:
        for fingerprint, by_type in self.state.raw.items():
            for gpu_type, measurement in by_type.items():
                if (fingerprint, gpu_type) not in self._asked:
                    self._asked.add((fingerprint, gpu_type))
                    yield Work(Fit(fingerprint, gpu_type, measurement, self._law))

    def _fitted(
        self, fingerprint: Fingerprint, gpu_type: GpuType, modules: TimeModules, now: float
    ) -> Effects:
        if gpu_type in self.state.raw.get(fingerprint, {}):
            unhidden = unhidden_share(modules.parameters, self._bucket_bytes)
            self._fits[fingerprint, gpu_type] = msgspec.structs.replace(modules, unhidden=unhidden)
        return [*self._verdicts(now, self._alike(fingerprint)), *self._further_types(now)]

    def _forget_fits(self, fingerprint: Fingerprint, gpu_types: Iterable[GpuType]) -> None:
        for gpu_type in gpu_types:
            self._fits.pop((fingerprint, gpu_type), None)
            self._asked.discard((fingerprint, gpu_type))

    def _verdicts(self, now: float, jobs: dict[JobId, KnownJob]) -> Iterator[Effect]:
        if not jobs:
            return
        types = self._types_there()
        for job_id, job in jobs.items():
            needs = needs_of(job, self.state, self._fits, types, self._rules.attempts)
            if not needs.settled:
                continue
            if needs.usable:
                yield Publish(_profiled(job_id, job, needs, now))
            elif needs.failed:
                yield Publish(JobRejected(at=now, job_id=job_id, reason=_unusable(needs.excluded)))

    def _further_types(self, now: float) -> Iterator[Effect]:
        """What is known by now of types that profiled jobs lack."""
        types = self._types_there()
        for job_id in self._late:
            job = self.state.profiled[job_id]
            usable = needs_of(job, self.state, self._fits, types, self._rules.attempts).usable
            for gpu_type in sorted(usable.keys() & types.open - job.types):
                yield Publish(
                    JobTypeProfiled(
                        at=now,
                        job_id=job_id,
                        workload=job.spec.workload,
                        gpu_type=gpu_type,
                        modules=usable[gpu_type],
                    )
                )

    def _types_there(self) -> Types:
        if self._types is None:
            self._types = types_of(self.state)
        return self._types


def _unusable(excluded: Mapping[GpuType, str]) -> str:
    """Why the job is rejected: the reason by type, or once where all types have the same."""
    reasons = set(excluded.values())
    parts = reasons if len(reasons) == 1 else (f"{gpu_type}: {why}" for gpu_type, why in excluded.items())
    return f"it runs on no GPU type: {'; '.join(parts)}"


def _about_loading(message: Asked | FittedTimes | WorkFailed) -> Effect:
    match message:
        case Asked(ticket, FitLoading(data_s=times)) if times and all(0 <= one < inf for one in times):
            return Work(FitTimes(ticket, times))
        case Asked(ticket, _):
            return Reply(
                ticket, Refused(reason="loading times to fit: at least one, all finite and none below 0")
            )
        case FittedTimes(ticket, data):
            return Reply(ticket, FittedLoading(data=data))
        case WorkFailed(FitTimes(ticket=ticket), reason):
            return Reply(ticket, Refused(reason=reason))
    raise AssertionError(message)


def _profiled(job_id: JobId, job: KnownJob, needs: Needs, now: float) -> JobProfiled:
    return JobProfiled(
        at=now,
        job_id=job_id,
        workload=job.spec.workload,
        modules=needs.usable,
        known=not job.measured,
        unusable=needs.excluded,
    )
