"""The catalogue as a value: the entries of the files that ship with the package, and perhaps a user's own."""

from collections.abc import Collection
from difflib import get_close_matches
from functools import cache, lru_cache
from importlib import resources

import msgspec

from schemas.catalogue import NOTHING_MORE, CatalogueFile, Dataset, Gpu, Mix, Model, Server
from schemas.ids import GpuType
from schemas.jobs import Workload
from shared.domain.catalogue import InvalidCatalogue, merged
from shared.runtime.error_wording import hint, listed
from shared.runtime.files import T, parse


class UnknownWorkload(LookupError):
    """The catalogue has no such model, data set or GPU; the text says which."""


class Catalogue(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """Compared by identity, so that results computed from it can be cached; `catalogue_with` makes it."""

    models: dict[tuple[str, str], Model]
    """models by name and data set"""
    datasets: dict[str, Dataset]
    gpus: dict[GpuType, Gpu]
    servers: dict[str, Server]
    mixes: dict[str, Mix]
    workloads: tuple[str, ...]
    """its models, each as `MODEL on DATASET`, in alphabetical order"""

    def dataset_of(self, model: Model) -> Dataset:
        return self.datasets[model.dataset]

    def model_of(self, workload: Workload) -> Model:
        """Raises UnknownWorkload."""
        try:
            return self.models[workload.model, workload.dataset]
        except KeyError:
            raise UnknownWorkload(self._unknown(workload)) from None

    def _unknown(self, workload: Workload) -> str:
        """The error's text, with suggestions: the same model on other data, or models of similar names."""
        text = f"the emulated world has no {workload.model} on {workload.dataset}"
        names = sorted({model for model, _ in self.models})
        meant = get_close_matches(workload.model, names, n=1 if workload.model in names else 3)
        there = [f"{model} on {dataset}" for model, dataset in self.models if model in meant]
        return f"{text}; it has {', '.join(there)}" if there else text

    def gpu_of(self, gpu_type: GpuType) -> Gpu:
        """Raises UnknownWorkload."""
        try:
            return self.gpus[gpu_type]
        except KeyError:
            raise UnknownWorkload(f"no facts about the GPU type {gpu_type}") from None

    def server_of(self, name: str) -> Server:
        """The server model of this name; the generic one if there is none."""
        return self.servers.get(name) or self.servers["generic"]


def shipped() -> Catalogue:
    return catalogue_with(NOTHING_MORE)


def catalogue_with(more: CatalogueFile) -> Catalogue:
    """The shipped entries and more; the same object for equal additions. Raises InvalidCatalogue."""
    return _catalogue(msgspec.json.encode(more))


@lru_cache(maxsize=64)
def _catalogue(more: bytes) -> Catalogue:
    whole = merged(_shipped(), msgspec.json.decode(more, type=CatalogueFile))
    _check(msgspec.json.decode(more, type=CatalogueFile), whole)
    return Catalogue(
        models={(row.model, row.dataset): row for row in whole.models},
        datasets=whole.datasets,
        gpus=whole.gpus,
        servers=whole.servers,
        mixes=whole.mixes,
        workloads=tuple(sorted(f"{row.model} on {row.dataset}" for row in whole.models)),
    )


def _check(more: CatalogueFile, whole: CatalogueFile) -> None:
    seen: set[tuple[str, str]] = set()
    for index, row in enumerate(more.models):
        if row.dataset not in whole.datasets:
            known = sorted(whole.datasets)
            reason = f"{row.dataset} is none of {listed(known)}{hint(row.dataset, known)}"
            raise InvalidCatalogue(f"$.models[{index}].dataset", reason)
        if (row.model, row.dataset) in seen:
            raise InvalidCatalogue(f"$.models[{index}]", f"{row.model} on {row.dataset} is given twice")
        seen.add((row.model, row.dataset))
    there = {(row.model, row.dataset) for row in whole.models}
    for name, mix in more.mixes.items():
        _check_mix(f"$.mixes.{name}", mix, there)


def _check_mix(field: str, mix: Mix, there: Collection[tuple[str, str]]) -> None:
    """Check the entries. `there`: the known pairs of model and data set."""
    for name, size in mix.sizes.items():
        for what, (least, most) in (("hours", size.hours), ("gpus", size.gpus), ("choices", size.choices)):
            if least > most:
                raise InvalidCatalogue(f"{field}.sizes.{name}.{what}", f"{least:g} is more than {most:g}")
    for index, entry in enumerate(mix.jobs):
        if entry.size not in mix.sizes:
            sizes = sorted(mix.sizes)
            reason = f"{entry.size} is none of {listed(sizes)}{hint(entry.size, sizes)}"
            raise InvalidCatalogue(f"{field}.jobs[{index}].size", reason)
        if (entry.model, entry.dataset) not in there:
            reason = f"the catalogue has no {entry.model} on {entry.dataset}"
            raise InvalidCatalogue(f"{field}.jobs[{index}]", reason)


@cache
def _shipped() -> CatalogueFile:
    return CatalogueFile(
        models=_read("models.yaml", list[Model]),
        datasets=_read("datasets.yaml", dict[str, Dataset]),
        gpus=_read("gpus.yaml", dict[GpuType, Gpu]),
        servers=_read("servers.yaml", dict[str, Server]),
        mixes=_read("mixes.yaml", dict[str, Mix]),
    )


def _read(name: str, kind: type[T]) -> T:
    return parse(resources.files(__package__).joinpath(name).read_text("utf-8"), f"catalogue/{name}", kind)
