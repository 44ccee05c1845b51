"""Mixes of models by name, and entries dealt from them."""

from bisect import bisect_right
from functools import cache
from importlib import resources
from itertools import accumulate

from loadgen.catalogue.specs import Catalogue, shipped
from schemas.catalogue import Mix, MixEntry
from shared.domain.sums import plain_sum
from shared.runtime.error_wording import hint
from shared.runtime.files import parse


class UnknownMix(LookupError):
    """No mix has that name; the text lists the mixes."""


@cache
def hints() -> dict[str, tuple[str, str]]:
    """What traces call a model → model and data set of the catalogue."""
    return parse(_text("hints.yaml"), "workloads/hints.yaml", dict[str, tuple[str, str]])


def mix_named(name: str, catalogue: Catalogue | None = None) -> Mix:
    """`catalogue` None: the shipped entries alone. Raises UnknownMix."""
    mixes = (catalogue or shipped()).mixes
    try:
        return mixes[name]
    except KeyError:
        there = sorted(mixes)
        raise UnknownMix(
            f"no mix is called {name}; there are {', '.join(there)}{hint(name, there)}"
        ) from None


def mean_gpu_hours(mix: Mix) -> tuple[float, float]:
    """The least and the most that GPU-hours of a job can be in the mean over many."""
    by_entry = list(zip(weights(mix), [mix.size_of(entry).hours for entry in mix.jobs], strict=True))
    least, most = (plain_sum(weight * hours[end] for weight, hours in by_entry) for end in (0, 1))
    return least, most


def weights(mix: Mix) -> list[float]:
    """The weights of the mix's entries, in its order; they sum to 1."""
    total = plain_sum(entry.weight for entry in mix.jobs)
    return [entry.weight / total for entry in mix.jobs]


def dealt(mix: Mix, place: float) -> MixEntry:
    """The entry at a place in [0, 1) of the mix, each as wide as its weight."""
    edges = list(accumulate(weights(mix)))
    return mix.jobs[min(bisect_right(edges, place), len(edges) - 1)]


def _text(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text("utf-8")
