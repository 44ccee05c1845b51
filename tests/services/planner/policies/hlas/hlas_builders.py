"""What HLAS' tests build from: GPUs that are all unlike, jobs of rounds, and a cluster without costs."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from schemas.ids import GpuType, NodeId, PlacementId
from schemas.placement import Gang, Relaxed
from schemas.plans import Layer
from services.planner.policies.contract.decision import Decision
from services.planner.policies.contract.view import Present, ViewJob, ViewNode
from services.planner.policies.hlas.memory import HlasMemory
from services.planner.policies.registry import Registry
from tests.services.planner.planner_builders import Estimator, decide, job, silent, view

MODES = ("lockstep", "relaxed")


class Toy(NamedTuple):
    """A job of rounds, without exchanges of gradients."""

    task_s: Sequence[float]
    """by GPU"""
    tasks: int
    rounds: int
    arrives_at: float = 0.0

    @property
    def alone_s(self) -> float:
        """On its fastest GPU: what it is expected to run, to those who ask."""
        return self.rounds * self.tasks * min(self.task_s)


def single(index: int, gpus: int = 1, **fields: object) -> ViewNode:
    """A node of a type of its own, which sorts by its index."""
    name = f"g{index:02}"
    row = ViewNode(node_id=NodeId(name), gpu_type=GpuType(name), gpus=gpus, idle=gpus, modes=MODES)
    return msgspec.structs.replace(row, **fields)


def cluster(count: int) -> list[ViewNode]:
    return [single(index) for index in range(count)]


def toy(name: str, one: Toy, done: float = 0.0, **fields: object) -> ViewJob:
    """A batch is one sample, so a task is one too."""
    rates = {GpuType(f"g{index:02}"): 1.0 / each for index, each in enumerate(one.task_s)}
    return job(
        name,
        (one.tasks,),
        gpu_types=tuple(rates),
        single_gpu=rates,
        samples=float(one.tasks * one.rounds),
        samples_done=done,
        **{"submitted_at": one.arrives_at, "workload": name, "age_s": one.alone_s, **fields},
    )


def placed(seen: ViewJob, gang: Gang, throughput: float = 1.0) -> ViewJob:
    name = PlacementId(f"of-{seen.job_id}")
    present = Present(placement_id=name, gang=gang, throughput=throughput, layer=Layer.THEORY)
    return msgspec.structs.replace(seen, present=present)


def gang_of(tasks: Mapping[str, Sequence[int]]) -> Gang:
    """Tasks by GPU, by node."""
    by_node = {NodeId(name): tuple(each) for name, each in sorted(tasks.items())}
    members = {name: len(each) for name, each in by_node.items()}
    return Gang.of(members, Relaxed(tasks=tuple(by_node.values())))


def tasks_of(gang: Gang) -> dict[str, tuple[int, ...]]:
    assert isinstance(gang.sync, Relaxed)
    return dict(zip(gang.nodes, gang.sync.tasks, strict=True))


class Run(NamedTuple):
    ends: dict[str, float]
    decisions: list[tuple[float, Decision]]

    @property
    def held(self) -> list[tuple[float, dict[str, list[str]]]]:
        """Nodes by job, from when on."""
        return [
            (at, {choice.job_id: list(choice.gang.nodes) for choice in decision.choices})
            for at, decision in self.decisions
        ]


def knowing(jobs: Mapping[str, Toy]) -> bytes:
    """The memory of a policy that has seen all workloads before."""
    speeds = {name: toy(name, one).single_gpu for name, one in jobs.items()}
    return msgspec.msgpack.encode(HlasMemory(speeds=speeds))


def simulated(
    policy: str,
    nodes: Sequence[ViewNode],
    jobs: Mapping[str, Toy],
    memory: bytes = b"",
    estimator: Estimator = silent,
    **options: object,
) -> Run:
    """Asks the policy at arrivals, completions, and when it wants to be asked. Nothing else takes time."""
    registry, now = Registry(), 0.0
    done = dict.fromkeys(jobs, 0.0)
    places: dict[str, tuple[Gang, float]] = {}
    run = Run({}, [])
    while len(run.ends) < len(jobs):
        rows = _rows({name: one for name, one in jobs.items() if name not in run.ends}, done, places, now)
        seen = msgspec.structs.replace(view(rows, nodes, at=now), memory=memory)
        decision = decide(policy, seen, estimator, registry, **options)
        run.decisions.append((now, decision))
        memory = decision.memory
        places = {choice.job_id: (choice.gang, choice.throughput) for choice in decision.choices}
        events = [one.arrives_at for one in jobs.values() if one.arrives_at > now]
        events += [decision.again_at] if decision.again_at is not None else []
        ends = {
            name: now + (one.tasks * one.rounds - done[name]) / places[name][1]
            for name, one in jobs.items()
            if name in places
        }
        then = min([*events, *ends.values()])
        for name, (_, speed) in places.items():
            done[name] += speed * (then - now)
        for name, end in ends.items():
            if end <= then + 1e-9:
                run.ends[name] = then
                del places[name]
        now = then
    return run


def _rows(
    jobs: Mapping[str, Toy], done: Mapping[str, float], places: Mapping[str, tuple[Gang, float]], now: float
) -> list[ViewJob]:
    rows = []
    for name, one in jobs.items():
        if one.arrives_at <= now:
            row = toy(name, one, done[name])
            rows.append(placed(row, *places[name]) if name in places else row)
    return sorted(rows, key=lambda row: (row.submitted_at, row.job_id))


def mean_jct(run: Run, jobs: Mapping[str, Toy]) -> float:
    return sum(end - jobs[name].arrives_at for name, end in run.ends.items()) / len(jobs)
