"""Effects that the estimator's theory does not have, as named variants of the plain world.

Nothing outside the world reads this; a scenario names one by the setting `world_structure`.
"""

from collections.abc import Sequence
from functools import cache
from importlib import resources
from math import ceil
from typing import Annotated

import msgspec
import numpy as np
from msgspec import Meta

from loadgen.draws import generator
from loadgen.world.communication import all_reduce_s
from loadgen.world.gang import ProcessTimes
from schemas.base import File
from schemas.cluster import Node
from schemas.jobs import Positive
from schemas.settings import WorldStructure
from shared.runtime.files import parse

Share = Annotated[float, Meta(ge=0, lt=1)]
BUCKETS = (5e6, 10e6, 25e6, 50e6, 100e6)
"""bytes: sizes that jobs may have set"""


class Structure(File, frozen=True, kw_only=True):
    """A variant; the defaults are the plain world."""

    about: str = ""
    bucket_bytes: Positive = 25e6
    """gradients leave in buckets of this size (PyTorch DDP); the last one overlaps with no computation"""
    buckets_by_job: bool = False
    """each job has its own size of buckets, one of BUCKETS"""
    message_a_bucket: bool = False
    """each bucket is a separate all-reduce, with its own latency"""
    head: Share = 0.1
    """share of the backward pass that is over before the first bucket is full"""
    protocols: bool = False
    """short messages go by a protocol of low latency and low bandwidth: time is not linear in size"""
    slowed_backward: Share = 0.0
    """share of the time of overlap with the exchange by which the backward pass is longer"""
    contention: Share = 0.0
    """share by which other jobs on a full node lengthen loading and the script's own time, at most"""
    clocks: Share = 0.0
    """share by which the clocks of a node's GPUs are lower when all of them are busy"""
    inputs: Share = 0.0
    """standard deviation of the size of a batch, as a share of its mean"""

    def bucket_of(self, job: str) -> float:
        if not self.buckets_by_job:
            return self.bucket_bytes
        return BUCKETS[int(generator("bucket", job).integers(len(BUCKETS)))]

    def exchange_s(
        self, ring: Sequence[tuple[Node, int]], size: float, paths: Sequence[float], rivals: float, job: str
    ) -> float:
        """Seconds to exchange the gradients of an iteration, `size` bytes."""
        messages = ceil(size / self.bucket_of(job)) if self.message_a_bucket else 1
        return messages * all_reduce_s(ring, size / messages, paths, rivals, protocols=self.protocols)

    def strained(
        self, times: ProcessTimes, members: Sequence[tuple[Node, int]], random: np.random.Generator
    ) -> ProcessTimes:
        """The times as other jobs on the nodes lengthen them; how much is drawn."""
        if not (self.contention or self.clocks):
            return times
        own = np.array([gpus / node.gpus for node, gpus in members])
        others = (1.0 - own) * random.random(len(members))
        hosts = (1.0 + self.contention * others)[times.node]
        clocks = (1.0 - self.clocks * (own + others))[times.node]
        return msgspec.structs.replace(
            times,
            forward_s=times.forward_s / clocks,
            backward_s=times.backward_s / clocks,
            update_s=times.update_s * hosts,
            hit_s=times.hit_s * hosts,
            miss_s=times.miss_s * hosts,
        )


PLAIN = Structure()


def structure_of(name: WorldStructure) -> Structure:
    return structures()[name]


@cache
def structures() -> dict[str, Structure]:
    text = resources.files(__package__).joinpath("structures.yaml").read_text("utf-8")
    return parse(text, "world/structures.yaml", dict[str, Structure])
