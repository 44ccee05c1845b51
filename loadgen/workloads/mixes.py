"""Mixes: which models a workload is made of, how large their jobs are and how many GPUs they ask for."""

from bisect import bisect_right
from functools import cache
from importlib import resources
from itertools import accumulate
from typing import Annotated

from msgspec import Meta

from schemas.base import File
from schemas.jobs import Count, Positive
from shared.runtime.files import parse

Bounds = tuple[Positive, Positive]


class SizeClass(File, frozen=True, kw_only=True):
    hours: Bounds
    """GPU-hours at the cluster's mean speed"""
    gpus: tuple[Count, Count]
    choices: tuple[Count, Count]
    """how few and how many GPU counts a job lists"""


class MixEntry(File, frozen=True, kw_only=True):
    model: str
    dataset: str
    size: str
    weight: Positive = 1.0


class Mix(File, frozen=True, kw_only=True):
    source: str
    longest_h: Positive
    sizes: dict[str, SizeClass]
    jobs: Annotated[list[MixEntry], Meta(min_length=1)]

    def size_of(self, entry: MixEntry) -> SizeClass:
        return self.sizes[entry.size]

    def entry(self, model: str, dataset: str) -> MixEntry | None:
        return next((e for e in self.jobs if (e.model, e.dataset) == (model, dataset)), None)


class UnknownMix(LookupError):
    """No mix has that name; the text lists those there are."""


@cache
def mixes() -> dict[str, Mix]:
    return parse(_text("mixes.yaml"), "workloads/mixes.yaml", dict[str, Mix])


@cache
def hints() -> dict[str, tuple[str, str]]:
    """What traces call a model → model and data set of the catalogue."""
    return parse(_text("hints.yaml"), "workloads/hints.yaml", dict[str, tuple[str, str]])


def mix_named(name: str) -> Mix:
    """Raises UnknownMix."""
    try:
        return mixes()[name]
    except KeyError:
        raise UnknownMix(f"no mix is called {name}; there are {', '.join(sorted(mixes()))}") from None


def weights(mix: Mix) -> list[float]:
    """Of the mix's entries, in its order; they sum to 1."""
    total = sum(entry.weight for entry in mix.jobs)
    return [entry.weight / total for entry in mix.jobs]


def dealt(mix: Mix, place: float) -> MixEntry:
    """The entry at a place in [0, 1) of the mix, each as wide as its weight."""
    edges = list(accumulate(weights(mix)))
    return mix.jobs[min(bisect_right(edges, place), len(edges) - 1)]


def _text(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text("utf-8")
