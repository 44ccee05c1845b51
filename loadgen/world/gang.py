"""How long each process of a gang takes for each part of an iteration, before any noise."""

from functools import lru_cache

import msgspec
import numpy as np
from numpy.typing import NDArray

from loadgen.catalogue.specs import Catalogue, UnknownWorkload
from loadgen.catalogue.timing import Compute, DataTimes, compute, fits, loading, memory_bytes
from loadgen.world.servers import traits
from schemas.catalogue import Model
from schemas.cluster import Node
from schemas.jobs import Workload
from services.agent.work.world import DoesNotFit
from shared.domain.gangs import Batches

Vector = NDArray[np.float64]


class GpuProcess(msgspec.Struct, frozen=True):
    """The process of one GPU, as it runs alone."""

    model: Model
    times: Compute
    data: DataTimes


class ProcessTimes(msgspec.Struct, frozen=True):
    """Seconds, one entry per process; nodes are in the gang's order."""

    model: Model
    forward_s: Vector
    backward_s: Vector
    update_s: Vector
    hit_s: Vector
    miss_s: Vector
    on_time: Vector | None
    """square root of each process's probability of a cache hit, since a process's own reading and its node's
    disk can each make it late; None: no process is ever late"""
    node: NDArray[np.int64]
    """index of each process's node"""
    reporters: NDArray[np.int64]
    """index of each node's first process"""
    paths: tuple[float, ...]
    """by node, a factor on its bandwidths"""


@lru_cache(maxsize=65_536)
def member(catalogue: Catalogue, seed: int, workload: Workload, node: Node, batch: int) -> GpuProcess:
    """The process of one GPU of a node. `batch`: its samples in an iteration. Raises DoesNotFit."""
    try:
        model, gpu = catalogue.model_of(workload), catalogue.gpu_of(node.gpu_type)
    except UnknownWorkload as error:
        raise DoesNotFit(str(error)) from None
    if not fits(model, gpu, batch):
        needed = memory_bytes(model, batch)
        raise DoesNotFit(
            f"out of memory: {workload.model} with batch {batch} needs {needed / 1e9:.1f} GB, "
            f"{node.gpu_type} has {gpu.memory / 1e9:.1f} GB"
        )
    own, server = traits(seed, node.node_id), catalogue.server_of(node.server)
    speed = server.speed * own.host
    own_server = msgspec.structs.replace(server, disk=server.disk * own.disk)
    own_gpu = msgspec.structs.replace(
        gpu,
        sustained=min(gpu.sustained * own.gpu, 1.0),
        sustained_tf32=gpu.sustained_tf32 and min(gpu.sustained_tf32 * own.gpu, 1.0),
        bandwidth=gpu.bandwidth * own.gpu,
    )
    times = compute(model, own_gpu, batch, speed)
    data = loading(
        catalogue.dataset_of(model),
        own_server,
        batch=batch,
        gpus=node.gpus,
        step_s=times.total_s,
        speed=speed,
    )
    return GpuProcess(model, times, data)


@lru_cache(maxsize=4_096)
def timing(
    catalogue: Catalogue, seed: int, workload: Workload, nodes: tuple[Node, ...], batches: Batches
) -> ProcessTimes:
    """Times of a gang's processes. `batches`: samples of an iteration by node and GPU. Raises DoesNotFit."""
    pairs = list(zip(nodes, batches, strict=True))
    members = [member(catalogue, seed, workload, node, batch) for node, taken in pairs for batch in taken]
    gpus = [len(taken) for taken in batches]
    quiet = np.array([1.0 - one.data.miss_share for one in members])
    return ProcessTimes(
        model=members[0].model,
        forward_s=np.array([one.times.forward_s for one in members]),
        backward_s=np.array([one.times.backward_s for one in members]),
        update_s=np.array([one.times.update_s for one in members]),
        hit_s=np.array([one.data.hit_s for one in members]),
        miss_s=np.array([one.data.miss_s for one in members]),
        on_time=None if quiet.min() >= 1.0 else np.sqrt(quiet),
        node=np.repeat(np.arange(len(nodes)), gpus),
        reporters=np.cumsum([0, *gpus[:-1]]),
        paths=tuple(traits(seed, node.node_id).network for node in nodes),
    )
