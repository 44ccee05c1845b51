"""What an emulated world knows, and mixes that workloads are drawn from: also the form of a user's own file.

Units stand at the top of the files in `loadgen/catalogue/`.
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
    """launched in a forward pass"""
    efficiency: Portion
    """share of what a GPU sustains that this model's large kernels reach"""
    loop: Annotated[float, Meta(ge=0)] = 0.0
    """seconds of a reference core that the script takes in every iteration besides launching kernels: Python,
    metrics, logging"""
    convolutions: bool = False
    """whether its large kernels are convolutions"""
    precision: Literal["fp32", "tf32", "fp16"]
    pattern: Literal[1, 2]
    """1 overlaps loading with the backward pass, 2 does not"""
    source: str = ""

    @property
    def gradient_bytes(self) -> float:
        """Gradients are reduced at 32 bit, whatever the precision of the arithmetic."""
        return 4.0 * self.parameters


class Dataset(File, frozen=True, kw_only=True):
    samples: Annotated[int, Meta(ge=1, le=1_000_000_000)]
    """in an epoch"""
    disk: Positive
    """bytes read per sample"""
    input: Positive
    """bytes per sample that go to the GPU"""
    decode: Positive
    """seconds of a reference core per sample"""
    loading: Literal["stable", "unstable"]
    memory: Literal["pinned", "pageable"] = "pinned"
    """host memory that a batch is sent from: `pageable` where the script itself writes each batch anew"""
    source: str = ""


class Gpu(File, frozen=True, kw_only=True):
    fp32: Positive
    """FLOP/s, as `tf32` and `fp16`"""
    tf32: Positive | None = None
    fp16: Positive | None = None
    memory: Positive
    """bytes"""
    bandwidth: Positive
    """bytes/s"""
    sustained: Portion
    """share of the peak that long kernels hold"""
    sustained_tf32: Portion | None = None
    """share of the peak on tensor cores; left out: as `sustained`"""
    convolutions: Positive = 1.0
    """how near its peak convolutions come, in units of what models reach on a V100"""
    kernel: Positive = 4e-6
    """seconds that a kernel takes at least, however small its work"""
    source: str = ""

    def peak(self, precision: str) -> float:
        """FLOP/s at a precision; 32 bit where the card has no better."""
        return {"tf32": self.tf32, "fp16": self.fp16}.get(precision) or self.fp32

    def held(self, precision: str) -> float:
        """FLOP/s that long kernels hold at a precision."""
        on_tensor_cores = {"tf32": self.tf32, "fp16": self.fp16}.get(precision)
        return self.peak(precision) * ((on_tensor_cores and self.sustained_tf32) or self.sustained)


class Server(File, frozen=True, kw_only=True):
    cores: Count
    speed: Positive
    """of a core, relative to the reference"""
    copy: Positive
    """bytes/s from host memory to a GPU"""
    pageable: Positive = 2.5e9
    """bytes/s at which a script writes a batch anew and sends it"""
    disk: Positive
    """bytes/s"""
    source: str = ""


Bounds = tuple[Positive, Positive]


class SizeClass(File, frozen=True, kw_only=True):
    """Of the jobs in a mix."""

    hours: Bounds
    """GPU-hours at the cluster's mean speed"""
    gpus: tuple[Count, Count]
    """how few and how many a job asks for"""
    choices: tuple[Count, Count]
    """how few and how many GPU counts a job lists"""


class MixEntry(File, frozen=True, kw_only=True):
    model: Title
    dataset: Title
    size: Title
    """a name in `sizes`"""
    weight: Positive = 1.0
    """relative: how many of the jobs"""
    gpus_most: Annotated[int, Meta(ge=1)] | None = None
    """its jobs run on no more GPUs, whatever the class or the trace says"""


class Mix(File, frozen=True, kw_only=True):
    """Which models a workload is made of, how large their jobs are and how many GPUs they ask for."""

    longest_h: Positive
    """the largest count a job lists would finish it within this, if GPUs shared work for nothing"""
    sizes: dict[Title, SizeClass]
    jobs: Annotated[list[MixEntry], Meta(min_length=1)]
    source: str = ""

    def size_of(self, entry: MixEntry) -> SizeClass:
        return self.sizes[entry.size]

    def of_size(self, gpu_hours: float) -> "Mix":
        """With the entries of one class alone: the lowest that such a job is not too large for."""
        used = {entry.size for entry in self.jobs}
        by_most = sorted(used, key=lambda name: self.sizes[name].hours[1])
        own = next((name for name in by_most if gpu_hours <= self.sizes[name].hours[1]), by_most[-1])
        return msgspec.structs.replace(self, jobs=[entry for entry in self.jobs if entry.size == own])

    def entry(self, model: str, dataset: str) -> MixEntry | None:
        return next((e for e in self.jobs if (e.model, e.dataset) == (model, dataset)), None)


class Speeds(File, frozen=True, kw_only=True):
    """How fast a model trains, as measured: what the world `table` goes by."""

    model: Title
    dataset: Title
    batch: Count | None = None
    """the speeds are of jobs with so many samples per GPU; left out: of all jobs that have no row of their
    own"""
    parameters: Positive
    exchange: Literal["epoch", "iteration"] = "epoch"
    """how often gradients are exchanged"""
    rates: Annotated[dict[GpuType, Positive], Meta(min_length=1)]
    """samples/s of one GPU alone"""
    profile_error: Annotated[float, Meta(ge=0, lt=1)] = 0.0
    """largest relative error of a rate that profiling shows; drawn for each profile"""
    source: str = ""


class CatalogueFile(File, frozen=True, kw_only=True):
    """Entries beside those that ship with the product; one of a known name replaces it."""

    models: list[Model] = msgspec.field(default_factory=list)
    """an entry of the same model and data set replaces the shipped one"""
    datasets: dict[Title, Dataset] = msgspec.field(default_factory=dict)
    gpus: dict[GpuType, Gpu] = msgspec.field(default_factory=dict)
    """by the type that a cluster file names"""
    servers: dict[Title, Server] = msgspec.field(default_factory=dict)
    """by the server that a cluster file names"""
    mixes: dict[Title, Mix] = msgspec.field(default_factory=dict)
    """by the name that a scenario's workload gives"""
    speeds: list[Speeds] = msgspec.field(default_factory=list)
    """speeds of the world `table`; an entry of the same model, data set and batch replaces the shipped one"""


NOTHING_MORE = CatalogueFile()
"""the shipped entries alone"""
