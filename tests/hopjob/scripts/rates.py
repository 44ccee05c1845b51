"""Rates and schedules of many kinds, scaled: asserted here, since torch is here."""

from __future__ import annotations

from collections.abc import Callable

from torch import nn
from torch.optim import SGD, lr_scheduler, swa_utils

from hopjob.state import rates

CONSTANT = 1e-12


def optimizer() -> SGD:
    model = nn.Linear(2, 2)
    groups = [{"params": [model.weight], "lr": 0.1}, {"params": [model.bias], "lr": 0.4}]
    return SGD(groups, momentum=0.9)


def series(made: SGD, schedule: lr_scheduler.LRScheduler, steps: int) -> list[list[float]]:
    seen = []
    for _ in range(steps):
        made.step()
        schedule.step()
        seen.append([group["lr"] for group in made.param_groups])
    return seen


def sequence(made: SGD) -> lr_scheduler.LRScheduler:
    warm = lr_scheduler.LinearLR(made, 0.1, total_iters=4)
    return lr_scheduler.SequentialLR(made, [warm, lr_scheduler.CosineAnnealingLR(made, 20)], [4])


KINDS: dict[str, Callable[[SGD], lr_scheduler.LRScheduler]] = {
    "step": lambda made: lr_scheduler.StepLR(made, 3, 0.5),
    "exponential": lambda made: lr_scheduler.ExponentialLR(made, 0.9),
    "lambda": lambda made: lr_scheduler.LambdaLR(made, lambda step: 1 / (1 + step)),
    "linear": lambda made: lr_scheduler.LinearLR(made, 0.1, total_iters=8),
    "cosine": lambda made: lr_scheduler.CosineAnnealingLR(made, 20),
    "cosine to a least rate": lambda made: lr_scheduler.CosineAnnealingLR(made, 20, eta_min=0.02),
    "restarts": lambda made: lr_scheduler.CosineAnnealingWarmRestarts(made, 6, eta_min=0.02),
    "cycle": lambda made: lr_scheduler.OneCycleLR(made, [0.1, 0.4], total_steps=30),
    "averaged": lambda made: swa_utils.SWALR(made, [0.05, 0.2], anneal_epochs=8),
    "sequence": sequence,
}

for name, kind in KINDS.items():
    plain = optimizer()
    expected = series(plain, kind(plain), 20)
    scaled = optimizer()
    schedule = kind(scaled)
    before = series(scaled, schedule, 5)
    for thing in (scaled, schedule):
        rates.scale(thing, 3.0)
    after = series(scaled, schedule, 15)
    wanted = [*expected[:5], *([3 * one for one in row] for row in expected[5:])]
    for row, other_row in zip([*before, *after], wanted, strict=True):
        for one, other in zip(row, other_row, strict=True):
            assert abs(one - other) < 1e-9, (name, row, other_row)

made = optimizer()
rate = rates.Rate([made], now=rates.base(made))
rate.go_to(0.2, updates=4)
seen = []
for _ in range(6):
    rate.updated()
    seen.append(made.param_groups[1]["lr"])
assert seen[0] < seen[1] < seen[2] < seen[3], seen
assert abs(seen[-1] - 0.8) < CONSTANT, seen
assert abs(rate.now - 0.2) < CONSTANT
rate.go_to(0.05, updates=4)
assert abs(made.param_groups[0]["lr"] - 0.05) < CONSTANT

first, second = optimizer(), optimizer()
plateau = lr_scheduler.ReduceLROnPlateau(second, factor=0.1, patience=0, min_lr=[0.05, 0.2])
rates.Rate([first, second, plateau], now=rates.base(first)).go_to(0.01, updates=1)
assert abs(second.param_groups[0]["lr"] - 0.01) < CONSTANT
for _ in range(5):
    plateau.step(1.0)
assert abs(second.param_groups[1]["lr"] - 0.02) < CONSTANT, second.param_groups

by_hand = SGD(nn.Linear(2, 2).parameters(), lr=0.0)
rate = rates.Rate([by_hand], now=rates.base(by_hand))
rate.go_to(0.2, updates=4)
rate.updated()
assert by_hand.param_groups[0]["lr"] == 0.0
by_itself = optimizer()
by_itself.param_groups[0]["lr"] = None
rates.Rate([by_itself], now=rates.base(by_itself)).go_to(0.2, updates=1)
assert [group["lr"] for group in by_itself.param_groups] == [None, 0.2]
by_itself.param_groups[1]["lr"] = None
assert rates.base(by_itself) == 0.0
model = nn.Linear(2, 2)
partly = SGD([{"params": [model.weight], "lr": 0.0}, {"params": [model.bias], "lr": 0.4}])
rates.Rate([partly], now=rates.base(partly)).go_to(0.2, updates=1)
assert [group["lr"] for group in partly.param_groups] == [0.0, 0.2]
print("rates are right")
