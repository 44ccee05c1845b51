"""Sets the learning rate of the order, at any point of the script's schedule.

The rate is applied as a factor to every rate of the optimizer and of its schedulers, so groups keep their
ratios and schedules their shape. The momentum of torch's SGD does not contain the rate, so it needs no
correction. A higher rate is reached over several updates.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

OF_A_GROUP = ("lr", "initial_lr", "max_lr", "min_lr")
OF_A_SCHEDULE = ("base_lrs", "max_lrs", "_last_lr")


def base(optimizer: torch.optim.Optimizer) -> float:
    """The rate that the script set, without its schedule: the first that is not 0, since some begin at 0."""
    rates = (float(group.get("initial_lr", group["lr"])) for group in optimizer.param_groups)
    return next(filter(None, rates), 0.0)


def scale(optimizer: torch.optim.Optimizer, scheduler: object, factor: float) -> None:
    for group in optimizer.param_groups:
        for key in OF_A_GROUP:
            if key in group:
                group[key] = _scaled(group[key], factor)
    for schedule in _schedules(scheduler):
        for name in OF_A_SCHEDULE:
            if hasattr(schedule, name):
                setattr(schedule, name, [_scaled(rate, factor) for rate in getattr(schedule, name)])


def _scaled(rate: object, factor: float) -> object:
    if isinstance(rate, torch.Tensor):  # changed in place, where compiled optimizers read it
        return rate.mul_(factor)
    return rate * factor  # type: ignore[operator]


def _schedules(scheduler: object) -> Iterator[object]:
    """The schedule, and those of which it is composed."""
    if scheduler is not None:
        yield scheduler
        for part in getattr(scheduler, "_schedulers", ()):
            yield from _schedules(part)


class Rate:
    """Moves the rate from its present value to the wanted one: step by step upwards, at once downwards."""

    def __init__(self, optimizer: torch.optim.Optimizer, scheduler: object, *, now: float) -> None:
        """`now`: the base rate that optimizer and scheduler have at present."""
        self._optimizer, self._scheduler = optimizer, scheduler
        self.now = now
        self._step, self._left = 1.0, 0

    def go_to(self, wanted: float, *, updates: int) -> None:
        if not self.now:  # a script that begins at 0 sets its rate by hand
            return
        factor = wanted / self.now
        if factor > 1 and updates > 1:
            self._step, self._left = factor ** (1 / updates), updates
        elif factor != 1:
            self._apply(factor)

    def updated(self) -> None:
        """Called after each update of the model."""
        if self._left:
            self._left -= 1
            self._apply(self._step)

    def _apply(self, factor: float) -> None:
        scale(self._optimizer, self._scheduler, factor)
        self.now *= factor
