"""AlloX (EuroSys '20): matches jobs to machines, and to positions in their lists, for the least mean JCT.

Whenever a job comes or a GPU is freed, all waiting jobs are matched again, each to a position in the list of
some machine. The first job on the list of an idle machine starts; no running job is moved.

| name | a machine is |
|---|---|
| `allox` | one GPU, which computes all tasks of a round one after another |
| `allox-gang` | as many GPUs of one type as the job asks for |
"""

from collections.abc import Collection, Iterator, Mapping
from typing import ClassVar

import msgspec
import numpy as np

from schemas.ids import JobId
from schemas.placement import Configuration, Gang, Lockstep, Mode, Relaxed
from schemas.plans import Layer, PlanKind, Waiting
from services.planner.policies.allox.machines import Kind, Machines, machines, whole_sizes
from services.planner.policies.allox.matching import Matching, matched
from services.planner.policies.allox.options import AlloxOptions
from services.planner.policies.contract.configurations import Configurations, listed
from services.planner.policies.contract.decision import Choice, Decision, Left, Trigger
from services.planner.policies.contract.estimates import Estimated
from services.planner.policies.contract.view import View, ViewJob
from services.planner.policies.kit.keeping import kept
from services.planner.policies.kit.rigid import rigid
from services.planner.solver.problem import Solve
from shared.domain.arrays import Floats

SHORTEST_S = 1e-3
"""the least time that a job counts as still taking"""
ARC_S = 1e-6
"""modelled seconds for each job and kind of machine, as measured on a common server"""

Rows = dict[tuple[int, int], int]
"""the row that was asked about, by job and kind"""


class Unplaced(msgspec.Struct, frozen=True, kw_only=True):
    """What `wants` computes from the view, for `decide` to use."""

    view: View
    kept: tuple[Choice, ...]
    waiting: tuple[ViewJob, ...]
    scale: tuple[int, ...]
    """tasks of a round, by waiting job; 0: no kind of machine has room for it"""
    machines: Machines
    in_gangs: bool
    """a machine is as many GPUs as a job asks for; else it is one GPU"""
    rows: Rows
    wanted: Configurations


class Allox:
    """AlloX: jobs are matched to GPUs and positions in their queues, for the least mean completion time."""

    Options = AlloxOptions
    calls: ClassVar[Mapping[Trigger, PlanKind]] = {
        trigger: PlanKind.FIRST for trigger in Trigger if trigger is not Trigger.ROUND
    }
    sees_staying: ClassVar[bool] = True
    modes: ClassVar[frozenset[type[Mode]]] = frozenset({Lockstep, Relaxed})
    asks_modes: ClassVar[bool] = True
    gang: ClassVar[bool] = False
    """a machine is as many GPUs as a job asks for, even on nodes that run relaxed gangs"""

    def __init__(self, options: AlloxOptions) -> None:
        self._options = options
        self._last: Unplaced | None = None

    # ---- the contract of a policy

    def wants(self, view: View) -> Configurations:
        return self._seen(view).wanted

    def decide(
        self,
        view: View,
        wanted: Configurations,
        estimates: Estimated,
        solve: Solve,  # noqa: ARG002 - the program is a flow
    ) -> Decision:
        seen = self._seen(view)
        rate = self._rates(seen, estimates)
        found = self._matched(seen, rate)
        started = self._started(seen, found)
        choices = tuple(
            Choice(
                job_id=seen.waiting[job].job_id,
                gang=_gang(place, seen.scale[job]),
                throughput=float(rate[job, kind]),
                layer=self._layer(estimates, seen.rows[job, kind]),
            )
            for job, (kind, place) in started.items()
        )
        return Decision(
            choices=(*seen.kept, *choices),
            left=tuple(self._left(seen, found, started.keys())),
            objective=found.cost_s,
            bound=found.cost_s,
            solve_s=ARC_S * len(seen.rows) if view.effort.modelled else 0.0,
            configurations=len(wanted),
        )

    # ---- jobs and machines

    def _seen(self, view: View) -> Unplaced:
        """The jobs and machines of a view; computed once for each view."""
        if self._last is None or self._last.view is not view:
            self._last = self._look(view)
        return self._last

    def _look(self, view: View) -> Unplaced:
        stayers, idle = kept(view, everything=True)
        jobs = {job.job_id: job for job in view.jobs}
        in_gangs = self.gang or not any(Relaxed.tag() in node.modes for node in view.nodes)
        left_s = [self._left_s(jobs[one.job_id], one) for one in stayers]
        there = machines(view, stayers, idle, left_s, in_gangs=in_gangs)
        running = {one.job_id for one in stayers}
        waiting = tuple(job for job in view.jobs if job.job_id not in running)
        sizes = whole_sizes(view, in_gangs=in_gangs)
        scale = tuple(self._scale(job, sizes, in_gangs=in_gangs) for job in waiting)
        rows: Rows = {}
        asked: list[tuple[JobId, list[Configuration]]] = []
        for number, (job, tasks) in enumerate(zip(waiting, scale, strict=True)):
            places = []
            for kind, one in enumerate(there.kinds):
                gpus = _gpus(tasks, one, in_gangs=in_gangs)
                if tasks and one.runs(job, tasks) and 0 < gpus <= there.gpus(kind):
                    rows[number, kind] = len(rows)
                    places.append(there.empty(kind, gpus))
            asked.append((job.job_id, places))
        return Unplaced(
            view=view,
            kept=stayers,
            waiting=waiting,
            scale=scale,
            machines=there,
            in_gangs=in_gangs,
            rows=rows,
            wanted=listed(asked, view.nodes),
        )

    def _left_s(self, job: ViewJob, running: Choice) -> float:
        return self._samples(job, running.gang.gpus) / max(running.throughput, 1e-9)

    def _samples(self, job: ViewJob, scale: int) -> float:
        """Samples that are still to do; with `sizes=unit`, those of one round. `scale`: tasks of a round."""
        if self._options.sizes == "unit":
            return float(scale * job.batch_size)
        return max(job.samples - job.samples_done, 0.0)

    def _scale(self, job: ViewJob, sizes: Mapping[Kind, int], *, in_gangs: bool) -> int:
        """The tasks of a round: one of the job's counts that some kind of machine has room for; 0: none."""
        possible = [
            tasks
            for tasks in job.demand
            if any(
                kind.runs(job, tasks) and 0 < _gpus(tasks, kind, in_gangs=in_gangs) <= size
                for kind, size in sizes.items()
            )
        ]
        return rigid(possible, self._options.rigid_demand) if possible else 0

    # ---- the matching

    def _rates(self, seen: Unplaced, estimates: Estimated) -> Floats:
        """Samples/s by waiting job and kind; 0: it cannot run there, or nothing is known."""
        found = np.zeros((len(seen.waiting), len(seen.machines.kinds)))
        for (job, kind), row in seen.rows.items():
            alone = seen.waiting[job].single_gpu.get(seen.machines.kinds[kind].gpu_type, 0.0)
            known = float(estimates.throughput[row])
            found[job, kind] = known if known > 0 else alone * (not seen.in_gangs)
        return found

    def _layer(self, estimates: Estimated, row: int) -> Layer:
        return estimates.layer_at(row) if estimates.throughput[row] > 0 else Layer.THEORY

    def _matched(self, seen: Unplaced, rate: Floats) -> Matching:
        samples = np.array(
            [self._samples(job, scale) for job, scale in zip(seen.waiting, seen.scale, strict=True)]
        )
        with np.errstate(divide="ignore", invalid="ignore"):
            seconds = np.where(rate > 0, np.maximum(samples[:, None] / rate, SHORTEST_S), np.inf)
        widths = np.array(seen.scale, dtype=np.int32) if seen.in_gangs else None
        return matched(seconds, seen.machines.free_in_s, widths)

    def _started(self, seen: Unplaced, found: Matching) -> dict[int, tuple[int, Configuration]]:
        """By job that starts: the kind of its machine, and its place.

        The jobs of a kind start in descending order of k, as long as GPUs are idle. A gang that is next and
        has no room yet holds up the jobs behind it, else it might wait for ever.
        """
        idle, started = dict(seen.machines.idle), dict[int, tuple[int, Configuration]]()
        for kind in range(len(seen.machines.kinds)):
            for job in _queue(found, kind):
                gpus = _gpus(seen.scale[job], seen.machines.kinds[kind], in_gangs=seen.in_gangs)
                where = seen.machines.room(kind, gpus, idle)
                if not where:
                    break
                started[job] = kind, where
                idle |= {node: idle[node] - gpus for node, gpus in where.items()}
        return started

    def _left(self, seen: Unplaced, found: Matching, started: Collection[int]) -> Iterator[Left]:
        """Why jobs do not start: those in some list by their turn, then those in none."""
        queued = [job for kind in range(len(seen.machines.kinds)) for job in _queue(found, kind)]
        places = {job: place for job, place in enumerate(found.places) if place is not None}
        for job in sorted(set(queued) - set(started), key=lambda job: (-places[job].level, job)):
            one = places[job]
            gpu_type = seen.machines.kinds[one.kind].gpu_type
            yield Left(
                job_id=seen.waiting[job].job_id,
                reason=Waiting.OUTWEIGHED,
                detail=f"it waits for {gpu_type}, with {one.level - 1} behind it",
            )
        for job, place in enumerate(found.places):
            if place is None:
                yield self._unplaced(seen, job)

    def _unplaced(self, seen: Unplaced, number: int) -> Left:
        """Why a job is on no list."""
        job = seen.waiting[number]
        if any(one == number for one, _ in seen.rows):
            return Left(job_id=job.job_id, reason=Waiting.NO_ESTIMATE)
        if seen.scale[number]:
            detail = "its GPUs are used for measurements"
            return Left(job_id=job.job_id, reason=Waiting.OUTWEIGHED, detail=detail)
        there = {node.gpu_type for node in seen.view.nodes if Relaxed.tag() in node.modes}
        lacks = not seen.in_gangs and job.lacks({Relaxed}) and not there.isdisjoint(job.gpu_types)
        detail = "it runs no relaxed gangs" if lacks else ""
        return Left(job_id=job.job_id, reason=Waiting.NO_CONFIGURATION, detail=detail)


def _gpus(tasks: int, kind: Kind, *, in_gangs: bool) -> int:
    """GPUs that a round of `tasks` tasks takes; 0 if this kind does not run it."""
    if in_gangs:
        return tasks
    return 1 if tasks == 1 or kind.relaxed else 0


def _queue(found: Matching, kind: int) -> list[int]:
    """The jobs on the lists of a kind of machine, in the order in which they start."""
    own = [
        (-place.level, job)
        for job, place in enumerate(found.places)
        if place is not None and place.kind == kind
    ]
    return [job for _, job in sorted(own)]


def _gang(place: Configuration, tasks: int) -> Gang:
    return Gang.of(place) if sum(place.values()) == tasks else Gang.of(place, Relaxed(tasks=((tasks,),)))


class AlloxGang(Allox):
    """As `allox`, on gangs of as many GPUs of one type as each job asks for."""

    gang: ClassVar[bool] = True
