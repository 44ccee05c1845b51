"""A training job as its script sees it: attached once, then batch after batch until it is stopped or done."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

from hopjob import batches as loaders
from hopjob.accumulation import Accumulation
from hopjob.agent.ending import LOST
from hopjob.gradient_weights import GradientWeights
from hopjob.measure.timing import after_steps_of
from hopjob.process import Process, this_process
from hopjob.state.samples import Share
from hopjob.steps import Steps
from hopjob.training_state import TrainingState
from hopjob.turns import Turns

IDLE_BATCHES_MAX = 10_000
"""batches without a step of the attached optimizer after which the wrong optimizer must be attached"""


def attach(
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    scheduler: Any = None,  # noqa: ANN401 - torch has no one type of schedules
    *,
    accumulate: int = 1,
    seed: int = 0,
    more: Mapping[str, Any] | None = None,
    warmup: int = 50,
    backend: str = "",
    timeout_s: float = 1800,
    ddp: Mapping[str, Any] | None = None,
) -> Job:
    """Make this process a rank of its job: restore the checkpoint, move the model, meet the other ranks.

    `accumulate`: batches of one update, at the end of which gradients are exchanged. `more`: other objects
    with a state, by name, such as a gradient scaler. `warmup`: updates over which the learning rate grows
    when a restart raises it. `timeout_s`: limit of an exchange. `ddp`: options of DistributedDataParallel.
    Raises ValueError: `accumulate` is no number of batches.
    """
    if accumulate < 1 or accumulate != int(accumulate):
        raise ValueError(f"attach: accumulate={accumulate!r}: an update needs a whole number of batches")
    process = this_process(attached=True)
    process.attach()
    state = TrainingState(process, model, optimizer, scheduler, more or {})
    own = state.rate.now
    state.find_checkpoint()
    process.announce(state.progress)
    if process.profile is not None:
        process.profile.inspect(model)
    device = _device(process)
    model.to(device)
    if process.order.ranks > 1:
        _join(
            process,
            state,
            backend or ("nccl" if device.type == "cuda" else "gloo"),
            timedelta(seconds=timeout_s),
        )
    state.restore(seed)
    state.rate.go_to(process.order.learning_rate or own, updates=warmup if state.progress.trained else 1)
    after_steps_of(optimizer, state.progress.update)
    others = (scheduler, *(more or {}).values())
    options = ddp or {}
    turns = None
    if process.order.turns:
        turns = Turns(process, device, broadcast=options.get("broadcast_buffers", True))
        turns.check(model)
    whole = model if process.order.ranks == 1 else _parallel(model, device, options)
    if turns is not None:
        turns.disable_ddp_sync(whole)
    accumulation = Accumulation(model, optimizer, others, turns) if process.order.tasks or turns else None
    return Job(process, state, whole, device, accumulation, seed=seed, accumulate=int(accumulate))


def _device(process: Process) -> torch.device:
    """The device of this rank. Raises RuntimeError: its torch cannot use the GPU that it was given.

    On the CPU it would hold a GPU without using it, and its pace would be taken for that of the GPU.
    """
    if torch.cuda.is_available():
        device = torch.device("cuda", process.order.local_rank % torch.cuda.device_count())
        torch.cuda.set_device(device)
        return device
    given = os.environ.get("CUDA_VISIBLE_DEVICES")
    if process.order.socket and given:
        reason = f"torch {torch.__version__} can use none of the job's GPUs (CUDA_VISIBLE_DEVICES={given})"
        if torch.version.cuda is None:
            raise RuntimeError(f"{reason}: it was built without CUDA")
        process.ending.report_and_exit("lost", {"reason": reason}, LOST)  # by no fault of the script
    return torch.device("cpu")


def _join(process: Process, state: TrainingState, backend: str, timeout: timedelta) -> None:
    process.rendezvous.join(backend, timeout)
    state.group = dist.new_group(backend="gloo", timeout=timeout)


def _parallel(model: torch.nn.Module, device: torch.device, options: Mapping[str, Any]) -> torch.nn.Module:
    devices = {"device_ids": [device.index]} if device.type == "cuda" else {}
    return DistributedDataParallel(model, **devices, **options)


class Job:
    """`model`: the model to call in training. `samples`: those that all ranks have trained on so far."""

    def __init__(
        self,
        process: Process,
        state: TrainingState,
        model: torch.nn.Module,
        device: torch.device,
        accumulation: Accumulation | None,
        *,
        seed: int,
        accumulate: int,
    ) -> None:
        """`accumulation`: None unless ranks compute several batches of an update or share their GPUs."""
        self._process, self._state, self._progress = process, state, state.progress
        self._seed, self._batches_per_update = seed, accumulate
        self._steps = Steps(process, state, model)
        self._accumulation = accumulation
        self._turns = accumulation.turns if accumulation is not None else None
        self._gradient_weights = GradientWeights(accumulation)
        self._data_s = 0.0
        self._idle = 0
        self.model, self.device = model, device
        self.rank, self.world = process.order.rank, process.order.ranks
        self.epoch = 0
        self.ends_epoch = False
        """whether the current batch is the last of its epoch"""
        self.ends_update = False
        """whether the current batch is this rank's last in an update"""

    @property
    def samples(self) -> int:
        return self._progress.trained

    def batches(self, loader: DataLoader, epochs: float = 1) -> Iterator[Any]:
        """This rank's share of the loader's batches over all epochs, on its device.

        The loop ends with the update that reaches the ordered number of samples. If none was ordered, it ends
        after `epochs`. Raises NotDivisible; ValueError: `epochs` is no number of epochs.
        """
        loaders.check(loader)
        if not epochs >= 0:
            raise ValueError(f"batches: epochs={epochs!r} is no number of epochs")
        order = self._process.order
        batch = int(loader.batch_size or 0)
        share = Share(self.rank, self.world, batch, self._batches_per_update, order.shares, order.tasks)
        source = loaders.Source(loader, share, self._process.seed(self._seed))
        total = epochs * source.size if order.goal is None else order.goal
        self._gradient_weights.set(share.gradient_weight)
        measuring = order.profile is not None
        if self._process.training_over and self._progress.trained >= total:
            warnings.warn("job.batches is the loop over all epochs, and these are done", stacklevel=2)
        self._state.resume_random()
        while measuring or self._progress.trained < total:
            yield from self._epoch(source, share, total)
        self._state.end()
        self._process.training_over = True

    def check(self) -> None:
        """For evaluations: obey an order to stop. Rank 0 saves the state after the last update, and ends."""
        if self._process.connection.stop_asked is not None:
            self._steps.stop_alone()

    def _epoch(self, source: loaders.Source, share: Share, total: float) -> Iterator[Any]:
        self.epoch, offset = self._progress.place(source.size)
        left, fetched = source.epoch(self.epoch, offset)
        for index in range(left):
            begin = time.perf_counter()
            batch = next(fetched)
            self._data_s += time.perf_counter() - begin
            self.ends_epoch = index + 1 == left
            self._begin(index + 1, share)
            before = self._progress.updates
            yield loaders.to_device(batch, self.device)
            if self._accumulation is not None:
                self._accumulation.end()
            if self.ends_epoch:
                self._progress.end_epoch(source.size)
            over = self._progress.trained >= total and self._process.order.profile is None
            self._after(updated=self._progress.updates > before, over=over)
            if over:
                return
        if not left:
            self._progress.end_epoch(source.size)

    def _begin(self, number: int, share: Share) -> None:
        """Prepare for this rank's batch `number` of the epoch; with the last of an update ranks exchange."""
        of_update = share.own * share.accumulate
        self.ends_update = number % of_update == 0
        if self.world > 1 and (of_update > 1 or self._turns is not None):
            self.model.require_backward_grad_sync = self.ends_update and self._turns is None
        if self._turns is not None and not self._turns.has_turn:
            self._turns.take(self._steps.stop_alone)
        if self._accumulation is not None:
            self._accumulation.begin(last=self.ends_update)
        if number % share.own == 0:
            self._progress.give(share.step)

    def _after(self, *, updated: bool, over: bool) -> None:
        if updated:
            data_s, self._data_s, self._idle = self._data_s, 0.0, 0
            self._steps.updated(data_s, over=over)
            return
        self._idle += 1
        if self._idle > IDLE_BATCHES_MAX:
            raise RuntimeError(f"the optimizer that was attached made no step in {IDLE_BATCHES_MAX} batches")
