"""Drives the shipped `SiaFaithful` through recorded rounds of its authors' simulator, from views.

A round's jobs and where they run come from the record; what each has run with so far, and so how far it may
scale up, comes from the policy's own memory.
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
from services.planner.policies.sia.policy import SiaFaithful, SiaOptions
from services.planner.policies.sia.utilities import power_sizes
from services.planner.solver import solve
from services.planner.solver.effort import Effort
from tests.services.planner.planner_builders import node, view

Json = dict[str, Any]
Place = tuple[str, tuple[int, ...]]
"""a GPU type, and the position of the node of every GPU"""

EXACT = Effort(gap=0.0, modelled=True, budget_s=1e6)
RESTART_S = "deepspeech2=25 imagenet=250 cifar10=30 bert=120 yolov3=45"


class Played(msgspec.Struct):
    """What the policy came to in a round, in the record's words."""

    places: dict[str, Place]
    objective: float
    """the paper's: a cost"""


def policy(case: Json) -> SiaFaithful:
    options = SiaOptions(
        types=" ".join(case["gpu_types"]),
        restart_s=RESTART_S,
        power=case["p"],
        penalty=abs(case["lambda_no_alloc"]),
    )
    return SiaFaithful(options)


def rounds(case: Json) -> Iterator[tuple[Json, Played]]:
    """Every recorded round, with what the policy makes of it."""
    sia, memory = policy(case), b""
    cluster = [
        node(f"{name}-{index:03}", size, gpus=size, gpu_type=name)
        for name, size in sorted(case["gpus_per_node"].items())
        for index in range(case["nodes"][name])
    ]
    before: dict[str, Json] = {}
    for record in case["rounds"]:
        jobs = [_job(case, job, before.get(job["name"]), known=bool(memory)) for job in record["jobs"]]
        seen = msgspec.structs.replace(
            view(jobs, cluster, at=0.0, effort=EXACT), memory=memory, restart_s=30.0
        )
        decision = _decided(sia, seen, {JobId(job["name"]): job["goodput_fn"] for job in record["jobs"]})
        memory, before = decision.memory, record["placement"]
        cost = abs(case["lambda_no_alloc"]) * len(jobs) - decision.objective
        yield record, Played(places=_places(decision), objective=cost)


def theirs(record: Json) -> dict[str, Place]:
    return {
        name: (place["gpu_type"], tuple(sorted(place["node_of_each_gpu"])))
        for name, place in record["placement"].items()
        if place is not None
    }


def counts(places: dict[str, Place]) -> dict[str, tuple[str, int]]:
    """What was chosen: a type and a count."""
    return {name: (kind, len(nodes)) for name, (kind, nodes) in places.items()}


def _job(case: Json, job: Json, before: Json | None, *, known: bool) -> ViewJob:
    """`known`: the policy has decided on it already."""
    most = max(job["max_replicas"].values())
    sizes = {
        gpus
        for name in case["gpu_types"]
        for gpus in power_sizes(case["gpus_per_node"][name], case["nodes"][name])
        if gpus <= most
    }
    return ViewJob(
        job_id=JobId(job["name"]),
        submitted_at=-job["age"],
        demand=tuple(sorted(sizes)),
        gpu_types=tuple(sorted(case["gpu_types"])),
        single_gpu=job["xput_1gpu"],
        sensitivity=1.0,
        age_s=1.0,
        wait_s=0.0,
        attained_gpu_s=0.0 if known else float(most // 2),
        received_s={} if known else {case["gpu_types"][0]: 1.0},
        restarts=job["num_restarts"],
        samples=1.0,
        samples_done=0.0,
        present=_present(before) if job["prev_config"] is not None else None,
    )


def _present(before: Json | None) -> Present:
    assert before is not None
    nodes = [NodeId(f"{before['gpu_type']}-{index:03}") for index in before["node_of_each_gpu"]]
    return Present(
        placement_id=PlacementId("there"),
        gang=Gang.of({name: nodes.count(name) for name in nodes}),
        throughput=1.0,
        layer=Layer.TYPE,
    )


def _decided(sia: SiaFaithful, seen: View, curves: dict[JobId, dict[GpuType, Json]]) -> Decision:
    wanted = sia.wants(seen)
    decision = sia.decide(seen, wanted, _estimated(wanted, seen.nodes, curves), solve)
    assert fault(seen, decision) is None
    return decision


def _estimated(
    wanted: Configurations, cluster: tuple[ViewNode, ...], curves: dict[JobId, dict[GpuType, Json]]
) -> Estimated:
    """By the record's curves; nothing of types for which a job has none."""
    values = []
    for row, job in enumerate(wanted.job):
        cells = slice(wanted.start[row], wanted.start[row + 1])
        curve = curves[wanted.jobs[job]].get(cluster[wanted.node[cells][0]].gpu_type)
        values.append(_goodput(curve, len(wanted.node[cells]), int(wanted.gpus[cells].sum())))
    return Estimated(throughput=np.array(values), layer=np.full(len(values), 2, dtype=np.uint8))


def _goodput(curve: Json | None, nodes: int, gpus: int) -> float:
    if curve is None:
        return float("nan")
    spread = curve["beta_multinode"] if nodes > 1 else 1.0
    return float(curve["g1"] * gpus ** curve["alpha"] * spread)


def _places(decision: Decision) -> dict[str, Place]:
    return {
        choice.job_id: (
            next(iter(choice.gang.configuration))[:-4],
            tuple(
                sorted(
                    int(name[-3:]) for name, gpus in choice.gang.configuration.items() for _ in range(gpus)
                )
            ),
        )
        for choice in decision.choices
    }
