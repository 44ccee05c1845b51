"""Speed and memory by the catalogue's figures: arithmetic only, no randomness, no difference between servers.

Forward time of a batch of B samples, by a roofline in two parts (the large kernels of a network are bound
by arithmetic, those between them by memory, and they alternate):

    T_f = max(B·flops / (held·efficiency) + B·traffic / (0.8·bandwidth) + kernels·kernel, launch)

The backward pass does twice the work of the forward pass. What the script does besides stands in the update.
"""

import msgspec

from schemas.catalogue import Dataset, Gpu, Model, Server

TRAFFIC = 2.0
"""bytes that a forward pass moves per byte of activations it keeps: each is written once and read once"""
MEMORY_SHARE = 0.8
"""share of the nominal memory bandwidth that streaming kernels reach"""
LAUNCH_S = 7e-6
"""host time of one eager kernel launch, forward, on a core of speed 1"""
BACKWARD_LAUNCHES = 1.4
"""host time of the backward pass in units of the forward pass: more kernels, cheaper to launch"""
CONTEXT_BYTES = 0.7e9
"""bytes of a process beside its model: CUDA context, cuDNN workspace, fragmentation"""
OPTIMIZER = {"sgd": (12.0, 20.0), "adam": (16.0, 28.0), "adamw": (16.0, 28.0)}
"""bytes per parameter: kept (weights, gradients, moments), and moved by one update"""
UPDATE_FIXED_S = 4e-4


class Compute(msgspec.Struct, frozen=True):
    """Seconds a batch takes on one GPU, and the host's part in it."""

    forward_s: float
    backward_s: float
    update_s: float
    launch_s: float
    """host time of the forward launches: the forward pass takes at least as long"""

    @property
    def total_s(self) -> float:
        return self.forward_s + self.backward_s + self.update_s


class DataTimes(msgspec.Struct, frozen=True):
    """Data time of one process: two components (Hops eq. 3), seconds."""

    hit_s: float
    """the batch is ready in memory"""
    miss_s: float
    """the batch is still being read and decoded"""
    miss_share: float

    @property
    def mean_s(self) -> float:
        return self.hit_s + self.miss_share * (self.miss_s - self.hit_s)


def compute(model: Model, gpu: Gpu, batch: int, speed: float) -> Compute:
    """`speed`: of a host core, relative to the reference."""
    reached = model.efficiency * (gpu.convolutions if model.convolutions else 1.0)
    flops_s = batch * model.forward / (gpu.held(model.precision) * reached)
    memory_s = batch * TRAFFIC * model.activations / (MEMORY_SHARE * gpu.bandwidth)
    gpu_s = flops_s + memory_s + model.kernels * gpu.kernel
    launch_s = model.kernels * LAUNCH_S / speed
    _, moved = OPTIMIZER[model.optimizer]
    moving_s = model.parameters * moved / (MEMORY_SHARE * gpu.bandwidth)
    return Compute(
        forward_s=max(gpu_s, launch_s),
        backward_s=max(2 * gpu_s, BACKWARD_LAUNCHES * launch_s),
        update_s=(UPDATE_FIXED_S + model.loop) / speed + moving_s,
        launch_s=launch_s,
    )


def memory_bytes(model: Model, batch: int) -> float:
    kept, _ = OPTIMIZER[model.optimizer]
    return CONTEXT_BYTES + kept * model.parameters + batch * model.activations


def fits(model: Model, gpu: Gpu, batch: int) -> bool:
    return memory_bytes(model, batch) <= gpu.memory


def loading(
    dataset: Dataset, server: Server, *, batch: int, gpus: int, step_s: float, speed: float
) -> DataTimes:
    """Data time of a process that has a GPU's share of the host and computes `step_s` a batch.

    `load` is how much of that share the process needs to keep up. An unstable loader misses rarely
    while it has slack, and with every second batch or so when it has none.
    """
    sent = server.copy if dataset.memory == "pinned" else server.pageable
    hit_s = 3e-4 / speed + batch * dataset.input / sent
    decode_s = batch * dataset.decode / (server.cores / gpus * speed)
    if dataset.loading == "stable":
        late_s = max(decode_s - step_s, 0.0)
        return DataTimes(hit_s + late_s, hit_s + late_s, 0.0)
    load = decode_s / step_s
    read_s = batch * dataset.disk / (server.disk / gpus)
    return DataTimes(hit_s, hit_s + decode_s + read_s, 0.03 + 0.6 * load**3 / (1 + load**3))


def iteration_s(pattern: int, data_s: float, times: Compute) -> float:
    """One GPU, nothing to communicate: Hops eq. 1 without T_c and T_w."""
    tail_s = times.backward_s + times.update_s
    return times.forward_s + (max(data_s, tail_s) if pattern == 1 else data_s + tail_s)
