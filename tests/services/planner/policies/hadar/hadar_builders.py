"""Small cases of Hadar: jobs by W, speeds and work; slots of a second, no restarts, raw utility."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from schemas.ids import GpuType, JobId, PlacementId
from schemas.placement import Configuration, Gang
from schemas.plans import Layer
from services.planner.policies.contract.configurations import Configurations
from services.planner.policies.contract.decision import Decision
from services.planner.policies.contract.estimates import Estimated
from services.planner.policies.contract.view import Present, View, ViewJob, ViewNode
from services.planner.policies.hadar.bounds import Knapsack
from services.planner.policies.hadar.jobs import GpusByNode, HadarJob
from services.planner.policies.hadar.offers import Finder, PricedPlace, Terms
from services.planner.policies.hadar.prices import DualPrices, dual_prices
from services.planner.policies.hadar.program import Chosen, Width, chosen
from services.planner.policies.hadar.room import FreeGpus, Levels, Occupants
from services.planner.solver.budget import Budget
from tests.services.planner.planner_builders import decide, job, node, view

PRINTED: dict[str, Any] = {"utility": "raw", "restart_s": 0, "branches": 1}
FOREVER = float("inf")


class Model(msgspec.Struct, frozen=True):
    """A job of the examples: its GPUs, its speed on one GPU of each type, its samples."""

    gpus: int
    speed: tuple[float, ...]
    """by type in alphabetical order; 0: it cannot run there"""
    work: float
    at: float = 0.0


A, B, C = Model(2, (1.0, 4.0), 16), Model(1, (2.0, 3.0), 6), Model(3, (1.0, 2.0), 12)
"""of E1 to E3: types k (K80) and v (V100)"""


# ---- whole decisions


def cluster(**gpus: int) -> list[ViewNode]:
    """A node of each type that is named; several of a type as `v0`, `v1`."""
    return [node(name, count, gpus=count, gpu_type=name[0]) for name, count in sorted(gpus.items())]


def seen(models: Mapping[str, Model], nodes: Sequence[ViewNode], *, at: float = 0.0, **fields: Any) -> View:  # noqa: ANN401 - fields of View
    types = sorted({one.gpu_type for one in nodes})
    jobs = [view_job(name, model, types) for name, model in models.items()]
    return msgspec.structs.replace(view(jobs, nodes, at=at), round_s=1.0, **fields)


def view_job(name: str, model: Model, types: Sequence[GpuType], **fields: Any) -> ViewJob:  # noqa: ANN401 - fields of ViewJob
    can = tuple(kind for kind, speed in zip(types, model.speed, strict=True) if speed > 0)
    return job(name, (model.gpus,), gpu_types=can, samples=model.work, submitted_at=model.at, **fields)


def speeds_of(models: Mapping[str, Model], nodes: Sequence[ViewNode]) -> Any:  # noqa: ANN401 - an Estimator
    """W · the slowest speed, whatever the number of nodes."""
    types = sorted({one.gpu_type for one in nodes})

    def estimated(wanted: Configurations) -> Estimated:
        kind_of = {one.node_id: types.index(one.gpu_type) for one in nodes}
        rates = []
        for row, index in enumerate(wanted.job.tolist()):
            model, place = models[wanted.jobs[index]], wanted.at(row)
            slowest = min(model.speed[kind_of[node_id]] for node_id in place)
            rates.append(slowest * sum(place.values()) or np.nan)
        return Estimated(throughput=np.array(rates), layer=np.full(len(wanted), 2, dtype=np.uint8))

    return estimated


def planned(
    models: Mapping[str, Model],
    nodes: Sequence[ViewNode],
    policy: str = "hadar",
    *,
    given: View | None = None,
    **options: Any,  # noqa: ANN401 - of the policy
) -> Decision:
    """The decision on an empty cluster at 0, or on a view."""
    shown = given if given is not None else seen(models, nodes)
    return decide(policy, shown, speeds_of(models, nodes), **options)


def rate_of(model: Model, place: Configuration, nodes: Sequence[ViewNode]) -> float:
    types = sorted({one.gpu_type for one in nodes})
    kind_of = {one.node_id: types.index(one.gpu_type) for one in nodes}
    return sum(place.values()) * min(model.speed[kind_of[node_id]] for node_id in place)


def running_on(place: Configuration, throughput: float, name: str) -> Present:
    return Present(
        placement_id=PlacementId(name), gang=Gang.of(place), throughput=throughput, layer=Layer.TYPE
    )


def run_out(
    models: Mapping[str, Model],
    nodes: Sequence[ViewNode],
    policy: str,
    **options: Any,  # noqa: ANN401 - of the policy
) -> dict[str, float]:
    """Slot by slot, from an empty cluster until all are done: when each job ends."""
    types = sorted({one.gpu_type for one in nodes})
    done, here = dict.fromkeys(models, 0.0), dict[str, Present]()
    ends: dict[str, float] = {}
    for at in range(100):
        jobs = [
            view_job(name, model, types, samples_done=done[name], present=here.get(name))
            for name, model in models.items()
            if name not in ends and model.at <= at
        ]
        shown = msgspec.structs.replace(view(jobs, nodes, at=float(at)), round_s=1.0)
        here = {}
        for choice in planned(models, nodes, policy, given=shown, **options).choices:
            name, place = str(choice.job_id), choice.gang.configuration
            rate = rate_of(models[name], place, nodes)
            left = models[name].work - done[name]
            done[name] += min(rate, left)
            here[name] = running_on(place, rate, name)
            if left <= rate:
                ends[name] = at + left / rate
                del here[name]
        if len(ends) == len(models):
            return ends
    raise AssertionError(f"after 100 slots only {ends}")


# ---- parts


class Case:
    """Jobs and free GPUs as the parts of the policy see them."""

    def __init__(
        self,
        models: Sequence[Model],
        nodes: Sequence[ViewNode],
        *,
        top: Any = "job",  # noqa: ANN401 - a PriceTop
        delay_s: float = FOREVER,
        present: Mapping[int, Configuration] | None = None,
        prices: DualPrices | None = None,
        **terms: Any,  # noqa: ANN401 - fields of Terms
    ) -> None:
        self.nodes, self.levels = nodes, Levels(nodes)
        held = present or {}
        self.jobs = [
            self.job(model, index, self.levels.place(held.get(index, {})))
            for index, model in enumerate(models)
        ]
        self.prices: DualPrices = prices or dual_prices(
            self.jobs, self.levels.gpus, round_s=1.0, delay_s=delay_s, top=top
        )
        rows = zip(self.levels.kind_of, self.levels.free_of, self.levels.size_of, strict=True)
        self.price = [self.prices.at(kind, size - free, size) for kind, free, size in rows]
        self.terms = Terms(**{"round_s": 1.0, "delay_s": delay_s, **terms})
        self.finder = Finder(self.levels, self.price, self.terms)
        self.room = FreeGpus(self.levels, [one.idle for one in nodes])

    def job(self, model: Model, index: int = 0, present: GpusByNode = ()) -> HadarJob:
        paces = tuple((speed,) * min(model.gpus, len(self.nodes)) for speed in model.speed)
        return HadarJob(
            job_id=JobId(f"j{index}"),
            submitted_at=float(index),
            gpus=model.gpus,
            elapsed_s=0.0,
            left=model.work,
            worth=model.work,
            paces=paces,
            present=present,
        )

    def offers(self, index: int, room: FreeGpus | None = None) -> list[PricedPlace]:
        one = self.jobs[index]
        return self.finder.offers(one, self.finder.routes(one), room or self.room, Occupants(len(self.nodes)))

    def named(self, place: GpusByNode) -> dict[str, int]:
        return {self.levels.names[at]: gpus for at, gpus in place}

    def solved(
        self, *, beam: int = 0, branches: int = 0, seconds: float = FOREVER, order: Sequence[int] = ()
    ) -> Chosen:
        queue = [self.jobs[index] for index in order] or self.jobs
        return chosen(
            queue,
            self.room,
            self.finder,
            Knapsack(queue, self.room, self.finder),
            width=Width(beam=beam, branches=branches),
            budget=Budget(seconds=seconds),
        )
