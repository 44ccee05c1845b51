"""Divides the user's loader among ranks: the same data set, workers and collation, with other indices."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch.utils.data import BatchSampler, DataLoader, IterableDataset, RandomSampler, SequentialSampler
from torch.utils.data._utils import fetch

from hopjob.state import rng
from hopjob.state.samples import Share, batches

COPIED = ("num_workers", "collate_fn", "pin_memory", "timeout", "worker_init_fn", "multiprocessing_context")
OF_WORKERS = ("prefetch_factor", "persistent_workers")
KNOWN_SAMPLERS = (RandomSampler, SequentialSampler)


class NotDivisible(ValueError):
    """The loader cannot be divided among ranks; the text says why and what to do."""


class Source:
    """The batches of one rank, epoch after epoch."""

    def __init__(self, loader: DataLoader, share: Share, seed: int) -> None:
        check(loader)
        self._sampler, self._share, self._seed = loader.sampler, share, seed
        self._next: list[list[int]] = []
        self._place = 0, 0
        self.size = len(self._sampler)
        if self.size < share.step * share.accumulate:
            wanted = f"{share.accumulate} × {share.step} samples, on {share.ranks} GPUs"
            raise NotDivisible(f"{self.size} samples do not fill one update: {wanted}")
        options = {name: getattr(loader, name) for name in COPIED}
        if loader.num_workers:
            options.update({name: getattr(loader, name) for name in OF_WORKERS})
            options["worker_init_fn"] = _SeededWorker(loader.worker_init_fn)
        numbers = torch.Generator()  # a separate one, so that the script draws the same numbers as without it
        self._loader = DataLoader(
            loader.dataset,
            batch_sampler=_RankBatchSampler(self, seeded=bool(loader.num_workers)),
            generator=numbers,
            **options,
        )
        self._numbers = numbers

    def epoch(self, epoch: int, offset: int) -> tuple[int, Iterator[object]]:
        """The number of batches that are left of the epoch, and the batches."""
        self._place = epoch, offset
        self._numbers.manual_seed(rng.mixed(self._seed, epoch, offset, self._share.rank))
        self._next = list(batches(self._checked_order(epoch), offset, self._share))
        return len(self._next), iter(self._loader)

    def next_batches(self) -> list[list[int]]:
        return self._next

    def seed_of(self, number: int) -> int:
        """The seed of what is drawn for this rank's next batch but `number`: it stays so after a restart."""
        (epoch, offset), (step, task) = self._place, divmod(number, self._share.own)
        place = offset + step * self._share.step
        return rng.mixed(self._seed, epoch, place, task, self._share.rank)

    def _checked_order(self, epoch: int) -> list[int]:
        order = epoch_order(self._sampler, self._seed, epoch)
        if type(self._sampler) not in KNOWN_SAMPLERS and order != epoch_order(
            self._sampler, self._seed, epoch
        ):
            raise NotDivisible(
                f"{type(self._sampler).__name__} gives another order each time: it has to draw from the "
                "random numbers of torch, Python or numpy, which are seeded by the epoch"
            )
        return order


class _Seeded(NamedTuple):
    """A batch that a worker fetches, with the seed of what it draws for it, such as augmentations."""

    seed: int
    indices: list[int]


class _RankBatchSampler:
    """A batch sampler that yields the batches of its source's current epoch. `seeded`: for workers."""

    def __init__(self, source: Source, *, seeded: bool) -> None:
        self._source, self._seeded = source, seeded

    def __iter__(self) -> Iterator[list[int] | _Seeded]:
        for number, indices in enumerate(self._source.next_batches()):
            yield _Seeded(self._source.seed_of(number), indices) if self._seeded else indices

    def __len__(self) -> int:
        return len(self._source.next_batches())


class _SeededWorker:
    """Makes a worker seed its random numbers for each batch, and then calls the script's own function."""

    def __init__(self, own: Callable[[int], object] | None) -> None:
        self._own = own

    def __call__(self, worker: int) -> None:
        plain: Any = fetch._MapDatasetFetcher  # noqa: SLF001 - torch has no public way to know the batch
        fetched = plain.fetch

        def seeded(fetcher: object, batch: list[int] | _Seeded) -> object:
            if not isinstance(batch, _Seeded):  # of a loader that the data set itself uses
                return fetched(fetcher, batch)
            rng.seed_cpu(batch.seed)
            return fetched(fetcher, batch.indices)

        plain.fetch = seeded
        if self._own is not None:
            self._own(worker)


def epoch_order(sampler: object, seed: int, epoch: int) -> list[int]:
    """The sampler's order of an epoch, drawn with seeded random numbers of torch, Python and numpy."""
    number = rng.mixed(seed, epoch)
    own = getattr(sampler, "generator", None)
    if own is not None:
        own.manual_seed(number)
    with rng.apart(number):
        return [int(index) for index in sampler]  # type: ignore[attr-defined]


def check(loader: DataLoader) -> None:
    """Raises NotDivisible."""
    if not isinstance(loader, DataLoader):
        raise NotDivisible(
            f"samples are dealt from a DataLoader of torch, and not from a {type(loader).__name__}"
        )
    check_parts(loader.dataset, loader.batch_sampler)
    if isinstance(loader.sampler, torch.utils.data.distributed.DistributedSampler):
        raise NotDivisible(
            "give a loader with shuffle=True in place of a DistributedSampler: samples are dealt here"
        )


def check_parts(dataset: object, batch_sampler: object) -> None:
    """Raises NotDivisible."""
    if isinstance(dataset, IterableDataset):
        raise NotDivisible(
            "a data set without indices cannot be dealt among ranks: it needs __getitem__ and __len__"
        )
    if type(batch_sampler) is not BatchSampler:
        raise NotDivisible(
            "a loader with a batch sampler of its own, or without batches, cannot be dealt among ranks"
        )


def _of_kind(batch: dict[Any, Any], items: dict[Any, Any]) -> dict[Any, Any]:
    """A dictionary like the batch, with other items."""
    try:
        return type(batch)(items)
    except TypeError:  # its kind wants something else than items, as defaultdict does
        moved = copy.copy(batch)
        moved.update(items)
        return moved


def to_device(batch: Any, device: torch.device) -> Any:  # noqa: ANN401 - whatever the loader gives
    """The batch, with its tensors on the device."""
    if isinstance(batch, torch.Tensor):
        return batch.to(device, non_blocking=True)
    if hasattr(batch, "to"):
        return batch.to(device)
    if isinstance(batch, dict):
        return _of_kind(batch, {key: to_device(one, device) for key, one in batch.items()})
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(to_device(one, device) for one in batch))
    if isinstance(batch, (list, tuple)):
        return type(batch)([to_device(one, device) for one in batch])
    return batch
