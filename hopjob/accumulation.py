"""Gradient accumulation for a script that does not know of it: to the script every batch is an update.

For every batch the script clears gradients, computes them, clips them, makes a step and moves its schedule.
These calls take effect only with the last batch of an update. After the backward pass of an earlier batch its
gradients are taken off the parameters and added up, so what the script then does to gradients finds none. As
the backward pass of the last batch begins, the sum is put back, so the script then finds the gradients of the
whole update. Until then, `step` and similar methods of attached objects and of a gradient scaler do nothing.

Ranks may have different numbers of batches in an update. So a script may neither count batches nor talk to
other ranks after each of them.
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
"""methods of an optimizer, a schedule, a scaler or an averaged model that take effect once in an update"""
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
        """`others`: attached besides model and optimizer. `turns`: given if other jobs use the GPU too."""
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
        """Raises RuntimeError for a second backward pass of a batch: the first has given the turn back."""
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
        """A method that works only in the last batch of an update. `updates_model`: it makes the step."""

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
    """Replace a method of this one object, but not in its `__dict__`, which is the state of a schedule."""
    if name in vars(thing):
        setattr(thing, name, method)
    else:
        kind = type(thing)
        thing.__class__ = type(kind.__name__, (kind,), {name: staticmethod(method)})
