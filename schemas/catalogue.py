"""Models, data sets, GPUs and servers of the emulated world, and mixes from which workloads are drawn.

Also the format of a user's own file. The files in `loadgen/catalogue/` give units and sources.
"""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from schemas.base import File
from schemas.ids import GpuType
from schemas.jobs import Count, Positive

Portion = Annotated[float, Meta(gt=0, le=1)]
Title = Annotated[str, Meta(min_length=1, max_length=200)]


class Model(File, frozen=True, kw_only=True):
    """A model on a data set."""

    model: Title
    dataset: Title
    batch: Count
    """samples per GPU"""
    optimizer: Literal["sgd", "adam", "adamw"]
    learning_rate: Positive
    parameters: Positive
    forward: Positive
    """FLOPs per sample of a forward pass"""
    activations: Positive
    """bytes per sample that are kept for the backward pass, at 32 bit"""
    kernels: Count
    """number of GPU kernels in a forward pass"""
    efficiency: Portion
    """share of a GPU's sustained FLOP/s that this model's large kernels reach"""
    loop: Annotated[float, Meta(ge=0)] = 0.0
    """seconds of a reference core that the script spends in every iteration besides launching kernels:
    Python, metrics, logging"""
    convolutions: bool = False
    """whether its large kernels are convolutions"""
    precision: Literal["fp32", "tf32", "fp16"]
    pattern: Literal[1, 2]
    """1: data loading overlaps the backward pass; 2: it does not"""
    source: str = ""

    @property
    def gradient_bytes(self) -> float:
        """Bytes of all gradients, which are exchanged at 32 bit whatever the precision of the arithmetic."""
        return 4.0 * self.parameters


class Dataset(File, frozen=True, kw_only=True):
    samples: Annotated[int, Meta(ge=1, le=1_000_000_000)]
    """samples in an epoch"""
    disk: Positive
    """bytes read per sample"""
    input: Positive
    """bytes per sample that go to the GPU"""
    decode: Positive
    """seconds of a reference core to decode a sample"""
    loading: Literal["stable", "unstable"]
    memory: Literal["pinned", "pageable"] = "pinned"
    """kind of host memory from which batches are sent; `pageable` if the script writes each batch into new
    memory"""
    source: str = ""


class Gpu(File, frozen=True, kw_only=True):
    fp32: Positive
    """peak FLOP/s, as are `tf32` and `fp16`"""
    tf32: Positive | None = None
    fp16: Positive | None = None
    memory: Positive
    """bytes"""
    bandwidth: Positive
    """bytes/s"""
    sustained: Portion
    """share of the peak that long kernels sustain"""
    sustained_tf32: Portion | None = None
    """the same on tensor cores; left out: as `sustained`"""
    convolutions: Positive = 1.0
    """share of its peak that convolutions reach, relative to that on a V100"""
    kernel: Positive = 4e-6
    """seconds that a kernel takes at least, however small its work"""
    source: str = ""

    def peak(self, precision: str) -> float:
        """Peak FLOP/s at a precision, or at 32 bit if the GPU does not support the precision."""
        return {"tf32": self.tf32, "fp16": self.fp16}.get(precision) or self.fp32

    def held(self, precision: str) -> float:
        """FLOP/s that long kernels sustain at a precision."""
        on_tensor_cores = {"tf32": self.tf32, "fp16": self.fp16}.get(precision)
        return self.peak(precision) * ((on_tensor_cores and self.sustained_tf32) or self.sustained)


class Server(File, frozen=True, kw_only=True):
    cores: Count
    speed: Positive
    """speed of a core, relative to the reference core"""
    copy: Positive
    """bytes/s from host memory to a GPU"""
    pageable: Positive = 2.5e9
    """bytes/s at which a script copies a batch into new memory and sends it"""
    disk: Positive
    """bytes/s"""
    source: str = ""


Bounds = tuple[Positive, Positive]


class SizeClass(File, frozen=True, kw_only=True):
    """A class of jobs by size, for a mix."""

    hours: Bounds
    """least and most GPU-hours of a job, at the cluster's mean speed"""
    gpus: tuple[Count, Count]
    """least and most GPUs that a job asks for"""
    choices: tuple[Count, Count]
    """least and most GPU counts that a job lists"""


class MixEntry(File, frozen=True, kw_only=True):
    model: Title
    dataset: Title
    size: Title
    """name of its class in `sizes`"""
    weight: Positive = 1.0
    """relative frequency among the jobs"""
    gpus_most: Annotated[int, Meta(ge=1)] | None = None
    """most GPUs that its jobs may use, whatever the class or the trace says; null: no limit"""


class Mix(File, frozen=True, kw_only=True):
    """The models of a workload, the sizes of their jobs, and the GPUs that they ask for."""

    longest_h: Positive
    """hours within which a job would end on its largest GPU count, if sharing work among GPUs cost nothing"""
    sizes: dict[Title, SizeClass]
    jobs: Annotated[list[MixEntry], Meta(min_length=1)]
    source: str = ""

    def size_of(self, entry: MixEntry) -> SizeClass:
        return self.sizes[entry.size]

    def of_size(self, gpu_hours: float) -> "Mix":
        """The mix with one class only: the smallest that is large enough for the job, else the largest."""
        used = {entry.size for entry in self.jobs}
        by_most = sorted(used, key=lambda name: self.sizes[name].hours[1])
        own = next((name for name in by_most if gpu_hours <= self.sizes[name].hours[1]), by_most[-1])
        return msgspec.structs.replace(self, jobs=[entry for entry in self.jobs if entry.size == own])

    def entry(self, model: str, dataset: str) -> MixEntry | None:
        return next((e for e in self.jobs if (e.model, e.dataset) == (model, dataset)), None)


class Speeds(File, frozen=True, kw_only=True):
    """Measured speeds of a model, which the world `table` uses."""

    model: Title
    dataset: Title
    batch: Count | None = None
    """samples per GPU of the jobs that have these speeds; left out: jobs of the model whose batch has no
    entry"""
    parameters: Positive
    exchange: Literal["epoch", "iteration"] = "epoch"
    """how often gradients are exchanged"""
    rates: Annotated[dict[GpuType, Positive], Meta(min_length=1)]
    """samples/s of one GPU alone"""
    profile_error: Annotated[float, Meta(ge=0, lt=1)] = 0.0
    """largest relative error of a profiled rate; the error is drawn for each profile"""
    source: str = ""


class CatalogueFile(File, frozen=True, kw_only=True):
    """Entries besides those that ship with hopyard; an entry with a shipped name replaces the shipped one."""

    models: list[Model] = msgspec.field(default_factory=list)
    """an entry of the same model and data set replaces the shipped one"""
    datasets: dict[Title, Dataset] = msgspec.field(default_factory=dict)
    gpus: dict[GpuType, Gpu] = msgspec.field(default_factory=dict)
    """by the GPU type that a cluster file names"""
    servers: dict[Title, Server] = msgspec.field(default_factory=dict)
    """by the server model that a cluster file names"""
    mixes: dict[Title, Mix] = msgspec.field(default_factory=dict)
    """by the name that a scenario's workload refers to"""
    speeds: list[Speeds] = msgspec.field(default_factory=list)
    """speeds of the world `table`; an entry of the same model, data set and batch replaces the shipped one"""


NOTHING_MORE = CatalogueFile()
"""the shipped entries alone"""
