"""The cluster: GPU types, nodes, and the files that describe them."""

from typing import Annotated

from msgspec import Meta

from schemas.base import File, Message
from schemas.ids import GpuType, NodeId
from schemas.jobs import Name, Positive
from schemas.numbers import GpuCount, PlainLine, Rate, Time

Bandwidth = Annotated[float, Meta(ge=1, le=1e18)]
"""bytes/s; far less, and times of exchanges would be beyond any number"""


class GpuTypeFile(File, frozen=True, kw_only=True):
    """Bandwidths of a GPU type for gradients, as measured offline (Hops eq. 2)."""

    link_bandwidth: Bandwidth
    """bytes/s that an all-reduce inside one node achieves"""
    network_bandwidth: Bandwidth
    """bytes/s that an all-reduce between nodes achieves"""


class NodeGroup(File, frozen=True, kw_only=True):
    """`count` equal nodes, named `v100-0`, `v100-1` and so on; `v100-00` if there are more than ten."""

    prefix: Name
    count: Annotated[int, Meta(ge=1, le=10_000)]
    gpus: Annotated[int, Meta(ge=1, le=64)]
    gpu_type: GpuType
    server: Name = "generic"
    """model of the server that holds the GPUs"""
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
    """A GPU of a machine, by its UUID, which never changes."""

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
    """A machine as its agent announces it; `hopyard node discover` writes this file for you to check."""

    name: Name
    gpu_type: Name
    """`cpu`, or a type that begins with `cpu-`: CPU slots"""
    gpus: (
        Annotated[int, Meta(ge=1, le=64)] | Annotated[tuple[GpuFile, ...], Meta(min_length=1, max_length=64)]
    )
    """the GPUs that jobs get, in the order of their indices; or their number: of CPU slots, or of the
    machine's first GPUs"""
    server: Name = "generic"
    """server model"""
    address: Address = ""
    """address at which other nodes reach it; empty: the one from which it reaches NATS"""
    link_bandwidth: Bandwidth
    """bytes/s that an all-reduce inside the node achieves"""
    network_bandwidth: Bandwidth
    """bytes/s that an all-reduce between nodes of this kind achieves"""


class Node(Message, frozen=True, kw_only=True, omit_defaults=True, cache_hash=True):
    """A node as its agent announces it."""

    node_id: NodeId
    gpu_type: GpuType
    gpus: GpuCount
    server: PlainLine
    link_bandwidth: Rate
    """bytes/s of an all-reduce inside the node"""
    network_bandwidth: Rate
    """bytes/s of an all-reduce between nodes"""
    address: PlainLine = ""
    """host name or IP at which other nodes reach it; empty: its jobs are emulated, or all nodes are on one
    machine"""
    until: Time | None = None
    """cluster time at which the node goes away; null: not known to go away"""
