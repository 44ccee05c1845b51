"""Instances for the solver, of any size: the planner's own problems, without running a cluster for them.

The cluster is a scenario's, scaled in proportion; the jobs are the scenario's workload, scaled alike, as they
stand when a drawn one of them arrives. Each waits for a drawn multiple of its age, then runs for its age and
is gone; so sizes and priorities are like a run's. The policy then makes the problem from a view, as live:

- a greedy plan puts jobs onto the empty cluster;
- a *first* plan sees all GPUs and all jobs, those that run where that plan put them included;
- a *fragment* plan sees what is idle after some of those that ran have ended, and the jobs that wait.

Gains come from the emulated world's own speeds (see `speeds`). Everything is drawn from a seed.
"""

import math
from collections import Counter

import msgspec

from hopyard.lab.bench.planning.speeds import WorldSpeeds
from loadgen.draws import generator
from loadgen.scenarios import arrivals, cluster_of, load_scenario
from schemas.cluster import Node
from schemas.ids import JobId, NodeId, PlacementId
from schemas.placement import Lockstep, Relaxed
from schemas.plans import PlanKind
from schemas.scenarios import Arrival, PoissonWorkload, ScenarioFile
from schemas.settings import Settings
from services.estimator.theory.ageing import age_s, sensitivity, shares
from services.planner.policies.contract.configurations import Configurations
from services.planner.policies.contract.decision import Choice, Decision
from services.planner.policies.contract.estimates import Estimated, unknown
from services.planner.policies.contract.view import Present, View, ViewJob, ViewNode
from services.planner.policies.hops.policy import Hops, HopsOptions
from services.planner.solver.effort import Effort
from services.planner.solver.greedy import greedy
from services.planner.solver.problem import Problem, Solution
from shared.domain.cluster import gpus_by_type, nodes_of
from shared.domain.demand import job_spec

SCENARIO = "hops-512-three"
COME = (0.5, 1.0)
"""share of the workload that has arrived by then, at least and at most"""
LATENCY_RATIO = 1.0
"""largest wait / age of a job; in a run, a job with more would have been served"""
ENDED = (0.05, 0.5)
"""share of the running jobs that have ended before a fragment plan, at least and at most"""
NO_EFFORT = Effort(greedy=True)
MODES = (Lockstep.tag(), Relaxed.tag())
"""modes that nodes run; speeds are those of lockstep"""


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """The kind of an instance."""

    gpus: int
    kind: PlanKind = PlanKind.FIRST
    unlike: bool = False
    """servers of one type differ by a few per cent"""
    load: float = 1.0
    """factor on the number of jobs in the same time"""


def instance(shape: Shape, seed: int) -> Problem:
    """The problem of one plan."""
    scene = Scene(shape, seed)
    before = scene.plan(scene.view(PlanKind.FIRST, {}))[0]
    placed = {choice.job_id: choice for choice in before.choices}
    if shape.kind == PlanKind.FRAGMENT:
        placed = scene.survivors(placed)
    return scene.plan(scene.view(shape.kind, placed))[1]


class Scene:
    """A cluster and its jobs at one instant."""

    def __init__(self, shape: Shape, seed: int) -> None:
        scenario = _scaled(load_scenario(SCENARIO), shape.gpus, shape.load)
        self._seed = seed
        self._nodes = nodes_of(cluster_of(scenario))
        self._speeds = WorldSpeeds(self._nodes, seed=seed, unlike=shape.unlike)
        self._policy = Hops(HopsOptions())
        come = arrivals(scenario, seed)
        come = come[: math.ceil(len(come) * generator(seed, "come").uniform(*COME))]
        self._at = come[-1].at_s
        self._workloads = {_job_id(index): one.job.workload for index, one in enumerate(come)}
        present = (self._job(index, one) for index, one in enumerate(come))
        self._jobs = [job for job in present if self._at - job.submitted_at < job.wait_s + job.age_s]
        self._ended: frozenset[JobId] = frozenset()

    def plan(self, view: View) -> tuple[Decision, Problem]:
        """A greedy plan, and the problem it is a choice of."""
        posed: list[Problem] = []

        def solve(problem: Problem, _: Effort) -> Solution:
            posed.append(problem)
            return greedy(problem)

        wanted = self._policy.wants(view)
        return self._policy.decide(view, wanted, self.estimates(wanted), solve), posed[0]

    def estimates(self, wanted: Configurations) -> Estimated:
        if not len(wanted):
            return unknown(0)
        return self._speeds.estimates(wanted, [self._workloads[job_id] for job_id in wanted.jobs])

    def view(self, kind: PlanKind, placed: dict[JobId, Choice]) -> View:
        """A view with jobs that run. `placed`: which, and where."""
        jobs = [running(job, placed.get(job.job_id)) for job in self._jobs if job.job_id not in self._ended]
        taken = _taken(placed) if kind == PlanKind.FRAGMENT else {}
        if kind == PlanKind.FRAGMENT:
            jobs = [job for job in jobs if job.present is None]
        return View(
            at=self._at,
            round=int(self._at // Settings().round_s),
            round_s=Settings().round_s,
            kind=kind,
            nodes=tuple(_seen(node, taken.get(node.node_id, 0)) for node in self._nodes),
            jobs=tuple(jobs),
            jobs_present=len(self._jobs),
            effort=NO_EFFORT,
        )

    def survivors(self, placed: dict[JobId, Choice]) -> dict[JobId, Choice]:
        """The jobs that still run once a drawn share has ended."""
        random = generator(self._seed, "ended")
        share = random.uniform(*ENDED)
        ended = {job_id for job_id in placed if random.random() < share}
        self._ended = frozenset(ended)
        return {job_id: choice for job_id, choice in placed.items() if job_id not in ended}

    def _job(self, index: int, arrival: Arrival) -> ViewJob:
        spec = job_spec(arrival.job)
        single, paired = self._speeds.single(spec.workload), self._speeds.paired(spec.workload)
        share = shares(tuple(single), gpus_by_type(self._nodes))
        present_s = self._at - arrival.at_s
        age = age_s(spec.samples, spec.demand, single, share)
        ratio = LATENCY_RATIO * generator(self._seed, "ratio", index).random()
        wait_s = min(ratio * age, present_s)
        ran_s = present_s - wait_s
        return ViewJob(
            job_id=_job_id(index),
            submitted_at=arrival.at_s,
            demand=spec.demand,
            gpu_types=tuple(single),
            single_gpu=single,
            sensitivity=sensitivity(single, paired, share),
            age_s=age,
            wait_s=wait_s,
            attained_gpu_s=ran_s * spec.demand[0],
            received_s={max(single, key=single.__getitem__): ran_s} if ran_s else {},
            restarts=0,
            samples=spec.samples,
            samples_done=spec.samples * min(ran_s / age, 1.0),
            priority=spec.priority,
        )


def _scaled(scenario: ScenarioFile, gpus: int, load: float) -> ScenarioFile:
    """Cluster and workload times the same factor, no group of nodes left out; the workload times `load`."""
    cluster, workload = cluster_of(scenario), scenario.workload
    assert isinstance(workload, PoissonWorkload), "the scenario draws its jobs"
    factor = gpus / sum(group.count * group.gpus for group in cluster.nodes)
    groups = [
        msgspec.structs.replace(group, count=max(round(group.count * factor), 1)) for group in cluster.nodes
    ]
    work = msgspec.structs.replace(
        workload,
        count=max(round(workload.count * factor * load), 2),
        rate_per_hour=None if workload.rate_per_hour is None else workload.rate_per_hour * factor * load,
    )
    return msgspec.structs.replace(
        scenario, cluster=msgspec.structs.replace(cluster, nodes=groups), workload=work
    )


def running(job: ViewJob, choice: Choice | None) -> ViewJob:
    """The job at the place of its choice; unchanged without one."""
    if choice is None:
        return job
    present = Present(
        placement_id=PlacementId(f"{job.job_id}-1"),
        gang=choice.gang,
        throughput=choice.throughput,
        layer=choice.layer,
    )
    return msgspec.structs.replace(job, present=present)


def _taken(placed: dict[JobId, Choice]) -> Counter[NodeId]:
    taken: Counter[NodeId] = Counter()
    for choice in placed.values():
        taken.update(choice.gang.configuration)
    return taken


def _seen(node: Node, taken: int) -> ViewNode:
    return ViewNode(
        node_id=node.node_id, gpu_type=node.gpu_type, gpus=node.gpus, idle=node.gpus - taken, modes=MODES
    )


def _job_id(index: int) -> JobId:
    return JobId(f"job-{index:05d}")
