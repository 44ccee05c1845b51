"""Gavel (OSDI '20): shares of time on every GPU type from a linear program, approached in rounds.

One policy, five objectives, each aware of what a job gains on each type or blind to it:

| name | objective |
|---|---|
| `gavel` | max-min fairness (LAS), filled: the worst off, then the next, and so on |
| `gavel-ftf` | finish-time fairness ρ, filled likewise |
| `gavel-makespan` | the time until all are done, filled likewise |
| `gavel-throughput` | the sum of throughputs |
| `gavel-fifo` | first in, first out, each job on the fastest type with room |

A job's demand is rigid (`rigid_demand`). Gavel plans only when a round begins: GPUs that come free within a
round stay idle until the next. Shares are computed again once jobs or GPUs came or went and `reset_s` has
passed; in between, rounds use the shares in memory.

Gavel sees GPU types, not nodes: a job's throughput on a type is the mean over the nodes on which the whole
gang fits, or else over runs of nodes. A choice has the estimate of its own placement if there is one, else
one of the same job and type.

`faithful` brings the authors' quirks back; `docs/policies/gavel.md` lists them.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Annotated, ClassVar, Literal

import msgspec
import numpy as np
from msgspec import Meta

from schemas.ids import GpuType, JobId
from schemas.placement import Configuration, Gang
from schemas.plans import Measures, PlanKind, Stage, Standing, Waiting
from services.planner.policies.contract.configurations import Configurations, configurations_for
from services.planner.policies.contract.decision import Choice, Decision, Left, Trigger
from services.planner.policies.contract.estimates import Estimated
from services.planner.policies.contract.variants import variant
from services.planner.policies.contract.view import View, ViewJob
from services.planner.policies.gavel import memory
from services.planner.policies.gavel.memory import Memory, Now
from services.planner.policies.gavel.objectives import Case, Objective, computed
from services.planner.policies.gavel.placing import Gpus, RoundJob, consolidated, counts, in_worker_order
from services.planner.policies.gavel.rounds import fastest_first, priorities, reset_due, taken
from services.planner.policies.gavel.shares import Demand, Shares, isolated
from services.planner.policies.gavel.speeds import Speeds, blinded
from services.planner.policies.kit.gangs import pools
from services.planner.policies.kit.known_jobs import count, held
from services.planner.policies.kit.ordered import walk_s
from services.planner.policies.kit.priority import PriorityRule, ranked, urgencies
from services.planner.policies.kit.rigid import RigidOptions
from services.planner.policies.kit.type_order import listed_first
from services.planner.policies.kit.window import service_window
from services.planner.solver.budget import Budget
from services.planner.solver.problem import Solve
from shared.domain.arrays import Floats

MEASURES = Measures(priority="priority, time due over time received, on the GPU type on which that is most")
UNFILLED = "the solver's time was out before all shares were filled"


class GavelOptions(RigidOptions, frozen=True, kw_only=True):
    objective: Objective = "max-min"
    """the objective that shares of time maximise"""
    agnostic: bool = False
    """plans as if a job had the same speed on all types that it can run on"""
    reset_s: Annotated[float, Meta(ge=0, le=1e8)] = 1920.0
    """seconds for which shares of time hold at least, whatever jobs or GPUs come or go"""
    queue: Literal["all", "window", "weights"] = "all"
    """`window`: only the service window by `priority_rule` takes part; `weights`: the rule weighs all"""
    priority_rule: PriorityRule = "lr"
    """the order of the queue, used with `queue=window` and `queue=weights`"""
    priority_power: Annotated[float, Meta(ge=0, le=10)] = 1.0
    """λ, with `queue=weights`"""
    window_factor: Annotated[float, Meta(gt=0, le=100)] = 1.0
    """service window, in multiples of the GPUs the plan may use"""
    faithful: bool = False
    """with the quirks of the authors' scheduler"""
    types: str = "v100 p100 k80"
    """with `faithful`: the order in which a round goes through the GPU types; types that are not named come
    last"""


class Gavel:
    Options = GavelOptions
    calls: ClassVar[Mapping[Trigger, PlanKind]] = {Trigger.ROUND: PlanKind.FIRST}

    def __init__(self, options: GavelOptions) -> None:
        self._options = options
        self._objective = options.objective
        self._blind = options.agnostic
        self._authors = options.faithful

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
        remembered, solved = self._shared(view, now, budget)
        places, gpus_of = self._placed(view, jobs, now, remembered)
        estimate_of = speeds.of(places)
        urgency = _urgencies(view, now, remembered)
        return msgspec.structs.replace(
            solved,
            choices=tuple(
                Choice(
                    job_id=job_id,
                    gang=Gang.of(place),
                    throughput=estimate_of[job_id][0],
                    layer=estimate_of[job_id][1],
                )
                for job_id, place in places.items()
            ),
            left=self._left(view, now, remembered, places, urgency),
            measures=MEASURES,
            standings={job_id: Standing(priority=value) for job_id, value in urgency.items()},
            solve_s=budget.spent_s + walk_s(view),
            configurations=len(wanted),
            memory=memory.stored(msgspec.structs.replace(remembered, gpus_of=gpus_of)),
        )

    # ---- jobs

    def _rigid(self, view: View) -> dict[JobId, ViewJob]:
        """All jobs, with one GPU count each as their demand, or none where the cluster is too small."""
        sizes: Counter[GpuType] = Counter()
        for node in view.nodes:
            sizes[node.gpu_type] += node.gpus
        return {job.job_id: _of_size(job, count(job, sizes, self._options.rigid_demand)) for job in view.jobs}

    def _queue(self, view: View) -> list[ViewJob]:
        """The jobs that take part, by the option `queue`."""
        rigid = self._rigid(view)
        if self._options.queue != "window":
            return [job for job in rigid.values() if job.demand]
        order = (rigid[job.job_id] for job, _ in ranked(view, self._options.priority_rule))
        queue = [job for job in order if job.demand]
        return queue[: service_window(queue, view.idle_gpus * self._options.window_factor)]

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
            priority=[job.priority for job in jobs],
            apart=frozenset(view.apart),
        )

    def _weights(self, view: View, jobs: Sequence[ViewJob]) -> Floats:
        own = np.array([job.priority for job in jobs], dtype=np.float64)
        if self._options.queue != "weights":
            return own
        return own * urgencies(view, jobs, self._options.priority_rule, self._options.priority_power)

    # ---- shares

    def _shared(self, view: View, now: Now, budget: Budget) -> tuple[Memory, Decision]:
        """The memory, with new shares if a reset is due; and a decision with the figures of the solve."""
        remembered = memory.read(view.memory, [*[job.job_id for job in view.jobs], *view.apart])
        if not self._is_due(remembered, now):
            stale = memory.changed(remembered, now)
            return msgspec.structs.replace(remembered, stale=stale), Decision(choices=())
        if not now.jobs:
            return memory.emptied(now), Decision(choices=())
        if view.effort.greedy and self._objective != "fifo":
            share = isolated(now.demand) * (now.demand.speed > 0)
            written = memory.written(remembered, now, share, complete=False)
            return written, Decision(choices=(), stage=Stage.GREEDY)
        past_s = memory.isolated_s(remembered, now)
        case = Case(now=now, isolated_s=past_s, budget=budget, authors=self._authors)
        shares = self.computed(case)
        written = memory.written(remembered, now, shares.share, complete=shares.complete)
        return written, _solved(shares, solved=self._objective != "fifo")

    def computed(self, case: Case) -> Shares:
        """The shares of time by the policy's objective."""
        return computed(self._objective, case, blind=self._blind)

    def _is_due(self, remembered: Memory, now: Now) -> bool:
        """Whether a reset is due. FIFO's shares wait for no `reset_s`, except by the authors' rules."""
        waits = self._authors or self._objective != "fifo"
        return reset_due(
            at=now.at,
            last=remembered.at if remembered.complete else None,
            interval_s=self._options.reset_s if waits else 0.0,
            changed=memory.changed(remembered, now),
            authors=self._authors,
        )

    # ---- the round

    def _placed(
        self, view: View, jobs: Sequence[ViewJob], now: Now, remembered: Memory
    ) -> tuple[dict[JobId, Configuration], dict[JobId, Gpus]]:
        """The places of the coming round, and by the authors' rules the numbers of the GPUs (else empty)."""
        runs = [
            _run(jobs[job], now.types[kind], view, remembered)
            for job, kind in self._taken(view, now, remembered)
        ]
        if self._authors:
            gpus_of = in_worker_order(runs, view.nodes, remembered.gpus_of)
            return {job_id: counts(gpus) for job_id, gpus in gpus_of.items()}, gpus_of
        clusters = pools((node.node_id, node.gpu_type, node.gpus) for node in view.nodes)
        return consolidated(runs, clusters, {node.node_id: node.idle for node in view.nodes}), {}

    def _taken(self, view: View, now: Now, remembered: Memory) -> list[tuple[int, int]]:
        """The jobs that run in the coming round, as (position of the job, position of its type)."""
        if not now.jobs:
            return []
        share = memory.share_of(remembered, now)
        idle = [sum(node.idle for node in view.nodes if node.gpu_type == name) for name in now.types]
        return taken(
            _urgency(view, now, remembered),
            memory.deficit_of(remembered, now),
            share,
            speed=now.demand.speed,
            gang=now.demand.gang.astype(np.int32),
            free=np.array(idle, dtype=np.int32),
            order=self._order(view, now),
            owed_only=self._objective == "fifo",
        )

    def _order(self, view: View, now: Now) -> list[int]:
        """The order in which a round goes through the types.

        The fastest is first; if the policy is blind, another one in every round; by the authors' rules, as
        the option `types` lists them.
        """
        kinds = len(now.types)
        if self._blind:
            return [(view.round + shift) % kinds for shift in range(kinds)]
        if self._authors:
            return listed_first(now.types, self._options.types.split())
        return fastest_first(now.demand.speed)

    # ---- reasons

    def _left(
        self,
        view: View,
        now: Now,
        remembered: Memory,
        places: Mapping[JobId, Configuration],
        urgency: Mapping[JobId, float],
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
                detail=_due(remembered, job.job_id) if job.job_id in now.jobs else "",
            )
            for job in sorted(view.jobs, key=lambda job: -urgency.get(job.job_id, 0.0))
            if job.job_id not in places
        )


def _urgencies(view: View, now: Now, remembered: Memory) -> dict[JobId, float]:
    """By job: its largest priority on any type."""
    if not now.jobs:
        return {}
    return dict(zip(now.jobs, _urgency(view, now, remembered).max(axis=1).tolist(), strict=True))


def _urgency(view: View, now: Now, remembered: Memory) -> Floats:
    """The priorities of the coming round, by job and type."""
    share = memory.share_of(remembered, now)
    job_time = view.round_s / 2 + memory.received_since(remembered, now)
    return priorities(share, now.demand.speed, job_time, job_time.sum(axis=0))


def _gpus(view: View, gpu_type: GpuType) -> int:
    return sum(node.gpus for node in view.nodes if node.gpu_type == gpu_type)


def _of_size(job: ViewJob, gpus: int) -> ViewJob:
    """The job with this GPU count as its demand; without a place, if it now has another count."""
    present = job.present if sum(held(job).values()) == gpus else None
    return msgspec.structs.replace(job, demand=(gpus,) if gpus else (), present=present)


def _run(job: ViewJob, gpu_type: GpuType, view: View, remembered: Memory) -> RoundJob:
    own = {node.node_id for node in view.nodes if node.gpu_type == gpu_type}
    return RoundJob(
        job_id=job.job_id,
        gpus=job.demand[0],
        gpu_type=gpu_type,
        held=held(job) if own.issuperset(held(job)) else {},
        known=job.job_id in remembered.jobs,
    )


def _solved(shares: Shares, *, solved: bool) -> Decision:
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


def _due(remembered: Memory, job_id: JobId) -> str:
    """A waiting job's share, in words."""
    if job_id not in remembered.jobs:
        return "it came after shares of time were computed"
    share = remembered.jobs[job_id].share
    parts = (f"{part:.0%} of its time on {name}" for name, part in share.items() if round(part, 2))
    return f"it is due {', '.join(parts) or 'no time'}"


# ---- the policies by name

gavel = Gavel
gavel_ftf = variant(
    Gavel,
    "Gavel for finish-time fairness: the largest ρ is minimised.",
    objective="finish-time",
)
gavel_makespan = variant(
    Gavel,
    "Gavel for the makespan: shares of time by which the last job ends soonest.",
    objective="makespan",
)
gavel_throughput = variant(
    Gavel,
    "Gavel for throughput: the sum of all jobs' throughputs is maximised.",
    objective="throughput",
)
gavel_fifo = variant(
    Gavel,
    "Gavel in order of submission: each job on the fastest GPU type that has room.",
    objective="fifo",
)
gavel_agnostic = variant(
    Gavel,
    "As `gavel`, as if a job had the same speed on all GPU types.",
    agnostic=True,
)
gavel_ftf_agnostic = variant(
    Gavel,
    "As `gavel-ftf`, as if a job had the same speed on all GPU types.",
    objective="finish-time",
    agnostic=True,
)
gavel_makespan_agnostic = variant(
    Gavel,
    "As `gavel-makespan`, as if a job had the same speed on all GPU types.",
    objective="makespan",
    agnostic=True,
)
gavel_throughput_agnostic = variant(
    Gavel,
    "As `gavel-throughput`, as if a job had the same speed on all GPU types.",
    objective="throughput",
    agnostic=True,
)
gavel_fifo_agnostic = variant(
    Gavel,
    "As `gavel-fifo`, as if a job had the same speed on all GPU types.",
    objective="fifo",
    agnostic=True,
)
