"""Batches of many kinds are moved to a device: asserted here, since torch is here."""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict
from typing import NamedTuple

import torch

from hopjob.batches import to_device

META = torch.device("meta")


class Pair(NamedTuple):
    x: object
    y: dict[str, torch.Tensor]


class Own:
    """A script's own kind of batch, whose `to` takes a device alone."""

    def __init__(self) -> None:
        self.x = torch.zeros(1)

    def to(self, device: torch.device) -> Own:
        self.x = self.x.to(device)
        return self


class Named(dict):  # type: ignore[type-arg]
    """A batch whose items are its attributes too."""

    def __init__(self, *items: object, **more: object) -> None:
        super().__init__(*items, **more)
        self.__dict__ = self


x = torch.zeros(1)
assert to_device(Named(x=x), META).x.is_meta
assert to_device(Own(), META).x.is_meta
many = defaultdict(list, x=x)
moved = to_device(many, META)
assert type(moved) is defaultdict
assert moved["x"].is_meta
assert not many["x"].is_meta
assert list(to_device(OrderedDict(b=x, a=[x]), META)) == ["b", "a"]
assert to_device(Counter(a=2), META) == Counter(a=2)
assert to_device(Pair((x,), {"x": x}), META).y["x"].is_meta
assert to_device(torch.nn.utils.rnn.pack_sequence([x]), META).data.is_meta
assert to_device(["text", 1, None], META) == ["text", 1, None]
print("all are there")
