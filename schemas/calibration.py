"""Measured paths of gradients: what was timed, and the bandwidths that follow (Hops eq. 2)."""

from typing import Annotated

from msgspec import Meta

from schemas.base import Message
from schemas.cluster import Node
from schemas.ids import GpuType, NodeId
from schemas.numbers import GpuCount


class AllReduceTimes(Message, frozen=True, kw_only=True):
    """What an agent timed: one all-reduce for each size and repetition."""

    seconds: tuple[tuple[float, ...], ...]
    """time of an all-reduce by size, in the order asked for, or that of `sizes`; empty where a node answers
    that is not the first"""
    sizes: tuple[float, ...] = ()
    """bytes that were timed, if not those that were asked for (where CPU slots stand for GPUs)"""


class AllReduceMeeting(Message, frozen=True, kw_only=True):
    meeting: str
    """`host:port` where all nodes meet if the one asked is the first"""
    sizes: tuple[float, ...]
    """bytes that the node can time, in place of those asked for"""


class Ring(Message, frozen=True, kw_only=True):
    """The nodes and GPUs of one timed all-reduce, the leader first."""

    members: Annotated[tuple[tuple[Node, GpuCount], ...], Meta(min_length=1)]

    @property
    def gpus(self) -> int:
        return sum(gpus for _, gpus in self.members)

    @property
    def distributed(self) -> bool:
        return len(self.members) > 1


class Path(Message, frozen=True, kw_only=True):
    """What a gang's gradients take: T_c = latency + moved / bandwidth, with the bytes that eq. 2 moves."""

    distributed: bool
    gpus: Annotated[int, Meta(ge=0)]
    """GPUs of each node; 0: any number"""
    latency_s: Annotated[float, Meta(ge=0)]
    bandwidth: Annotated[float, Meta(gt=0)]
    """bytes/s"""


class BandwidthRow(Message, frozen=True, kw_only=True):
    """The paths of one GPU type, bytes/s; None: nothing was measured."""

    gpu_type: GpuType
    link: float | None
    """B_link: an all-reduce inside one node"""
    network: float | None
    """B_net: an all-reduce between nodes"""
    at: float
    """cluster time of the measurement"""
    measurements: int
    error: float
    """mean |T_c measured − T_c by its path| / T_c measured"""
    paths: tuple[Path, ...] = ()
    """gang by gang: what predictions rest on"""


class Calibration(Message, frozen=True, kw_only=True):
    rows: tuple[BandwidthRow, ...]
    """a row for each type that was ever measured, in alphabetical order"""
    left_out: dict[NodeId, str] = {}
    """nodes that did not measure this time, and why"""
