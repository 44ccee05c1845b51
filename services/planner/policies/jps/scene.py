"""The input of a reset: the jobs that take part, and the GPUs that they share. Pure.

Arrays are by job [S] and GPU type [C].
"""

from collections.abc import Iterator, Sequence

import msgspec
import numpy as np

from schemas.ids import GpuType, JobId, NodeId
from schemas.placement import Configuration, Gang
from schemas.plans import Waiting
from services.planner.policies.contract.decision import Choice, Left
from services.planner.policies.contract.view import View, ViewJob, ViewNode
from services.planner.policies.jps.splits.market import WorkerMarket
from services.planner.policies.jps.taking_part import placeable_gpus, taking_part
from services.planner.policies.kit.keeping import kept
from shared.domain.arrays import Floats, Ints


class Scene(msgspec.Struct, frozen=True, kw_only=True):
    view: View
    kept: tuple[Choice, ...]
    """the choices of jobs that keep their GPUs, whatever is decided"""
    jobs: tuple[ViewJob, ...]
    """the jobs that take part, by the time that each would take alone on all GPUs, the shortest first"""
    nodes: tuple[ViewNode, ...]
    """the nodes with idle GPUs, those of kept jobs not counted"""
    types: tuple[GpuType, ...]
    """in alphabetical order"""
    type_of: dict[NodeId, GpuType]
    rate: Floats
    """ρ [S, C]: samples/s of one GPU; 0: the job cannot run on the type"""
    supply: Ints
    """N [C]: idle GPUs"""
    left: Floats
    """T · Π [S]: samples still to do, T epochs of Π samples"""
    held_back: str = ""
    """why no job is started, in words; empty: jobs are started"""

    def demand(self, job: int) -> tuple[int, ...]:
        """The counts of the job's demand that its types have enough idle GPUs for."""
        most = int(self.supply[self.rate[job] > 0].sum())
        return tuple(count for count in self.jobs[job].demand if count <= most)

    @property
    def usable(self) -> int:
        """How many GPUs the jobs can use together, if each has its largest demand."""
        needs: dict[frozenset[int], int] = {}
        for job, rates in enumerate(self.rate):
            kinds = frozenset(np.flatnonzero(rates > 0).tolist())
            needs[kinds] = needs.get(kinds, 0) + self.demand(job)[-1]
        return placeable_gpus(needs, self.supply.tolist())

    @property
    def held(self) -> list[Configuration]:
        """By job: the GPUs that it has now."""
        return [_held(job) for job in self.jobs]

    def gpus_by_type(self, gang: Gang) -> tuple[int, ...]:
        """The gang's GPUs by type, in the order of `types`."""
        found = dict.fromkeys(self.types, 0)
        for one in gang.members:
            found[self.type_of[one.node]] += one.gpus
        return tuple(found.values())

    def rates(self, job: int) -> dict[NodeId, float]:
        """Samples/s of one GPU, by node."""
        of_type = dict(zip(self.types, self.rate[job].tolist(), strict=True))
        return {node.node_id: of_type[node.gpu_type] for node in self.nodes}

    def market(self, *, weighted: bool = False) -> WorkerMarket:
        kinds = {node.node_id: self.types.index(node.gpu_type) for node in self.nodes}
        held = np.zeros(self.rate.shape, dtype=np.int32)
        for job, place in enumerate(self.held):
            for node_id, gpus in place.items():
                if node_id in kinds:
                    held[job, kinds[node_id]] += gpus
        return WorkerMarket(rate=self.rate, supply=self.supply, left=self.left, held=held, weighted=weighted)

    def waiting(self, placed: Sequence[JobId]) -> Iterator[Left]:
        """Why each other job is left out, in the order of submission."""
        has = {choice.job_id for choice in self.kept}.union(placed)
        yield from (self._left(job) for job in self.view.jobs if job.job_id not in has)

    def _left(self, job: ViewJob) -> Left:
        if not _can_run(job, self.view.nodes):
            return Left(job_id=job.job_id, reason=Waiting.NO_CONFIGURATION)
        return Left(job_id=job.job_id, reason=Waiting.OUTWEIGHED, detail=self.held_back)


def scene(view: View, *, static: bool, held_back: str = "") -> Scene:
    """The input of a reset. `static`: running jobs keep their GPUs.

    `held_back`: why no job is started, either, in words; empty: jobs are started.
    """
    stayers, free = kept(view, everything=static or bool(held_back))
    nodes = tuple(msgspec.structs.replace(node, idle=free[node.node_id]) for node in view.nodes)
    nodes = tuple(node for node in nodes if node.idle > 0)
    types = tuple(sorted({node.gpu_type for node in nodes}))
    supply = np.array(
        [sum(node.idle for node in nodes if node.gpu_type == name) for name in types], dtype=np.int32
    )
    stays = {choice.job_id for choice in stayers}
    others = [] if held_back else [job for job in view.jobs if job.job_id not in stays]
    rates = [_rates(job, types) for job in others]
    needs = [
        (frozenset(np.flatnonzero(rate > 0).tolist()), job.demand[0])
        for job, rate in zip(others, rates, strict=True)
    ]
    chosen = taking_part(needs, supply.tolist())
    left = np.array([max(others[one].samples - others[one].samples_done, 1.0) for one in chosen])
    rate = np.array([rates[one] for one in chosen]).reshape(len(chosen), len(types))
    order = np.argsort(left / (rate @ supply), kind="stable") if chosen else np.empty(0, dtype=np.int64)
    return Scene(
        view=view,
        kept=stayers,
        jobs=tuple(others[chosen[one]] for one in order),
        nodes=nodes,
        types=types,
        type_of={node.node_id: node.gpu_type for node in nodes},
        rate=rate[order],
        supply=supply,
        left=left[order],
        held_back=held_back,
    )


def _rates(job: ViewJob, types: Sequence[GpuType]) -> Floats:
    known = [job.single_gpu.get(name, 0.0) if name in job.gpu_types else 0.0 for name in types]
    return np.array(known, dtype=np.float64)


def _held(job: ViewJob) -> Configuration:
    return job.present.gang.configuration if job.present is not None else {}


def _can_run(job: ViewJob, nodes: Sequence[ViewNode]) -> bool:
    """Whether the job's smallest demand has room on its types, if no other job is there."""
    types = {name for name in job.gpu_types if job.single_gpu.get(name, 0.0) > 0}
    return job.demand[0] <= sum(node.gpus for node in nodes if node.gpu_type in types)
