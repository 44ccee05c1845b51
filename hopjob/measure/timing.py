"""Measures the parts of an iteration from outside the script: T_d, T_f, T_b, T_u.

An iteration lasts from one update of the model to the next, however many batches the update has. T_d is the
wait for the loader, T_f the time from then to `backward`, T_b the time in `backward`. T_u is the rest: the
optimizer's step and what the script does around it. So the parts add up to the iteration. If a loader is used
while no gradients are recorded, this is an evaluation, whose time does not count.

On a GPU the marks are events on its stream, read when the measurement is over, so they delay nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
from torch.utils.data import dataloader

try:
    from torch.optim.optimizer import register_optimizer_step_post_hook
except ImportError:  # torch 1.13 has no hooks
    register_optimizer_step_post_hook = None

WARM = 5
"""iterations before a measurement, in which memory is allocated and kernels are chosen"""

REPORTED = ("data", "forward", "backward", "update", "iteration")

Mark = Any
"""seconds of the host's clock, or an event of a GPU's stream"""


def mark() -> Mark:
    if not torch.cuda.is_initialized():
        return time.perf_counter()
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


def seconds(begin: Mark, end: Mark) -> float:
    if isinstance(begin, float) or isinstance(end, float):
        return end - begin if isinstance(end, float) and isinstance(begin, float) else 0.0
    end.synchronize()
    return float(begin.elapsed_time(end)) / 1e3


class Watch:
    """Marks the parts of iterations as the script goes through them.

    An iteration ends with a step of the optimizer that was first to make one. Steps of other optimizers, such
    as that of a second network, end none.
    """

    def __init__(self, ended: Callable[[Watch], None]) -> None:
        """`ended` is called after each iteration."""
        self.optimizer: torch.optim.Optimizer | None = None
        self.rows: list[dict[str, list[tuple[Mark, Mark]]]] = []
        self._ended = ended
        self._row: dict[str, list[tuple[Mark, Mark]]] = _row()
        self._last = self._begin = mark()
        self._evaluates: Mark = None
        self._depth = 0

    def install(self) -> None:
        """Replace functions of torch, permanently: the process ends with its measurement."""
        self._around_loaders()
        self._around_backward()
        after_steps(self._stepped)

    def _around_loaders(self) -> None:
        fetch = dataloader._BaseDataLoaderIter.__next__  # noqa: SLF001 - what all loaders use

        def watched(iterator: object) -> object:
            begin = mark()
            self._end_evaluation(begin)
            if not torch.is_grad_enabled():
                self._evaluates = begin
                return fetch(iterator)
            batch = fetch(iterator)
            self._begin = mark()
            self._row["data"].append((begin, self._begin))
            return batch

        dataloader._BaseDataLoaderIter.__next__ = watched  # noqa: SLF001

    def _around_backward(self) -> None:
        backward = torch.autograd.backward

        def watched(*args: object, **options: object) -> None:
            if self._depth:  # a pass within another one: checkpointed layers are recomputed
                backward(*args, **options)
                return
            begin = mark()
            self._end_evaluation(begin)
            self._row["forward"].append((self._begin, begin))
            self._depth += 1
            try:
                backward(*args, **options)
            finally:
                self._depth -= 1
            self._begin = mark()
            self._row["backward"].append((begin, self._begin))

        torch.autograd.backward = watched

    def _stepped(self, optimizer: torch.optim.Optimizer) -> None:
        self.optimizer = self.optimizer or optimizer
        if optimizer is not self.optimizer:
            return
        now = mark()
        self._end_evaluation(now)
        self._row["iteration"].append((self._last, now))
        self.rows.append(self._row)
        self._row, self._last, self._begin = _row(), now, now
        self._ended(self)

    def _end_evaluation(self, now: Mark) -> None:
        if self._evaluates is not None:
            self._row["evaluation"].append((self._evaluates, now))
            self._evaluates = None
            self._begin = now


def _row() -> dict[str, list[tuple[Mark, Mark]]]:
    return {"data": [], "forward": [], "backward": [], "iteration": [], "evaluation": []}


def measured(rows: list[dict[str, list[tuple[Mark, Mark]]]]) -> dict[str, list[float]]:
    """Seconds of each part, by iteration, under the names of the agent's protocol."""
    sums = [{part: sum(seconds(*span) for span in spans) for part, spans in row.items()} for row in rows]
    for row in sums:
        row["iteration"] -= row["evaluation"]
        row["update"] = max(0.0, row["iteration"] - row["data"] - row["forward"] - row["backward"])
    return {f"{part}_s": [row[part] for row in sums] for part in REPORTED}


def after_steps(call: Callable[[torch.optim.Optimizer], None]) -> None:
    """Call a function after every step of every optimizer, also of those that are made later."""
    if register_optimizer_step_post_hook is not None:
        register_optimizer_step_post_hook(lambda optimizer, _args, _options: call(optimizer))
        return
    make = torch.optim.Optimizer.__init__

    def watched(optimizer: torch.optim.Optimizer, *args: object, **options: object) -> None:
        make(optimizer, *args, **options)
        after_steps_of(optimizer, lambda: call(optimizer))

    torch.optim.Optimizer.__init__ = watched


def after_steps_of(optimizer: torch.optim.Optimizer, call: Callable[[], None]) -> None:
    if hasattr(optimizer, "register_step_post_hook"):
        optimizer.register_step_post_hook(lambda *_: call())
        return
    step = optimizer.step

    def watched(*args: object, **options: object) -> object:
        loss = step(*args, **options)
        call()
        return loss

    optimizer.step = watched
