"""The cluster: GPU types, nodes, and the files that describe them."""

from typing import Annotated

from msgspec import Meta

from schemas.base import File, Message
from schemas.ids import GpuType, NodeId
from schemas.jobs import Name, Positive
from schemas.numbers import GpuCount, PlainLine, Rate, Time


class GpuTypeFile(File, frozen=True, kw_only=True):
    """What is known of a GPU type's paths for gradients, as measured offline (Hops eq. 2)."""

    link_bandwidth: Positive
    """bytes/s that an all-reduce inside one node achieves"""
    network_bandwidth: Positive
    """bytes/s that an all-reduce between nodes achieves"""


class NodeGroup(File, frozen=True, kw_only=True):
    """`count` nodes alike, named `prefix-00`, `prefix-01` and so on."""

    prefix: Name
    count: Annotated[int, Meta(ge=1, le=10_000)]
    gpus: Annotated[int, Meta(ge=1, le=64)]
    gpu_type: GpuType
    server: Name = "generic"
    """server model: which host carries the GPUs"""
    until: float | None = None
    """cluster time at which they go away; null: they stay"""


class ClusterFile(File, frozen=True, kw_only=True):
    name: Name
    gpu_types: Annotated[dict[GpuType, GpuTypeFile], Meta(min_length=1)]
    nodes: Annotated[list[NodeGroup], Meta(min_length=1)]


Address = Annotated[
    str,
    Meta(
        pattern=r"^([A-Za-z0-9]([A-Za-z0-9.:-]{0,251}[A-Za-z0-9])?|::1)?$(?!\n)",
        description="a host name or an IP address",
    ),
]


class GpuFile(File, frozen=True, kw_only=True):
    """A GPU of a machine, by the name that never changes."""

    uuid: Annotated[
        str,
        Meta(
            pattern=r"^GPU-[0-9a-fA-F-]{8,60}$(?!\n)",
            description="GPU- and a UUID, as nvidia-smi -L prints it",
        ),
    ]
    memory: Positive | None = None
    """bytes"""


class NodeFile(File, frozen=True, kw_only=True):
    """One machine as its agent announces it: what `hopyard node discover` writes, to be looked over."""

    name: Name
    gpu_type: Name
    """one that begins with `cpu` stands for slots of the CPU"""
    gpus: (
        Annotated[int, Meta(ge=1, le=64)] | Annotated[tuple[GpuFile, ...], Meta(min_length=1, max_length=64)]
    )
    """GPUs that jobs get, in the order of their indices; a number alone: so many CPU slots, or so many of the
    machine's GPUs, the first ones"""
    server: Name = "generic"
    """server model"""
    address: Address = ""
    """at which other nodes reach it; empty: the one from which it reaches NATS"""
    link_bandwidth: Positive
    """bytes/s that an all-reduce inside the node achieves"""
    network_bandwidth: Positive
    """bytes/s that an all-reduce between such nodes achieves"""


class Node(Message, frozen=True, kw_only=True, omit_defaults=True, cache_hash=True):
    """A server as its agent announces it. Nodes of one type are neighbours in the order of their ids."""

    node_id: NodeId
    gpu_type: GpuType
    gpus: GpuCount
    server: PlainLine
    link_bandwidth: Rate
    """bytes/s, inside the node"""
    network_bandwidth: Rate
    """bytes/s, between nodes"""
    address: PlainLine = ""
    """host name or IP by which other nodes reach it; empty: they need not, its jobs are emulated"""
    until: Time | None = None
    """cluster time at which the node goes away; null: not known to go"""
