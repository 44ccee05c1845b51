"""What a plan of Hare is about: single GPUs, and jobs in the order of their weighted length. Pure."""

import math
from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from schemas.ids import GpuType, NodeId
from schemas.placement import Relaxed
from services.planner.policies.contract.view import View, ViewJob, ViewNode
from services.planner.policies.hare.blocks import BlockJob
from services.planner.policies.hare.places import HarePlace, places_of
from services.planner.policies.kit.exchange import exchange_s
from services.planner.policies.kit.rigid import Rigid, rigid
from shared.domain.arrays import Floats, Ints

SHORTEST = 1.0
"""rounds that a job has left, at the least"""


class HareJob(msgspec.Struct, frozen=True, kw_only=True):
    seen: ViewJob
    scale: int
    """D: tasks of a round"""
    rounds: float
    """that are left"""
    weighted_s: float
    """GPU-seconds left on its fastest GPU, over its weight"""


class HareScene(msgspec.Struct, frozen=True, kw_only=True):
    nodes: tuple[ViewNode, ...]
    """those that run relaxed gangs and have idle GPUs"""
    owner: Ints
    """[M]: the node of each GPU, by position"""
    queue: tuple[HareJob, ...]
    """the first served first; also those for whom no GPU is idle"""
    places: tuple[HarePlace, ...]
    """where jobs are by now"""

    @property
    def rooms(self) -> list[list[int]]:
        """The GPUs that nobody keeps, then those of each rota that stays and that others may join."""
        kept = {gpu for place in self.places if place.kept for gpu in place.gpus}
        free = [gpu for gpu in range(len(self.owner)) if gpu not in kept]
        return [free, *(list(place.gpus) for place in self.places if place.kept and place.joinable)]

    def task_s(self, job: HareJob) -> Floats:
        """P [M]."""
        by_type = task_seconds(job.seen)
        each = np.array([by_type.get(node.gpu_type, math.inf) for node in self.nodes])
        found: Floats = each[self.owner]
        return found

    def block(self, job: HareJob) -> BlockJob:
        here = next((place for place in self.places if job.seen.job_id in place.tasks), None)
        return BlockJob(
            tasks=job.scale,
            task_s=self.task_s(job),
            exchange_s=lambda tasks: self._exchange_s(job.seen, tasks),
            liked=self._on_own_nodes(job.seen),
            kept=here.tasks[job.seen.job_id] if here and here.kept else {},
        )

    def _on_own_nodes(self, job: ViewJob) -> frozenset[int]:
        own = job.present.gang.nodes if job.present is not None else ()
        numbers = [number for number, node in enumerate(self.nodes) if node.node_id in own]
        return frozenset(np.flatnonzero(np.isin(self.owner, numbers)).tolist()) if numbers else frozenset()

    def _exchange_s(self, job: ViewJob, tasks: Ints) -> float:
        on = self.owner[np.flatnonzero(tasks)]
        used = [self.nodes[number] for number in sorted(set(on.tolist()))]
        apart = len(used) > 1
        bandwidth = min(node.network_bandwidth if apart else node.link_bandwidth for node in used)
        return exchange_s(job.gradient_bytes, len(on), bandwidth)

    def place(self, gpus: Sequence[int]) -> dict[NodeId, list[int]]:
        """GPUs of a rota by node, nodes in the order of their ids; each as its position in `gpus`."""
        found: dict[NodeId, list[int]] = {}
        for position, gpu in enumerate(gpus):
            found.setdefault(self.nodes[self.owner[gpu]].node_id, []).append(position)
        return dict(sorted(found.items()))


def task_seconds(job: ViewJob) -> Mapping[GpuType, float]:
    """P by GPU type on which the job can run."""
    rates = {name: job.single_gpu.get(name, 0.0) for name in job.gpu_types}
    return {name: job.batch_size / rate for name, rate in rates.items() if rate > 0}


def hare_scene(view: View, rule: Rigid) -> HareScene:
    able = [node for node in view.nodes if Relaxed.tag() in node.modes]
    nodes = tuple(node for node in able if node.idle > 0)
    types = {node.gpu_type for node in able}
    jobs = [_job(job, task_seconds(job), rule) for job in view.jobs if types & task_seconds(job).keys()]
    return HareScene(
        nodes=nodes,
        owner=np.repeat(np.arange(len(nodes), dtype=np.int32), [node.idle for node in nodes]),
        queue=tuple(sorted(jobs, key=lambda job: (job.weighted_s, job.seen.submitted_at, job.seen.job_id))),
        places=places_of(view, nodes),
    )


def _job(job: ViewJob, task_s: Mapping[GpuType, float], rule: Rigid) -> HareJob:
    scale = rigid(job.demand, rule)
    rounds = max((job.samples - job.samples_done) / (scale * job.batch_size), SHORTEST)
    return HareJob(
        seen=job,
        scale=scale,
        rounds=rounds,
        weighted_s=rounds * scale * min(task_s.values()) / max(job.priority, 1e-9),
    )
