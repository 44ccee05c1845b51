"""Gavel (OSDI '20): shares of time on every GPU type from a linear program, approached in rounds.

One policy, five objectives, each aware of what a job gains on each type or blind to it:

| name | objective |
|---|---|
| `gavel` | max-min fairness (LAS), filled: the worst off, then the next, and so on |
| `gavel-ftf` | finish-time fairness ρ, filled likewise |
| `gavel-makespan` | the time until all are done, filled likewise |
| `gavel-throughput` | the sum of throughputs |
| `gavel-fifo` | first in, first out, each job on the fastest type with room |

Demand is rigid (`rigid_demand`). Only the opening of a round is planned: what comes free within a round
stays idle until the next, as in Gavel. Shares are computed when jobs or GPUs came or went and
`gavel_reset_s` has passed; in between, rounds are filled from the shares in memory.

Gavel sees GPU types, not nodes: a job's throughput on a type is the mean over the nodes on which the
whole gang fits, or else over runs of nodes. What is told of a placement is the estimate of that very
placement if there is one, else the mean of its kind.

`gavel_faithful` brings the authors' quirks back; `docs/policies/gavel.md` lists them.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import ClassVar

import msgspec
import numpy as np

from schemas.ids import GpuType, JobId
from schemas.plans import Configuration, PlanKind, Stage, Waiting
from schemas.settings import Settings
from services.planner.configurations import Configurations, configurations_for
from services.planner.estimates import Estimated
from services.planner.policies.contract import Choice, Decision, Left, Trigger
from services.planner.policies.ordered import count, held, walk_s
from services.planner.priority import power_of, ranked, weights
from services.planner.problem import Solve
from services.planner.programs import gavel_book
from services.planner.programs.gavel_book import Book, Now
from services.planner.programs.gavel_filling import Budget
from services.planner.programs.gavel_objectives import Case, Objective, computed
from services.planner.programs.gavel_placing import Run, consolidated, in_worker_order
from services.planner.programs.gavel_rounds import fastest_first, priorities, reset_due, taken
from services.planner.programs.gavel_shares import Demand, Shares, isolated
from services.planner.programs.gavel_speeds import Speeds, blinded
from services.planner.programs.linear import Floats
from services.planner.programs.placing import pools
from services.planner.view import View, ViewJob
from services.planner.window import service_window

UNFILLED = "the solver's time was out before all shares were filled"


class Gavel:
    calls: ClassVar[Mapping[Trigger, PlanKind]] = {Trigger.ROUND: PlanKind.FIRST}

    def __init__(self, settings: Settings, objective: Objective = "max-min", *, blind: bool = False) -> None:
        """`blind`: as if a job were as fast on one type as on any other that it can run on."""
        self._settings = settings
        self._objective: Objective = objective
        self._blind = blind
        self._authors = settings.gavel_faithful

    # ---- the contract of a policy

    def wants(self, view: View) -> Configurations:
        empty = [msgspec.structs.replace(node, idle=node.gpus) for node in view.nodes]
        return configurations_for(self._queue(view), empty, math.inf, stay=True)

    def decide(
        self,
        view: View,
        wanted: Configurations,
        estimates: Estimated,
        solve: Solve,  # noqa: ARG002 - the programs here are linear
    ) -> Decision:
        budget = Budget(seconds=view.effort.budget_s, modelled=view.effort.modelled)
        queue = self._queue(view)
        speeds = Speeds(wanted, estimates, [node.gpu_type for node in view.nodes])
        able = np.flatnonzero(speeds.by_type.any(axis=1))
        jobs = [queue[index] for index in able]
        now = self._now(view, jobs, speeds.by_type[able], speeds.types)
        book, solved = self._shared(view, now, budget)
        places = self._placed(view, jobs, now, book)
        told = speeds.of(places)
        return msgspec.structs.replace(
            solved,
            choices=tuple(
                Choice(job_id=job_id, configuration=place, throughput=told[job_id][0], layer=told[job_id][1])
                for job_id, place in places.items()
            ),
            left=self._left(view, now, book, places),
            solve_s=budget.spent_s + walk_s(view),
            configurations=len(wanted),
            memory=msgspec.msgpack.encode(book),
        )

    # ---- jobs

    def _rigid(self, view: View) -> dict[JobId, ViewJob]:
        """All jobs, each with its one GPU count; with none where the cluster is too small for it."""
        sizes: Counter[GpuType] = Counter()
        for node in view.nodes:
            sizes[node.gpu_type] += node.gpus
        return {job.job_id: _of_size(job, count(job, sizes, self._settings)) for job in view.jobs}

    def _queue(self, view: View) -> list[ViewJob]:
        """The jobs that take part, as `gavel_queue` has it."""
        rigid = self._rigid(view)
        if self._settings.gavel_queue != "window":
            return [job for job in rigid.values() if job.demand]
        order = (rigid[job.job_id] for job, _ in ranked(view, self._settings.priority_rule))
        queue = [job for job in order if job.demand]
        return queue[: service_window(queue, view.idle_gpus * self._settings.window_factor)]

    def _now(self, view: View, jobs: Sequence[ViewJob], speed: Floats, types: tuple[GpuType, ...]) -> Now:
        demand = Demand(
            speed=blinded(speed, authors=self._authors) if self._blind else speed,
            gang=np.array([job.demand[0] for job in jobs], dtype=np.float64),
            gpus=np.array([_gpus(view, name) for name in types], dtype=np.float64),
            weight=self._weights(view, jobs),
        )
        received = [[job.received_s.get(name, 0.0) for name in types] for job in jobs]
        return Now(
            at=view.at,
            jobs=tuple(job.job_id for job in jobs),
            types=types,
            demand=demand,
            received=np.array(received, dtype=np.float64).reshape(speed.shape),
            done=np.array([job.samples_done for job in jobs]),
            left=np.array([max(job.samples - job.samples_done, 0.0) for job in jobs]),
            elapsed=np.array([view.at - job.submitted_at for job in jobs]),
        )

    def _weights(self, view: View, jobs: Sequence[ViewJob]) -> Floats:
        own = np.array([job.priority for job in jobs], dtype=np.float64)
        if self._settings.gavel_queue != "weights":
            return own
        rule = self._settings.priority_rule
        urgency = {job.job_id: value for job, value in ranked(view, rule)}
        power = power_of(rule, self._settings.priority_power)
        return weights([urgency[job.job_id] for job in jobs], power) * own

    # ---- shares

    def _shared(self, view: View, now: Now, budget: Budget) -> tuple[Book, Decision]:
        """The book, written anew if that is due, and what is to be told of the solve."""
        book = gavel_book.read(view.memory)
        if not now.jobs or not self._is_due(book, now):
            return book, Decision(choices=())
        if view.effort.greedy and self._objective != "fifo":
            share = isolated(now.demand) * (now.demand.speed > 0)
            written = gavel_book.written(book, now, share, complete=False)
            return written, Decision(choices=(), stage=Stage.GREEDY)
        past_s = gavel_book.isolated_s(book, now)
        case = Case(now=now, isolated_s=past_s, budget=budget, fill=not self._authors)
        shares = computed(self._objective, case, blind=self._blind)
        written = gavel_book.written(book, now, shares.share, complete=shares.complete)
        return written, _told(shares, solved=self._objective != "fifo")

    def _is_due(self, book: Book, now: Now) -> bool:
        """FIFO's jobs have all of their time at once: only the authors let them wait for a reset."""
        waits = self._authors or self._objective != "fifo"
        return reset_due(
            at=now.at,
            last=book.at if book.complete else None,
            interval_s=self._settings.gavel_reset_s if waits else 0.0,
            changed=gavel_book.changed(book, now),
            authors=self._authors,
        )

    # ---- the round

    def _placed(
        self, view: View, jobs: Sequence[ViewJob], now: Now, book: Book
    ) -> dict[JobId, Configuration]:
        runs = [_run(jobs[job], now.types[kind], view, book) for job, kind in self._taken(view, now, book)]
        clusters = pools((node.node_id, node.gpu_type, node.gpus) for node in view.nodes)
        idle = {node.node_id: node.idle for node in view.nodes}
        return (in_worker_order if self._authors else consolidated)(runs, clusters, idle)

    def _taken(self, view: View, now: Now, book: Book) -> list[tuple[int, int]]:
        """(job, type) by position."""
        if not now.jobs:
            return []
        share = gavel_book.share_of(book, now)
        job_time = view.round_s / 2 + gavel_book.received_since(book, now)
        idle = [sum(node.idle for node in view.nodes if node.gpu_type == name) for name in now.types]
        return taken(
            priorities(share, now.demand.speed, job_time, job_time.sum(axis=0)),
            gavel_book.deficit_of(book, now),
            share,
            speed=now.demand.speed,
            gang=now.demand.gang.astype(np.int32),
            free=np.array(idle, dtype=np.int32),
            order=self._order(view, now),
            owed_only=self._objective == "fifo",
        )

    def _order(self, view: View, now: Now) -> list[int]:
        """Of the types: the fastest first; blind, each first in its turn."""
        kinds = len(now.types)
        if self._blind:
            return [(view.round + shift) % kinds for shift in range(kinds)]
        return fastest_first(now.demand.speed)

    # ---- reasons

    def _left(
        self, view: View, now: Now, book: Book, places: Mapping[JobId, Configuration]
    ) -> tuple[Left, ...]:
        reasons = {
            job_id: Waiting.NO_CONFIGURATION for job_id, job in self._rigid(view).items() if not job.demand
        }
        inside = {job.job_id: Waiting.NO_ESTIMATE for job in self._queue(view)}
        reasons = reasons | inside | dict.fromkeys(now.jobs, Waiting.OUTWEIGHED)
        return tuple(
            Left(
                job_id=job.job_id,
                reason=reasons.get(job.job_id, Waiting.OUTSIDE_WINDOW),
                detail=_due(book, job.job_id) if job.job_id in now.jobs else "",
            )
            for job in view.jobs
            if job.job_id not in places
        )


def _gpus(view: View, gpu_type: GpuType) -> int:
    return sum(node.gpus for node in view.nodes if node.gpu_type == gpu_type)


def _of_size(job: ViewJob, gpus: int) -> ViewJob:
    """The job with this GPU count only; a present place of another count is none to stay in."""
    present = job.present if sum(held(job).values()) == gpus else None
    return msgspec.structs.replace(job, demand=(gpus,) if gpus else (), present=present)


def _run(job: ViewJob, gpu_type: GpuType, view: View, book: Book) -> Run:
    own = {node.node_id for node in view.nodes if node.gpu_type == gpu_type}
    return Run(
        job_id=job.job_id,
        gpus=job.demand[0],
        gpu_type=gpu_type,
        held=held(job) if own.issuperset(held(job)) else {},
        known=job.job_id in book.jobs,
    )


def _told(shares: Shares, *, solved: bool) -> Decision:
    stage = Stage.OPTIMAL if shares.complete else Stage.INCUMBENT
    larger = max(shares.bound, shares.objective)
    return Decision(
        choices=(),
        stage=stage if solved else Stage.QUEUE,
        objective=shares.objective,
        bound=shares.bound,
        gap=abs(shares.bound - shares.objective) / larger if larger > 0 else 0.0,
        notes=() if shares.complete else (UNFILLED,),
    )


def _due(book: Book, job_id: JobId) -> str:
    """A waiting job's share, in words."""
    if job_id not in book.jobs:
        return "it came after shares of time were computed"
    share = book.jobs[job_id].share
    parts = (f"{part:.0%} of its time on {name}" for name, part in share.items() if round(part, 2))
    return f"due: {', '.join(parts) or 'nothing'}"


# ---- the policies by name

gavel = Gavel
gavel_ftf = partial(Gavel, objective="finish-time")
gavel_makespan = partial(Gavel, objective="makespan")
gavel_throughput = partial(Gavel, objective="throughput")
gavel_fifo = partial(Gavel, objective="fifo")
gavel_agnostic = partial(Gavel, blind=True)
gavel_ftf_agnostic = partial(Gavel, objective="finish-time", blind=True)
gavel_makespan_agnostic = partial(Gavel, objective="makespan", blind=True)
gavel_throughput_agnostic = partial(Gavel, objective="throughput", blind=True)
gavel_fifo_agnostic = partial(Gavel, objective="fifo", blind=True)
