"""Builds the data of an assignment from a view and its estimates. Pure."""

import math
from collections.abc import Collection, Mapping, Sequence

import msgspec
import numpy as np

from schemas.ids import GpuType, NodeId
from schemas.placement import Forked, Lockstep
from schemas.plans import Layer
from schemas.questions import LAYERS
from services.planner.policies.contract.configurations import Configurations
from services.planner.policies.contract.estimates import Estimated
from services.planner.policies.contract.view import View, ViewJob, ViewNode
from services.planner.policies.hadare.forking import NOWHERE, Forking
from services.planner.policies.hadare.horizon import Batch
from services.planner.policies.kit.completion import Utility, scales
from services.planner.policies.kit.known_jobs import count
from services.planner.policies.kit.rigid import Rigid
from shared.domain.arrays import Flags, Floats, Ints

MEASURED = [LAYERS.index(Layer.ENTITY), LAYERS.index(Layer.TYPE)]
"""layers of estimates that were measured"""
NODES_APART = 16
"""nodes up to which the bound on the makespan distinguishes each; with more, only their types"""


class CopySpeeds(msgspec.Struct, frozen=True):
    """The speeds of copies by job and node (m, n)."""

    speed: Floats
    """samples/s; 0 where a copy cannot run, or nothing is known"""
    layer: Ints
    """index into `LAYERS`, of each estimate"""

    @property
    def guessed(self) -> Flags:
        """Where the speed is not measured."""
        return ~np.isin(self.layer, MEASURED)


def copies_of(view: View, rule: Rigid) -> list[ViewJob]:
    """The jobs that fit a node, with one GPU count each, and only the types that have such a node."""
    everywhere = _largest(view.nodes)
    jobs = [
        _copy(job, _largest(view.nodes, job.unfit) if job.unfit else everywhere, rule) for job in view.jobs
    ]
    return [job for job in jobs if job.demand]


def _largest(nodes: Sequence[ViewNode], unfit: Collection[NodeId] = ()) -> dict[GpuType, int]:
    """By type: GPUs of its largest node, without the nodes `unfit`."""
    largest: dict[GpuType, int] = {}
    for node in nodes:
        if node.node_id not in unfit:
            largest[node.gpu_type] = max(node.gpus, largest.get(node.gpu_type, 0))
    return largest


def _copy(job: ViewJob, largest: Mapping[GpuType, int], rule: Rigid) -> ViewJob:
    gpus = count(job, largest, rule)
    types = tuple([name for name in job.gpu_types if gpus and largest.get(name, 0) >= gpus])
    return msgspec.structs.replace(job, demand=(gpus,) if gpus else (), gpu_types=types)


def table_of(
    wanted: Configurations, estimates: Estimated, jobs: Sequence[ViewJob], nodes: Sequence[ViewNode]
) -> CopySpeeds:
    """The speeds of the jobs' copies. `wanted`: the configurations of these jobs, each on one node."""
    position = {node.node_id: index for index, node in enumerate(nodes)}
    own = np.array([position[name] for name in wanted.nodes], dtype=np.int32)
    shape = len(wanted.jobs), len(nodes)
    speed, layer = np.zeros(shape), np.zeros(shape, dtype=np.int32)
    if len(wanted):
        cells = wanted.job, own[wanted.node[wanted.start[:-1]]]
        speed[cells] = np.nan_to_num(estimates.throughput)
        layer[cells] = estimates.layer
    for index, job in enumerate(jobs):
        speed[index, [position[name] for name in job.unfit if name in position]] = 0.0
    return CopySpeeds(speed, layer)


def runs_forked(nodes: Sequence[ViewNode]) -> Flags:
    """By node: whether it runs copies."""
    return np.array([Forked.tag() in node.modes for node in nodes], dtype=np.bool_)


def forking_of(
    view: View, jobs: Sequence[ViewJob], speed: Floats, most: Sequence[int], utility: Utility, *, rests: bool
) -> Forking:
    """The data of an assignment of these jobs.

    `most`: copies of each job at most; `rests`: a job may stay on the one node where it runs unforked.
    """
    members = [(job, _nodes(job, view)) for job in jobs]
    forks = runs_forked(view.nodes)
    samples = np.array([job.samples for job in jobs])
    here = np.zeros(speed.shape, dtype=np.bool_)
    for index, (_, own) in enumerate(members):
        here[index, own] = True
    return Forking(
        speed=speed,
        gpus=_ints([job.demand[0] for job in jobs]),
        idle=_ints([node.idle for node in view.nodes]),
        most=_ints(most),
        scale=scales(utility, samples, _mean_speed(speed, view.nodes))
        * np.array([job.priority for job in jobs]),
        elapsed=np.array([view.at - job.submitted_at for job in jobs]),
        left=np.array([max(job.samples - job.samples_done, job.batch_size) for job in jobs]),
        start_s=np.array([_start_s(job, view) for job in jobs]),
        copy_s=np.array([job.gradient_bytes for job in jobs]) * 2 / _tracker_bandwidth(view.nodes),
        period_s=np.array([view.round_s if job.preemptible else math.inf for job in jobs]),
        lone_merges=not rests,
        home=_ints([_home(job, own) if rests or not forks[own].all() else NOWHERE for job, own in members]),
        here=here,
        forks=forks,
    )


def batch_of(forking: Forking, nodes: Sequence[ViewNode]) -> Batch:
    """The jobs and kinds of nodes for the bound on the makespan.

    A kind is a node; where there are more than `NODES_APART`, it is a type, with the speed of its fastest
    node, so that the bound still holds.
    """
    if len(nodes) <= NODES_APART:
        kinds = [[index] for index in range(len(nodes))]
    else:
        types = [node.gpu_type for node in nodes]
        kinds = [[i for i, own in enumerate(types) if own == name] for name in sorted(set(types))]
    able = (forking.speed > 0) & (np.array([node.gpus for node in nodes]) >= forking.gpus[:, None])
    return Batch(
        speed=np.stack([np.where(able[:, own], forking.speed[:, own], 0.0).max(axis=1) for own in kinds], 1),
        left=forking.left,
        gpus=forking.gpus,
        capacity=_ints([sum(nodes[index].gpus for index in own) for own in kinds]),
        most=forking.most,
        most_on=np.stack([able[:, own].sum(axis=1) for own in kinds], 1).astype(np.int32),
    )


def _mean_speed(speed: Floats, nodes: Sequence[ViewNode]) -> Floats:
    """By job: the mean speed of a copy, over the GPUs of the nodes that it can run on."""
    gpus = (speed > 0) * np.array([node.gpus for node in nodes])
    mean: Floats = (speed * gpus).sum(axis=1) / gpus.sum(axis=1)
    return mean


def _start_s(job: ViewJob, view: View) -> float:
    """Seconds of a checkpoint and a start, on the slowest type: all copies wait for the slowest."""
    return max(view.restart_of(job.workload, name) for name in job.gpu_types)


def _tracker_bandwidth(nodes: Sequence[ViewNode]) -> float:
    """Bytes/s at which the copies' weights reach the node that merges them, one copy after another."""
    return min((node.network_bandwidth for node in nodes), default=math.inf)


def _nodes(job: ViewJob, view: View) -> list[int]:
    """Positions of the nodes where the job has GPUs."""
    names = job.present.gang.nodes if job.present is not None else ()
    return [index for index, node in enumerate(view.nodes) if node.node_id in names] if names else []


def _home(job: ViewJob, own: Sequence[int]) -> int:
    """The one node on which the job runs unforked, or NOWHERE. `own`: the nodes where it has GPUs."""
    gang = job.present.gang if job.present is not None else None
    if gang is None or not own or type(gang.sync) is not Lockstep:
        return NOWHERE
    return own[0] if len(gang.members) == 1 and gang.gpus == job.demand[0] else NOWHERE


def _ints(values: Sequence[int]) -> Ints:
    return np.array(values, dtype=np.int32)
