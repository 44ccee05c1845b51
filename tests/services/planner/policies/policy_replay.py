"""Replays a trace through a policy, event by event, on a cluster where decisions cost nothing.

The policy is the one that schedules clusters, asked as the planner asks it: at arrivals and completions,
with the kind of plan that it calls for then, and when it said it wants to be asked again.
"""

import csv
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec
import numpy as np

from schemas.ids import JobId, NodeId, PlacementId
from schemas.placement import Configuration, Gang
from schemas.plans import Layer, PlanKind
from services.planner.policies.contract.decision import Decision, Policy, Trigger, fault
from services.planner.policies.contract.estimates import Estimated
from services.planner.policies.contract.view import Present, View, ViewJob, ViewNode
from services.planner.policies.tiresias.memory import remembered
from services.planner.policies.tiresias.policy import Tiresias
from services.planner.solver.effort import Effort
from services.planner.solver.problem import Problem, Solution
from tests.services.planner.planner_builders import FAST, view


class Job(msgspec.Struct):
    """A job of a trace, and what became of it. Times in s."""

    job_id: JobId
    gpus: int
    submitted: float
    duration: float
    started: float = math.nan
    ended: float = math.nan
    ran: float = 0.0
    waited: float = 0.0
    preempted: int = 0
    resumed: int = 0
    promoted: int = 0
    place: Configuration = {}

    @property
    def running(self) -> bool:
        return bool(self.place)


def replayed(
    policy: Policy, jobs: Iterable[Job], cluster: Sequence[ViewNode], *, tick_s: float = 0.0
) -> dict[JobId, Job]:
    """Every job with its times, once all have ended. `tick_s`: decisions are made at its multiples only."""
    coming = sorted(jobs, key=lambda job: job.submitted)[::-1]
    done: dict[JobId, Job] = {}
    here: list[Job] = []
    memory, again_at, now = b"", math.inf, 0.0
    while coming or here:
        next_at = min(_next_change(coming, here, now), again_at)
        assert now <= next_at < math.inf, "nothing more happens"
        next_at = math.ceil(next_at / tick_s) * tick_s if tick_s else next_at
        _pass(here, next_at - now)
        now = next_at
        triggers = []
        for job in [job for job in here if job.ran >= job.duration]:
            job.ended = now - (job.ran - job.duration)
            done[job.job_id] = job
            here.remove(job)
            triggers.append(Trigger.FREED)
        while coming and coming[-1].submitted <= now:
            here.append(coming.pop())
            here[-1].waited = now - here[-1].submitted
            triggers.append(Trigger.ARRIVAL)
        kinds = [policy.calls[trigger] for trigger in triggers] or [PlanKind.FIRST]
        kind = PlanKind.FIRST if PlanKind.FIRST in kinds else PlanKind.FRAGMENT
        decision = _decided(policy, _seen(here, cluster, now, kind, memory))
        _carry_out(decision, here, kind, now)
        _count_promotions(policy, memory, decision.memory, here)
        memory = decision.memory
        again_at = math.inf if decision.again_at is None else decision.again_at
    return done


def _next_change(coming: list[Job], here: list[Job], now: float) -> float:
    arrival = coming[-1].submitted if coming else math.inf
    return min([arrival, *(now + job.duration - job.ran for job in here if job.running)])


def _pass(here: list[Job], seconds: float) -> None:
    for job in here:
        if job.running:
            job.ran += seconds
        else:
            job.waited += seconds


def _seen(here: list[Job], cluster: Sequence[ViewNode], now: float, kind: PlanKind, memory: bytes) -> View:
    first = kind == PlanKind.FIRST
    busy: Counter[NodeId] = Counter()
    for job in [] if first else here:
        busy.update(job.place)
    idle = [msgspec.structs.replace(node, idle=node.gpus - busy[node.node_id]) for node in cluster]
    shown = [_view_job(job) for job in here if first or not job.running]
    return msgspec.structs.replace(view(shown, idle, kind=kind, at=now), memory=memory)


def _view_job(job: Job) -> ViewJob:
    return ViewJob(
        job_id=job.job_id,
        submitted_at=job.submitted,
        demand=(job.gpus,),
        gpu_types=(FAST,),
        single_gpu={FAST: 1.0},
        sensitivity=1.0,
        age_s=job.duration,
        wait_s=job.waited,
        attained_gpu_s=job.ran * job.gpus,
        received_s={FAST: job.ran},
        restarts=job.preempted,
        samples=job.duration,
        samples_done=job.ran,
        present=_present(job) if job.running else None,
    )


def _present(job: Job) -> Present:
    there = PlacementId("there")
    return Present(placement_id=there, gang=Gang.of(job.place), throughput=1.0, layer=Layer.THEORY)


def _decided(policy: Policy, seen: View) -> Decision:
    wanted = policy.wants(seen)
    estimates = Estimated(throughput=np.ones(len(wanted)), layer=np.full(len(wanted), 2, dtype=np.uint8))
    decision = policy.decide(seen, wanted, estimates, _no_solver)
    assert fault(seen, decision) is None
    return decision


def _no_solver(_: Problem, __: Effort) -> Solution:
    raise AssertionError("order alone decides")


def _carry_out(decision: Decision, here: list[Job], kind: PlanKind, now: float) -> None:
    chosen = {choice.job_id: choice.gang.configuration for choice in decision.choices}
    for job in here:
        if job.job_id in chosen:
            job.resumed += not job.running
            job.started = now if math.isnan(job.started) else job.started
            job.place = chosen[job.job_id]
        elif kind == PlanKind.FIRST and job.running:
            job.place, job.preempted = {}, job.preempted + 1


def _count_promotions(policy: Policy, before: bytes, after: bytes, here: list[Job]) -> None:
    """A promotion is where service begins to count again."""
    if not isinstance(policy, Tiresias):
        return
    old, new = _since(before), _since(after)
    for job in here:
        job.promoted += new.get(job.job_id, 0.0) != old.get(job.job_id, 0.0)


def _since(memory: bytes) -> dict[JobId, float]:
    return {own.job_id: own.since_s for line in remembered(memory) for own in line}


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def trace(path: Path) -> list[Job]:
    """A trace of the authors of Tiresias."""
    return [
        Job(JobId(row["job_id"]), int(row["num_gpu"]), float(row["submit_time"]), float(row["duration"]))
        for row in rows(path)
    ]
