"""Drives the shipped Gavel through a recorded run of the authors' scheduler, from views, round by round.

Time passes as in their simulator: a job runs whole steps for at most a round, and the round ends with the
last of them. Nothing but the shares of time comes from the record, and those only where the optimum is not
unique; what the policy remembers comes from its own memory.
"""

from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np

from schemas.ids import GpuType, JobId, NodeId, PlacementId
from schemas.placement import Gang
from schemas.plans import Layer
from services.planner.policies.contract.configurations import Configurations
from services.planner.policies.contract.decision import Decision, fault
from services.planner.policies.contract.estimates import Estimated
from services.planner.policies.contract.view import Present, View, ViewJob, ViewNode
from services.planner.policies.gavel.memory import read
from services.planner.policies.gavel.objectives import Case, Objective
from services.planner.policies.gavel.policy import Gavel, GavelOptions
from services.planner.policies.gavel.shares import Shares, isolated, proportional, throughput
from services.planner.solver import solve
from shared.domain.arrays import Floats
from tests.services.planner.planner_builders import node, view

Json = dict[str, Any]

OBJECTIVES: dict[str, Objective] = {
    "max_min_fairness_perf": "max-min",
    "max_sum_throughput_perf": "throughput",
    "finish_time_fairness_perf": "finish-time",
    "fifo_perf": "fifo",
}
LAYER = 2


class Recorded(Gavel):
    """Of all optimal shares it takes the authors', and keeps how good they and its own are."""

    record: Json
    """the round"""

    def __init__(self, options: GavelOptions) -> None:
        super().__init__(options)
        self.objectives: list[tuple[float, float]] = []
        """the authors' and its own, of every time shares were computed"""

    def computed(self, case: Case) -> Shares:
        own = super().computed(case)
        if self._objective == "fifo":
            return own
        rows = [self.record["X"][_number(job_id)] for job_id in case.now.jobs]
        share = np.array([[row[name] for name in case.now.types] for row in rows])
        self.objectives.append((_worth(self._objective, case, share), own.objective))
        return msgspec.structs.replace(own, share=share)


class Round(msgspec.Struct):
    """What the policy came to in a round, in the record's words."""

    time: float
    jobs: list[str]
    computed: bool
    workers: dict[str, tuple[int, ...]]
    deficit: dict[str, dict[GpuType, float]]
    """of the jobs that had shares computed"""


class Running(msgspec.Struct):
    """A job of the run, and what became of it."""

    job_id: JobId
    gpus: int
    arrival: float
    steps: int
    speed: dict[GpuType, float]
    done: int = 0
    received: dict[GpuType, float] = {}
    place: dict[NodeId, int] = {}


def rounds(run: Json, policy: Recorded) -> Iterator[tuple[Json, Round]]:
    """Every recorded round, with what the policy makes of it."""
    servers = {
        NodeId(f"{name}-{index:03}"): tuple(workers)
        for name, own in run["servers"].items()
        for index, workers in enumerate(own)
    }
    cluster = [node(name, len(own), gpus=len(own), gpu_type=name[:-4]) for name, own in servers.items()]
    coming, here, memory = _jobs(run), list[Running](), b""
    now = ended = coming[0].arrival
    for record in run["rounds"]:
        while coming and coming[0].arrival <= now:
            here.append(coming.pop(0))
        policy.record = record
        seen = msgspec.structs.replace(view(_seen(here), cluster, at=now), memory=memory)
        decision = decided(policy, seen, {job.job_id: job.speed for job in here})
        memory = decision.memory
        yield record, _round_of(decision, seen, servers)
        _place(here, decision)
        ended, now = _pass(here, ended, now, run["round_s"], cluster)
        here = [job for job in here if job.done < job.steps]
        if not decision.choices and coming:
            now = max(now, coming[0].arrival)


def _jobs(run: Json) -> list[Running]:
    speeds = {name: job["throughput"] for record in run["rounds"] for name, job in record["jobs"].items()}
    return [
        Running(
            job_id=JobId(f"{job['id']:06}"),
            gpus=job["scale_factor"],
            arrival=job["arrival"],
            steps=job["total_steps"],
            speed=speeds[str(job["id"])],
        )
        for job in run["jobs"]
        if str(job["id"]) in speeds
    ]


def _seen(here: list[Running]) -> list[ViewJob]:
    return [
        ViewJob(
            job_id=job.job_id,
            submitted_at=job.arrival,
            demand=(job.gpus,),
            gpu_types=tuple(sorted(job.speed)),
            single_gpu=job.speed,
            sensitivity=1.0,
            age_s=1.0,
            wait_s=0.0,
            attained_gpu_s=0.0,
            received_s=job.received,
            restarts=0,
            samples=job.steps,
            samples_done=job.done,
            present=_present(job),
        )
        for job in here
    ]


def _present(job: Running) -> Present | None:
    there = PlacementId("there")
    place = job.place
    return (
        Present(placement_id=there, gang=Gang.of(place), throughput=1.0, layer=Layer.TYPE) if place else None
    )


def decided(policy: Gavel, seen: View, speed: dict[JobId, dict[GpuType, float]]) -> Decision:
    wanted = policy.wants(seen)
    decision = policy.decide(seen, wanted, _estimated(wanted, seen.nodes, speed), solve)
    assert fault(seen, decision) is None
    return decision


def _estimated(
    wanted: Configurations, cluster: tuple[ViewNode, ...], speed: dict[JobId, dict[GpuType, float]]
) -> Estimated:
    """As fast as the record has it, wherever a gang is on a type."""
    kinds = [cluster[position].gpu_type for position in wanted.node[wanted.start[:-1]]]
    values = [speed[wanted.jobs[job]][kind] for job, kind in zip(wanted.job, kinds, strict=True)]
    layer = np.full(len(values), LAYER, dtype=np.uint8)
    return Estimated(throughput=np.array(values, dtype=np.float64), layer=layer)


def _round_of(decision: Decision, seen: View, servers: dict[NodeId, tuple[int, ...]]) -> Round:
    kept = read(decision.memory)
    assert {
        job_id: {name: len(own) for name, own in gpus.items()} for job_id, gpus in kept.gpus_of.items()
    } == {choice.job_id: choice.gang.configuration for choice in decision.choices}
    return Round(
        time=seen.at,
        jobs=[_number(job.job_id) for job in seen.jobs],
        computed=kept.at == seen.at,
        workers={
            _number(job_id): tuple(servers[name][own] for name, numbers in gpus.items() for own in numbers)
            for job_id, gpus in kept.gpus_of.items()
        },
        deficit={_number(job_id): entry.deficit for job_id, entry in kept.jobs.items()},
    )


def _number(job_id: JobId) -> str:
    return str(int(job_id))


def _place(here: list[Running], decision: Decision) -> None:
    chosen = {choice.job_id: choice.gang.configuration for choice in decision.choices}
    for job in here:
        job.place = chosen.get(job.job_id, {})


def _pass(
    here: list[Running], ended: float, now: float, round_s: float, cluster: list[ViewNode]
) -> tuple[float, float]:
    """The round passes: when it ended. Time received counts from the end of the round before it."""
    kinds = {member.node_id: member.gpu_type for member in cluster}
    finish = now
    for job in (job for job in here if job.place):
        kind = kinds[next(iter(job.place))]
        steps = min(int(job.speed[kind] * round_s), job.steps - job.done)
        done_at = now + steps / job.speed[kind]
        job.done += steps
        job.received = {**job.received, kind: job.received.get(kind, 0.0) + done_at - ended}
        finish = max(finish, done_at)
    return (finish, finish) if finish > now else (ended, now)


# ---- how good shares are


def _worth(objective: Objective, case: Case, share: Floats) -> float:
    """What the objective makes of shares."""
    demand, now = case.now.demand, case.now
    reached = throughput(demand, share)
    if objective == "throughput":
        return float(reached.sum())
    if objective == "max-min":
        fair = demand.weight * throughput(demand, proportional(demand))
        return float((demand.gang * reached / fair).min())
    alone = throughput(demand, isolated(demand))
    return float(((now.elapsed + now.left / reached) / (case.isolated_s + now.left / alone)).max())
