"""The catalogue as typed specifications: read once from the files that ship with the package."""

from difflib import get_close_matches
from functools import cache
from importlib import resources
from typing import Annotated, Literal

from msgspec import Meta

from schemas.base import File
from schemas.ids import GpuType
from schemas.jobs import Count, Positive, Workload
from shared.runtime.files import T, parse

Portion = Annotated[float, Meta(gt=0, le=1)]


class Model(File, frozen=True, kw_only=True):
    """A model on a data set. Units stand at the top of `models.yaml`."""

    model: str
    dataset: str
    batch: Count
    optimizer: Literal["sgd", "adam", "adamw"]
    learning_rate: Positive
    parameters: Positive
    forward: Positive
    activations: Positive
    kernels: Count
    efficiency: Portion
    precision: Literal["fp32", "tf32", "fp16"]
    pattern: Literal[1, 2]
    source: str

    @property
    def gradient_bytes(self) -> float:
        """Gradients are reduced at 32 bit, whatever the precision of the arithmetic."""
        return 4.0 * self.parameters


class Dataset(File, frozen=True, kw_only=True):
    samples: Count | Annotated[int, Meta(ge=1, le=1_000_000_000)]
    disk: Positive
    input: Positive
    decode: Positive
    loading: Literal["stable", "unstable"]
    source: str


class Gpu(File, frozen=True, kw_only=True):
    fp32: Positive
    tf32: Positive | None = None
    fp16: Positive | None = None
    memory: Positive
    bandwidth: Positive
    sustained: Portion
    source: str

    def peak(self, precision: str) -> float:
        """FLOP/s at a precision; 32 bit where the card has no better."""
        return {"tf32": self.tf32, "fp16": self.fp16}.get(precision) or self.fp32


class Server(File, frozen=True, kw_only=True):
    cores: Count
    speed: Positive
    copy: Positive
    disk: Positive
    source: str


class UnknownWorkload(LookupError):
    """The catalogue has no such model, data set or GPU; the text says which."""


@cache
def models() -> dict[tuple[str, str], Model]:
    """By model and data set."""
    return {(row.model, row.dataset): row for row in _read("models.yaml", list[Model])}


@cache
def datasets() -> dict[str, Dataset]:
    return _read("datasets.yaml", dict[str, Dataset])


@cache
def gpus() -> dict[GpuType, Gpu]:
    return _read("gpus.yaml", dict[GpuType, Gpu])


@cache
def servers() -> dict[str, Server]:
    return _read("servers.yaml", dict[str, Server])


def model_of(workload: Workload) -> Model:
    """Raises UnknownWorkload."""
    try:
        return models()[workload.model, workload.dataset]
    except KeyError:
        raise UnknownWorkload(_unknown(workload)) from None


def _unknown(workload: Workload) -> str:
    """With what may have been meant: the same model on other data, or models of like names."""
    text = f"the emulated world has no {workload.model} on {workload.dataset}"
    names = sorted({model for model, _ in models()})
    meant = get_close_matches(workload.model, names, n=1 if workload.model in names else 3)
    there = [f"{model} on {dataset}" for model, dataset in models() if model in meant]
    return f"{text}; it has {', '.join(there)}" if there else text


def gpu_of(gpu_type: GpuType) -> Gpu:
    """Raises UnknownWorkload."""
    try:
        return gpus()[gpu_type]
    except KeyError:
        raise UnknownWorkload(f"no facts about the GPU type {gpu_type}") from None


def server_of(name: str) -> Server:
    """A server model nobody described is like the generic one."""
    return servers().get(name) or servers()["generic"]


def _read(name: str, kind: type[T]) -> T:
    return parse(resources.files(__package__).joinpath(name).read_text("utf-8"), f"catalogue/{name}", kind)
