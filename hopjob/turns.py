"""One process's turns on a GPU that several jobs share.

A turn is for the tasks of a round on this GPU: from the first batch of an update to the end of the backward
pass of its last batch. Then the process gives the turn back. Another job computes while this one exchanges
gradients, makes the optimizer's step and does whatever else the script does until its next batch. All
processes stay alive, with their contexts and models on the GPU.

The exchange is made here instead of by DistributedDataParallel, whose exchange makes the GPU wait for the
other ranks during the forward and the backward pass: two jobs on the same two GPUs, each with the turn on one
of them, would wait for each other forever. The result is the same: the mean over ranks, and rank 0's buffers.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence

import torch
import torch.distributed as dist

from hopjob.process import Process

POLL_S = 0.1
"""seconds between two checks for an order to stop, while this process waits for its turn"""
PATIENCE_S = 5.0
"""seconds that a rank waits for its turn after an order to stop; the agent gives it the next turn"""
OTHERS_S = 5.0
"""further seconds that the ranks other than 0 wait, in which rank 0 saves"""


SYNCED = "where jobs take turns on a GPU no layer may talk to other ranks, as SyncBatchNorm does: "


class Turns:
    """`broadcast`: whether all ranks take over the buffers of rank 0 at each update."""

    def __init__(self, process: Process, device: torch.device, *, broadcast: bool = True) -> None:
        self._process, self._device, self._broadcast = process, device, broadcast
        self._connection = process.connection
        self._round = 0
        self._due = 0
        """when the next turn is due, as the ranks have agreed; 0: they have not"""
        self.has_turn = False

    def take(self, stop: Callable[[], None]) -> None:
        """Wait for the turn. `stop` is called if an order to stop came and no turn; rank 0 saves in it."""
        self._round += 1
        self._connection.request_turn(self._round, self._due, self._memory())
        while not self._connection.wait_for_turn(POLL_S):
            asked = self._connection.stop_asked
            waited = 0.0 if asked is None else time.monotonic() - asked
            if waited > PATIENCE_S:
                stop()  # ends rank 0
            if waited > PATIENCE_S + OTHERS_S:
                self._process.ending.stopped()
        self.has_turn = True

    def give_back(self) -> None:
        """Give the turn back, once the GPU has finished all queued work."""
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        self.has_turn = False
        self._connection.give_back()

    def check(self, model: torch.nn.Module) -> None:
        """Raises RuntimeError for a model with layers that make the GPU wait for other ranks."""
        if self._process.order.ranks == 1:
            return
        kind = torch.nn.SyncBatchNorm
        synced = [name for name, layer in model.named_modules() if isinstance(layer, kind)]
        if synced:
            raise RuntimeError(SYNCED + ", ".join(synced))

    def disable_ddp_sync(self, model: torch.nn.Module) -> None:
        """Keep DistributedDataParallel from exchanging anything, also in its first forward pass."""
        if self._process.order.ranks > 1:
            model.require_forward_param_sync = model.require_backward_grad_sync = False

    def exchange(self, parameters: Iterable[torch.Tensor], buffers: Iterable[torch.Tensor] = ()) -> None:
        """Set gradients to their mean over the ranks, and buffers to rank 0's; agree on the next turn.

        A gradient that no rank has stays None.
        """
        self._due = self._connection.next_due
        if self._process.order.ranks == 1:
            return
        if self._broadcast:
            for alike in _by_dtype(buffers).values():
                _broadcast_buffers(alike)
        for alike in _by_dtype(one for one in parameters if one.requires_grad).values():
            _exchange(alike, self._process.order.ranks)
        self._agree()

    def _agree(self) -> None:
        """Have the next turn due at the same time on all GPUs of the gang: the latest that one says."""
        due = torch.tensor([self._due], dtype=torch.int64, device=self._device)
        dist.all_reduce(due, dist.ReduceOp.MAX)
        self._due = int(due.item())

    def _memory(self) -> dict[str, object]:
        if self._device.type != "cuda":
            return {}
        kept, peak = torch.cuda.memory_allocated(self._device), torch.cuda.max_memory_allocated(self._device)
        whole = torch.cuda.get_device_properties(self._device).total_memory
        return {"kept": float(kept), "peak": float(peak), "whole": float(whole)}


def _by_dtype(tensors: Iterable[torch.Tensor]) -> dict[torch.dtype, list[torch.Tensor]]:
    kinds: dict[torch.dtype, list[torch.Tensor]] = {}
    for one in tensors:
        kinds.setdefault(one.dtype, []).append(one)
    return kinds


def _broadcast_buffers(buffers: Sequence[torch.Tensor]) -> None:
    """Take over the buffers of rank 0; `buffers`: all of one type."""
    flat = torch.cat([one.reshape(-1) for one in buffers])
    if flat.dtype is torch.bool:  # gloo does not support it
        flat = flat.to(torch.uint8)
    dist.broadcast(flat, 0)
    with torch.no_grad():
        for one, part in zip(buffers, flat.split([one.numel() for one in buffers])):
            one.copy_(part.view_as(one))


def _exchange(parameters: Sequence[torch.Tensor], ranks: int) -> None:
    """Average the gradients over the ranks; `parameters`: all of one type."""
    there = parameters[0].new_tensor([float(one.grad is not None) for one in parameters])
    parts = [torch.zeros_like(one) if one.grad is None else one.grad for one in parameters]
    flat = torch.cat([*(part.reshape(-1) for part in parts), there])
    dist.all_reduce(flat)
    found = flat[-len(parameters) :].tolist()
    flat /= ranks
    begin = 0
    for one, anywhere in zip(parameters, found):
        end = begin + one.numel()
        if anywhere:
            one.grad = flat[begin:end].view_as(one).clone()
        begin = end
