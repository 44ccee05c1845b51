"""Classes of problems that differ in what makes an integer program hard, each drawn from a seed.

A class says what its cluster, its jobs and its weights are like. The configurations are the planner's own
(`configurations_for`). A gang's throughput is drawn: the job's speed on the type, times GPUs to a power below
1, less where the gang is spread over nodes, and a few per cent apart from server to server where the class
has unlike servers. Problems with the emulated world's speeds are made by `instances`.
"""

from collections.abc import Callable, Mapping, Sequence

import msgspec
import numpy as np

from schemas.ids import GpuType, JobId, NodeId
from services.planner.policies.contract.configurations import Configurations, configurations_for
from services.planner.policies.contract.view import ViewJob, ViewNode
from services.planner.policies.hops.policy import gains
from services.planner.solver.problem import Problem
from shared.domain.arrays import Floats

Random = np.random.Generator
Weights = Callable[[Random, int], Floats]
"""draws the weights of a number of jobs"""
Demand = Callable[[Random], Sequence[int]]
"""draws the GPU counts that one job may have"""

THRESHOLD = 1.4
"""sensitivity above which a job is spread only where no node has room for it"""
SCALING = (0.6, 1.0)
"""throughput grows with GPUs to a power between these"""
SPREAD = (0.6, 1.0)
"""share of its throughput that a gang keeps when it is spread over nodes"""
POWERS = (1, 2, 4, 8, 16)
EVERY = range(1, 17)
HUGE = (96, 128, 192)
MIXED = ((2, 32), (4, 32), (8, 32), (16, 8))
"""servers of several sizes, as in `Class.servers`"""


class Class(msgspec.Struct, frozen=True, kw_only=True):
    """What the problems of a class have in common."""

    servers: tuple[tuple[int, int], ...] = ((8, 64),)
    """GPUs of a server, and the number of such servers"""
    types: int = 5
    """number of GPU types; servers have them in turns"""
    jobs: tuple[int, int] = (128, 152)
    """number of jobs, at least and at most"""
    weights: Weights
    demand: Demand
    unlike: float = 0.02
    """standard deviation of throughput from server to server of a type, relative"""
    idle: float = 1.0
    """share of a server's GPUs that is idle, on average"""
    sensitive: float = 0.5
    """share of the jobs that are sensitive to their place"""
    speeds: float = 0.5
    """standard deviation of the logarithm of a job's speed from type to type"""
    alike: bool = False
    """every job has the same scaling and the same loss when spread"""
    pooled: bool = False
    """the servers of one type are one node, as in the programs of Sia and Gavel"""


def equal(_: Random, jobs: int) -> Floats:
    return np.ones(jobs)


def exponential(random: Random, jobs: int) -> Floats:
    return random.exponential(size=jobs)


def pareto(random: Random, jobs: int) -> Floats:
    """Weights by a Pareto law with the exponent 1.1: a few jobs outweigh all others."""
    return 1.0 + random.pareto(1.1, jobs)


def two_tier(random: Random, jobs: int) -> Floats:
    return random.choice([1.0, 20.0], jobs, p=[0.8, 0.2])


def one_huge(random: Random, jobs: int) -> Floats:
    """The first job weighs about as much as forty others."""
    weights = random.uniform(0.5, 1.5, jobs)
    weights[0] = 40.0
    return weights


def counts(of: Sequence[int], least: int, most: int) -> Demand:
    """Draws between `least` and `most` different counts of `of`."""

    def drawn(random: Random) -> list[int]:
        size = min(int(random.integers(least, most + 1)), len(of))
        return sorted(random.choice(of, size, replace=False).tolist())

    return drawn


def half_and_half(random: Random) -> Sequence[int]:
    """Powers of two in half of the jobs, any counts up to 16 in the others."""
    return (counts(POWERS, 1, 4) if random.integers(2) else counts(EVERY, 2, 4))(random)


def mostly_small(random: Random) -> Sequence[int]:
    """One count, as jobs of traces have it: most are single GPUs, few need more than a server."""
    return [int(random.choice(POWERS, p=[0.5, 0.15, 0.15, 0.15, 0.05]))]


def huge_or_small(random: Random) -> Sequence[int]:
    return counts(((1, 2, 3), HUGE)[int(random.choice(2, p=[0.98, 0.02]))], 1, 3)(random)


CLASSES: Mapping[str, Class] = {
    "priorities": Class(weights=exponential, demand=half_and_half),
    "equal": Class(weights=equal, demand=counts(POWERS, 1, 3)),
    "heavy-tailed": Class(weights=pareto, demand=counts(EVERY, 1, 4)),
    "two-tier": Class(weights=two_tier, demand=counts(POWERS, 1, 3)),
    "all-counts": Class(weights=exponential, demand=counts(EVERY, 4, 8), jobs=(100, 130)),
    "whole-nodes": Class(weights=exponential, demand=counts((8, 16, 24, 32), 1, 3), jobs=(60, 90)),
    "singles": Class(weights=exponential, demand=counts((1,), 1, 1), jobs=(550, 650)),
    "one-type": Class(types=1, unlike=0.0, weights=exponential, demand=half_and_half),
    "eight-types": Class(types=8, weights=exponential, demand=half_and_half),
    "servers-alike": Class(unlike=0.0, weights=exponential, demand=half_and_half),
    "servers-mixed": Class(servers=MIXED, unlike=0.05, weights=exponential, demand=half_and_half),
    "half-idle": Class(idle=0.5, weights=exponential, demand=counts(range(1, 9), 1, 4), jobs=(90, 120)),
    "nearly-empty": Class(weights=exponential, demand=counts(EVERY, 2, 6), jobs=(30, 40)),
    "crowded": Class(weights=exponential, demand=half_and_half, jobs=(450, 550)),
    "sia": Class(
        servers=((8, 256),),
        unlike=0.0,
        pooled=True,
        weights=equal,
        demand=counts(EVERY, 6, 12),
        jobs=(500, 700),
    ),
    "gavel": Class(types=3, unlike=0.0, weights=equal, demand=mostly_small, jobs=(280, 340)),
    "equal-gains": Class(unlike=0.0, speeds=0.0, alike=True, weights=equal, demand=counts(EVERY, 1, 3)),
    "indivisible": Class(
        servers=((7, 32), (11, 20), (13, 10)), weights=exponential, demand=counts((2, 3, 4, 5, 6), 1, 3)
    ),
    "odd-gangs": Class(weights=exponential, demand=counts((3, 5, 6, 7), 1, 2), sensitive=0.9),
    "one-huge": Class(weights=one_huge, demand=huge_or_small, jobs=(300, 340), types=2),
}
"""The zoo. `priorities` is the one that was hardest first."""


def problem_of(name: str, seed: int) -> Problem:
    """The problem of a class that a seed makes. Raises KeyError for an unknown class."""
    kind = CLASSES[name]
    random = np.random.default_rng([seed, *name.encode()])
    nodes = _nodes(kind, random)
    number = int(random.integers(kind.jobs[0], kind.jobs[1] + 1))
    jobs = [_job(index, kind, random) for index in range(number)]
    wanted = configurations_for(jobs, nodes, THRESHOLD)
    return Problem(
        capacity=np.array([node.idle for node in nodes], dtype=np.int32),
        gain=gains(wanted, _throughput(wanted, nodes, kind, random)),
        weight=kind.weights(random, number),
        job=wanted.job,
        start=wanted.start,
        node=wanted.node,
        gpus=wanted.gpus,
    )


def _nodes(kind: Class, random: Random) -> list[ViewNode]:
    sizes = [gpus for gpus, count in kind.servers for _ in range(count)]
    if kind.pooled:
        sizes = [sum(sizes[first :: kind.types]) for first in range(kind.types)]
    return [
        ViewNode(
            node_id=NodeId(f"node-{index:04d}"),
            gpu_type=_types(kind)[index % kind.types],
            gpus=gpus,
            idle=int(random.binomial(gpus, kind.idle)),
        )
        for index, gpus in enumerate(sizes)
    ]


def _types(kind: Class) -> tuple[GpuType, ...]:
    return tuple(GpuType(f"type-{number}") for number in range(kind.types))


def _job(index: int, kind: Class, random: Random) -> ViewJob:
    return ViewJob(
        job_id=JobId(f"job-{index:05d}"),
        submitted_at=0.0,
        demand=tuple(kind.demand(random)),
        gpu_types=_types(kind),
        single_gpu={},
        sensitivity=2.0 if random.random() < kind.sensitive else 1.0,
        age_s=1.0,
        wait_s=0.0,
        attained_gpu_s=0.0,
        received_s={},
        restarts=0,
        samples=1.0,
        samples_done=0.0,
    )


def _throughput(wanted: Configurations, nodes: Sequence[ViewNode], kind: Class, random: Random) -> Floats:
    """Throughput by configuration, samples/s."""
    jobs = len(wanted.jobs)
    drawn = np.zeros(jobs, dtype=np.int64) if kind.alike else np.arange(jobs)
    scaling, spread = (random.uniform(*bounds, jobs)[drawn] for bounds in (SCALING, SPREAD))
    speed = np.exp(kind.speeds * random.standard_normal((jobs, kind.types)))
    server = 1.0 + kind.unlike * random.standard_normal((jobs, len(nodes)))
    first = wanted.node[wanted.start[:-1]]
    gpus = np.add.reduceat(wanted.gpus, wanted.start[:-1])
    gangs = np.diff(wanted.start)
    throughput: Floats = (
        gpus ** scaling[wanted.job]
        * np.where(gangs > 1, spread[wanted.job], 1.0)
        * speed[wanted.job, first % kind.types]
        * server[wanted.job, first]
    )
    return throughput
