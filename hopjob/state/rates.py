"""Sets the learning rate of the order, at any point of the script's schedule.

The rate is applied as a factor to every rate of the optimizers and of their schedules, so groups keep their
ratios and schedules their shape. The momentum of torch's SGD does not contain the rate, so it needs no
correction. A higher rate is reached over several updates.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch

OF_A_GROUP = ("lr", "initial_lr", "max_lr", "min_lr", "swa_lr")
OF_A_SCHEDULE = ("base_lrs", "max_lrs", "min_lrs", "_last_lr", "eta_min")


def base(optimizer: torch.optim.Optimizer) -> float:
    """The rate that the script set, without its schedule: the first that is not 0, since some begin at 0.

    0: an optimizer without a rate, which works it out by itself, as Adafactor can.
    """
    rates = (float(group.get("initial_lr", group.get("lr")) or 0.0) for group in optimizer.param_groups)
    return next(filter(None, rates), 0.0)


def scale(thing: object, factor: float) -> None:
    """Scale all rates of an optimizer or a schedule. Anything else has none."""
    for group in getattr(thing, "param_groups", ()):
        for key in OF_A_GROUP:
            if key in group:
                group[key] = _scaled(group[key], factor)
    for part in parts(thing):
        for name in OF_A_SCHEDULE:
            if hasattr(part, name):
                setattr(part, name, _scaled(getattr(part, name), factor))


def _scaled(rate: object, factor: float) -> object:
    if isinstance(rate, (list, tuple)):
        return [_scaled(one, factor) for one in rate]
    if rate is None:
        return None
    if isinstance(rate, torch.Tensor):  # changed in place, where compiled optimizers read it
        return rate.mul_(factor)
    return rate * factor  # type: ignore[operator]


def parts(schedule: object) -> Iterator[object]:
    """The schedule, and those of which it is composed."""
    yield schedule
    for part in getattr(schedule, "_schedulers", ()):
        yield from parts(part)


class Rate:
    """Moves the rate from its present value to the wanted one: step by step upwards, at once downwards."""

    def __init__(self, things: Iterable[object], *, now: float) -> None:
        """`things`: all optimizers and schedules. `now`: the base rate of the first optimizer at present."""
        self._things = list(things)
        self.now = now
        self._step, self._left = 1.0, 0

    def go_to(self, wanted: float, *, updates: int) -> None:
        if not self.now:  # a script that begins at 0 sets its rate by hand, and some optimizers have none
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
        for thing in self._things:
            scale(thing, factor)
        self.now *= factor
