"""The input of a plan of Hare: single GPUs, and the jobs in the order of their weighted length. Pure."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import accumulate

import msgspec
import numpy as np

from schemas.ids import Fingerprint, GpuType, JobId, NodeId
from schemas.placement import Relaxed
from services.planner.policies.contract.view import View, ViewJob, ViewNode
from services.planner.policies.hare.parts import BlockJob, Held
from services.planner.policies.hare.places import HarePlace, places_of
from services.planner.policies.kit.exchange import exchange_s
from services.planner.policies.kit.rigid import Rigid, rigid
from shared.domain.arrays import Ints

SHORTEST = 1.0
"""rounds that a job counts as having left, at least"""


class HareJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job that some node can run."""

    seen: ViewJob
    scale: int
    """D: tasks of a round"""
    rounds: float
    """rounds that are left"""
    weighted_s: float
    """GPU-seconds left on its fastest GPU, over its weight"""


class HareScene(msgspec.Struct, frozen=True, kw_only=True):
    nodes: tuple[ViewNode, ...]
    """those that run relaxed gangs and have idle GPUs"""
    owner: Ints
    """[M]: the node of each GPU, by position"""
    types: tuple[GpuType, ...]
    """those of the nodes"""
    type_of: Mapping[NodeId, GpuType]
    gpus_of: Mapping[NodeId, Sequence[int]]
    queue: tuple[HareJob, ...]
    """by weighted length, the shortest first; jobs whose types have no idle GPU are in it, too"""
    places: tuple[HarePlace, ...]
    """the places that jobs have now"""
    place_of: Mapping[JobId, HarePlace]
    restart_of: Callable[[Fingerprint, GpuType], float]
    """seconds that a job of a workload loses when it restarts"""
    switch_of: Callable[[Fingerprint, GpuType], float]
    """seconds that such a job loses when it starts where its processes stand by"""

    @property
    def gpus(self) -> list[list[int]]:
        """The numbers of the GPUs, by node."""
        return [list(own) for own in self.gpus_of.values()]

    @property
    def held(self) -> list[Held]:
        """The GPUs that jobs hold, in the order of `places`."""
        position = {job.seen.job_id: number for number, job in enumerate(self.queue)}
        return [
            Held(
                gpus=place.gpus,
                jobs=frozenset(position[job_id] for job_id in place.tasks if job_id in position),
                fixed=place.kept,
                open=place.joinable,
            )
            for place in self.places
        ]

    @property
    def kinds(self) -> list[int]:
        """By GPU [M]: its type, as a position in `types`."""
        number = {name: position for position, name in enumerate(self.types)}
        return [number[self.nodes[node].gpu_type] for node in self.owner.tolist()]

    @property
    def alike(self) -> list[int]:
        """By node: equal where an exchange of gradients takes the same time."""
        links = [(node.link_bandwidth, node.network_bandwidth) for node in self.nodes]
        number = {link: position for position, link in enumerate(dict.fromkeys(links))}
        return [number[link] for link in links]

    def task_s(self, job: HareJob, gpus: Iterable[int]) -> dict[int, float]:
        """Seconds of a task on each of these GPUs."""
        by_type = task_seconds(job.seen)
        return {gpu: by_type.get(self.nodes[self.owner[gpu]].gpu_type, math.inf) for gpu in gpus}

    def block(self, job: HareJob) -> BlockJob:
        """The job as `blocks` plans it."""
        seen, by_type = job.seen, task_seconds(job.seen)
        here = self.place_of.get(seen.job_id)
        near = self._gpus_on(seen.warm)
        own = self._gpus_on(seen.present.gang.nodes) if seen.present is not None else near
        return BlockJob(
            tasks=job.scale,
            task_s=[by_type.get(name, math.inf) for name in self.types],
            exchange_s=lambda gpus: self._exchange_s(seen, gpus),
            worth=job.rounds * seen.priority,
            moving_s=self._moving_s(seen, self.restart_of),
            switching_s=self._moving_s(seen, self.switch_of),
            stands_by=lambda gpus: self._stands_by(seen, gpus),
            memory=[seen.memory_share.get(name, 0.0) for name in self.types],
            own_node_gpus=own,
            near=near | own,
            kept=here.tasks[seen.job_id] if here and here.kept else {},
        )

    def _moving_s(self, job: ViewJob, seconds_of: Callable[[Fingerprint, GpuType], float]) -> float:
        there = job.present.gang.nodes if job.present is not None else job.warm
        types = {self.type_of[node_id] for node_id in there if node_id in self.type_of}
        return job.priority * max(map(partial(seconds_of, job.workload), types), default=0.0)

    def _gpus_on(self, nodes: Iterable[NodeId]) -> frozenset[int]:
        return frozenset(gpu for node_id in nodes for gpu in self.gpus_of.get(node_id, ()))

    def _exchange_s(self, job: ViewJob, gpus: Sequence[int]) -> float:
        used = [self.nodes[number] for number in sorted({int(self.owner[gpu]) for gpu in gpus})]
        apart = len(used) > 1
        bandwidth = min(node.network_bandwidth if apart else node.link_bandwidth for node in used)
        return exchange_s(job.gradient_bytes, len(gpus), bandwidth)

    def _stands_by(self, job: ViewJob, gpus: Sequence[int]) -> bool:
        return bool(job.warm) and job.stands_by({on: len(own) for on, own in self.place(gpus).items()})

    def restart_s(self, number: int, gpus: Sequence[int]) -> float:
        """Seconds that the job loses if it starts on these GPUs, times its weight."""
        job = self.queue[number].seen
        return self._moving_s(job, self.switch_of if self._stands_by(job, gpus) else self.restart_of)

    def place(self, gpus: Sequence[int]) -> dict[NodeId, list[int]]:
        """By node, in the order of ids: the positions in `gpus` of the GPUs that are there."""
        found: dict[NodeId, list[int]] = {}
        for position, gpu in enumerate(gpus):
            found.setdefault(self.nodes[self.owner[gpu]].node_id, []).append(position)
        return dict(sorted(found.items()))


def task_seconds(job: ViewJob) -> Mapping[GpuType, float]:
    """Seconds of a task on each GPU type on which the job can run."""
    rates = {name: job.single_gpu.get(name, 0.0) for name in job.gpu_types}
    return {name: job.batch_size / rate for name, rate in rates.items() if rate > 0}


def hare_scene(view: View, rule: Rigid) -> HareScene:
    """The input of a plan for the view; `rule`: which count of its demand is a job's D."""
    able = [node for node in view.nodes if Relaxed.tag() in node.modes]
    nodes = tuple(node for node in able if node.idle > 0)
    types = {node.gpu_type for node in able}
    jobs = [_job(job, task_seconds(job), rule) for job in view.jobs if types & task_seconds(job).keys()]
    places, ends = places_of(view, nodes), accumulate([node.idle for node in nodes], initial=0)
    return HareScene(
        nodes=nodes,
        owner=np.repeat(np.arange(len(nodes), dtype=np.int32), [node.idle for node in nodes]),
        types=tuple(dict.fromkeys(node.gpu_type for node in nodes)),
        type_of={node.node_id: node.gpu_type for node in nodes},
        gpus_of={
            node.node_id: range(first, first + node.idle) for node, first in zip(nodes, ends, strict=False)
        },
        queue=tuple(sorted(jobs, key=lambda job: (job.weighted_s, job.seen.submitted_at, job.seen.job_id))),
        places=places,
        place_of={job_id: place for place in places for job_id in place.tasks},
        restart_of=view.restart_of,
        switch_of=view.switch_of,
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
