"""Gradient accumulation for a script that knows nothing of it: it takes every batch for an update of its own.

The script goes on as it is: it clears gradients, computes them, clips them, makes a step, moves its schedule.
Only with the last batch of an update is that what happens. Gradients of the batches before are taken off the
parameters as soon as their backward pass is over, and put back as that of the last batch begins, so whatever
the script does to gradients in between finds none, and what it does at the end finds the sum. Steps of what
was attached, and of a gradient scaler, are left out until then.

A rank's number of batches in an update is its own, so a script may not count them, nor talk to other ranks
after each.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

import torch

from hopjob.turns import Turns

TWICE = "where jobs take turns on a GPU, a script has one backward pass a batch: this one began another"
NO_STEP = (
    "an update ended without a step of the optimizer: in this gang a GPU computes several batches of an "
    "update one after another, so who accumulates gradients has to say so, attach(..., accumulate=N)"
)
ONCE = ("step", "unscale_", "update_parameters")
"""methods of an optimizer, a schedule, a scaler, an averaged model: once an update"""
OF_SCALERS = "update"


class Accumulation:
    """`last`: whether the current batch is the last of its update on this rank."""

    def __init__(
        self,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        others: Iterable[object],
        turns: Turns | None = None,
    ) -> None:
        """`others`: what else was attached. `turns`: where other jobs use the GPU too."""
        self.last = True
        self._stepped = False
        self.turns = turns
        self._model, self._optimizer = model, optimizer
        self._sums: list[tuple[torch.Tensor, torch.Tensor]] = []
        """the parameters, with the sum of their gradients in this update so far"""
        for thing in (optimizer, *others):
            self._defer_methods(thing)

    def begin(self, *, last: bool) -> None:
        """A batch begins."""
        self.last, self._stepped = last, False

    def end(self) -> None:
        """A batch ends. Raises RuntimeError if it was the last of the update and the script made no step."""
        if self.last and not self._stepped:
            raise RuntimeError(NO_STEP)

    def before_backward(self) -> None:
        """Raises RuntimeError if a second backward pass begins, since the turn is given back by then."""
        if self.turns is not None and not self.turns.has_turn:
            raise RuntimeError(TWICE)
        if self.last:
            self._put_back()

    def after_backward(self) -> None:
        if self.last:
            if self.turns is not None:
                self.turns.give_back()
                self.turns.exchange(list(self._parameters()), list(self._model.buffers()))
            return
        kept = dict(self._sums)
        for parameter in self._parameters():
            if parameter.grad is not None:
                gradient, parameter.grad = parameter.grad, None
                kept[parameter] = kept[parameter].add_(gradient) if parameter in kept else gradient
        self._sums = list(kept.items())

    def _put_back(self) -> None:
        for parameter, gradient in self._sums:
            parameter.grad = gradient if parameter.grad is None else parameter.grad.add_(gradient)
        self._sums = []

    def _parameters(self) -> dict[torch.Tensor, None]:
        """The parameters, each once, in a fixed order."""
        groups = (group["params"] for group in self._optimizer.param_groups)
        return dict.fromkeys([*self._model.parameters(), *(one for group in groups for one in group)])

    # ---- what happens once an update

    def _defer_methods(self, thing: object) -> None:
        scales = hasattr(thing, "unscale_")
        for name in (*ONCE, OF_SCALERS) if scales else ONCE:
            if hasattr(thing, name):
                updates_model = name == "step" and (scales or thing is self._optimizer)
                _replace(thing, name, self._deferred(getattr(thing, name), updates_model=updates_model))

    def _deferred(self, plain: Callable[..., Any], *, updates_model: bool) -> Callable[..., Any]:
        """A method that runs only with the last batch of an update. `updates_model`: it makes the step."""

        @functools.wraps(plain)
        def once(*args: Any, **options: Any) -> Any:  # noqa: ANN401 - whatever it takes and gives
            self._stepped |= updates_model
            if self.last:
                self._put_back()
                return plain(*args, **options)
            closure = options.get("closure", args[0] if args else None)
            if not updates_model or not callable(closure):
                return None
            with torch.enable_grad():
                return closure()

        return once


def _replace(thing: Any, name: str, method: Callable[..., Any]) -> None:  # noqa: ANN401
    """Replace a method on this object alone, and not in its `__dict__`, which is a schedule's state."""
    if name in vars(thing):
        setattr(thing, name, method)
    else:
        kind = type(thing)
        thing.__class__ = type(kind.__name__, (kind,), {name: staticmethod(method)})
