"""Random numbers of a rank, across a restart.

With the same number of ranks each rank continues its sequence, so training is equal bit by bit. With another
number each rank starts a new sequence, seeded by the job's seed, its rank and the samples done.
"""

from __future__ import annotations

import contextlib
import random
import sys
import zlib
from collections.abc import Iterator
from typing import Any

import torch

Numbers = dict[str, Any]


def state() -> Numbers:
    """The state of all generators, as tensors and plain types."""
    numbers: Numbers = {"torch": torch.get_rng_state(), "python": random.getstate()}
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        numbers["cuda"] = torch.cuda.get_rng_state()
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        kind, keys, *rest = numpy.random.get_state()
        numbers["numpy"] = [kind, [int(key) for key in keys], *(float(one) for one in rest)]
    return numbers


def restore(numbers: Numbers) -> None:
    torch.set_rng_state(numbers["torch"])
    version, internal, gauss = numbers["python"]
    random.setstate((version, tuple(internal), gauss))
    if "cuda" in numbers and torch.cuda.is_available():
        torch.cuda.set_rng_state(numbers["cuda"])
    numpy = sys.modules.get("numpy")
    if numpy is not None and "numpy" in numbers:
        kind, keys, position, has_gauss, gauss = numbers["numpy"]
        numpy.random.set_state((kind, keys, int(position), int(has_gauss), gauss))


def begin(seed: int, rank: int, samples: int) -> None:
    number = mixed(seed, rank, samples)
    torch.manual_seed(number)
    seed_cpu(number)


def seed_cpu(number: int) -> None:
    """Seed the generators that draw on the CPU. Those of GPUs are left alone."""
    torch.default_generator.manual_seed(number)
    random.seed(number)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(number)


@contextlib.contextmanager
def apart(number: int) -> Iterator[None]:
    """Seed what is drawn on the CPU in here. After it, all goes on as if nothing had been drawn."""
    numpy = sys.modules.get("numpy")
    of_torch, of_python = torch.get_rng_state(), random.getstate()
    of_numpy = numpy.random.get_state() if numpy is not None else None
    seed_cpu(number)
    try:
        yield
    finally:
        torch.set_rng_state(of_torch)
        random.setstate(of_python)
        if numpy is not None:
            numpy.random.set_state(of_numpy)


def of_copy(seed: int, placement: str, node: str) -> int:
    """The seed of a copy's random draws: it differs from copy to copy, and from placement to placement."""
    return mixed(seed, zlib.crc32(placement.encode()), zlib.crc32(node.encode()))


def mixed(*numbers: int) -> int:
    """One seed from several numbers, the same in every process; 32 bits."""
    return zlib.crc32(" ".join(map(str, numbers)).encode())
