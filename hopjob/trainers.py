"""A job inside another library's training loop: the common part of the callbacks for trainers.

The trainer connects the ranks, moves batches to the device and makes updates. This module provides the
batches and the state to begin with, and decides when training ends. What a trainer calls an epoch is here a
*pass*: a number of batches from one stream, which runs through all epochs of the data and begins where the
last placement ended.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, RandomSampler, SequentialSampler

from hopjob.batches import COPIED, NotDivisible, Source, check_parts
from hopjob.measure.profile import TRAINER
from hopjob.process import this_process
from hopjob.state import rng
from hopjob.state.samples import Progress, Share
from hopjob.steps import Steps
from hopjob.training_state import TrainingState

TIMEOUT = timedelta(minutes=30)
NO_TASKS = (
    "a trainer's loop decides how many batches make an update, the same on every GPU: in a gang whose GPUs "
    "compute unlike numbers of batches one after another, only a script with hopjob.attach can train"
)


class Stream:
    """This rank's batches, pass after pass. One that is fetched ahead counts once it is trained on."""

    def __init__(self, loader: DataLoader, *, seed: int) -> None:
        order = this_process(attached=True).order
        if order.tasks or order.turns:
            raise NotDivisible(NO_TASKS)
        self.loader = plain(loader)
        self._share = Share(order.rank, order.ranks, int(self.loader.batch_size or 0))
        self._source = Source(self.loader, self._share, this_process(attached=True).seed(seed))
        self._length = self._source.size // self._share.step
        self._progress = Progress()
        self._batches = self._endless()
        self._given = 0
        self._places: deque[int] = deque()

    def begin(self, progress: Progress, length: int | None = None) -> None:
        """`length`: batches of a pass, if the trainer has already fixed their number."""
        self._progress, self._given = progress, progress.trained
        self._length = self._length if length is None else length

    def consumed(self) -> None:
        """Count one more batch as trained on."""
        self._progress.given = self._places.popleft()
        self._progress.computed += self._share.step

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        """Other attributes of the loader that a trainer reads."""
        return getattr(self.loader, name)

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[Any]:
        for _ in range(self._length):
            yield next(self._batches)

    def _endless(self) -> Iterator[Any]:
        size = self._source.size
        while True:
            epoch, offset = divmod(self._given, size)
            left, fetched = self._source.epoch(epoch, offset)
            for index in range(left):
                with rng.apart(self._source.seed_of(index)):  # a trainer fetches ahead
                    batch = next(fetched)
                self._given = (epoch + 1) * size if index + 1 == left else self._given + self._share.step
                self._places.append(self._given)
                yield batch
            self._given = (epoch + 1) * size


class TrainerSession:
    def __init__(
        self,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        scheduler: Any,  # noqa: ANN401 - torch has no one type of schedules
        *,
        seed: int,
        more: Mapping[str, Any],
    ) -> None:
        """Every rank makes its session at the same point: after the trainer has connected the ranks.

        `more`: further optimizers, schedules and the scaler of mixed precision, by name.
        """
        self._process = this_process(attached=True)
        self._process.attach()
        self._state = TrainingState(self._process, model, optimizer, scheduler, more)
        own = self._state.rate.now
        self._state.find_checkpoint()
        self.progress = self._process.progress = self._state.progress
        if self._process.launched:
            self._process.meet(float(self.progress.trained), elastic=True)
        if self._process.order.ranks > 1:
            self._state.group = dist.new_group(backend="gloo", timeout=TIMEOUT)
        self._state.restore(seed)
        self._state.resume_random()
        self._state.rate.go_to(self._process.order.learning_rate or own, updates=1)
        self._steps = Steps(self._process, self._state, None)

    @property
    def ordered(self) -> bool:
        """Whether a number of samples was ordered."""
        return self._process.order.goal is not None

    @property
    def total(self) -> float:
        """The number of samples that were ordered."""
        return self._process.order.samples or float("inf")

    def updated(self) -> bool:
        """Count an update; returns whether the training is over."""
        goal = self._process.order.goal
        self.progress.update()
        over = goal is not None and self.progress.trained >= goal
        self._steps.updated(0.0, over=over)
        return over

    def check(self) -> None:
        """For evaluations: obey an order to stop, in rank 0."""
        if self._process.connection.stop_asked is not None:
            self._steps.stop_alone()

    def end(self) -> None:
        self._state.end()
        self._process.training_over = True


def measuring() -> bool:
    """Whether this is a profile run, in which the trainer runs unchanged."""
    profile = this_process(attached=True).profile
    if profile is not None:
        profile.modes = TRAINER
    return profile is not None


def scaler_of(owner: object) -> dict[str, Any]:
    """The scaler of mixed precision under its name in a checkpoint; empty if the owner uses none."""
    scaler = getattr(owner, "scaler", None)
    return {"scaler": scaler} if scaler is not None and scaler.is_enabled() else {}


def plain(loader: Any) -> DataLoader:  # noqa: ANN401 - a DataLoader, or what a trainer has made of one
    """The user's loader, without the samplers that a trainer has put around it. Raises NotDivisible."""
    loader = getattr(loader, "base_dataloader", loader)
    if not isinstance(loader, DataLoader):
        raise NotDivisible(f"a trainer needs one DataLoader of torch, and has a {type(loader).__name__}")
    batches = loader.batch_sampler
    while hasattr(batches, "batch_sampler"):
        batches = batches.batch_sampler
    check_parts(loader.dataset, batches)
    sampler = batches.sampler
    if isinstance(sampler, torch.utils.data.distributed.DistributedSampler):
        sampler = RandomSampler(loader.dataset) if sampler.shuffle else SequentialSampler(loader.dataset)
    elif isinstance(sampler, RandomSampler) and not sampler.replacement:
        sampler = RandomSampler(loader.dataset)
    options = {name: getattr(loader, name) for name in COPIED}
    return DataLoader(loader.dataset, batches.batch_size, sampler=sampler, **options)
