"""Calibration: timed all-reduces, and the latencies and bandwidths that follow from them (Hops eq. 2)."""

from typing import Annotated

from msgspec import Meta

from schemas.base import Message
from schemas.cluster import Node
from schemas.ids import GpuType, NodeId
from schemas.numbers import Amount, GpuCount, Rate, Time, WholeNumber


class AllReduceTimes(Message, frozen=True, kw_only=True):
    """Times of all-reduces, one for each size and repetition."""

    seconds: tuple[tuple[float, ...], ...]
    """the times of each of `sizes`, or of each size asked for; empty: the reply of a node that is not the
    first of the ring"""
    sizes: tuple[float, ...] = ()
    """bytes of the all-reduces that were timed; empty: the sizes asked for. On CPU slots they are smaller"""


class AllReduceMeeting(Message, frozen=True, kw_only=True):
    """A node can take part in all-reduces."""

    meeting: str
    """`host:port` at which all nodes meet if this node is the first of the ring"""
    sizes: tuple[float, ...]
    """bytes that the node times in place of those asked for"""


class Ring(Message, frozen=True, kw_only=True):
    """The nodes and GPUs of one timed all-reduce, the leader first."""

    members: Annotated[tuple[tuple[Node, GpuCount], ...], Meta(min_length=1)]

    @property
    def gpus(self) -> int:
        return sum(gpus for _, gpus in self.members)

    @property
    def distributed(self) -> bool:
        return len(self.members) > 1


class Path(Message, frozen=True, kw_only=True, cache_hash=True):
    """The time of a gang's gradient exchange: T_c = latency + moved / bandwidth; `moved`: bytes by eq. 2."""

    distributed: bool
    gpus: Annotated[int, Meta(ge=0, le=100_000)]
    """GPUs of each node; 0: any number"""
    latency_s: Amount
    bandwidth: Rate
    """bytes/s"""


class BandwidthRow(Message, frozen=True, kw_only=True):
    """The paths of one GPU type, bytes/s; None: nothing was measured."""

    gpu_type: GpuType
    link: Rate | None
    """B_link: an all-reduce inside one node"""
    network: Rate | None
    """B_net: an all-reduce between nodes"""
    at: Time
    """cluster time of the measurement"""
    measurements: WholeNumber
    error: Amount
    """mean of |T_c measured − T_c by its path| / T_c measured"""
    paths: tuple[Path, ...] = ()
    """by shape of the gang; predictions use these"""


class Calibration(Message, frozen=True, kw_only=True):
    rows: tuple[BandwidthRow, ...]
    """a row for each type that was ever measured, in alphabetical order"""
    left_out: dict[NodeId, str] = {}
    """nodes that were not measured this time, with the reason"""
