"""How long a gang takes to reduce its gradients: rings with latency, inside a node and between nodes.

A cluster file gives a bandwidth B for which a large all-reduce over whole nodes takes

    inside a node   bytes / B · (N − 1) / N        between nodes   bytes / B          (Hops eq. 2)

Behind it stands a ring with bus bandwidth 2B and 2(N − 1) steps. So the truth is

    T = bytes · 2(N − 1)/N / (2B · achieved) + 2(N − 1) · latency

where `achieved` is a factor of the server's own paths. It is less for small messages, for a ring across both
sockets, for few GPUs per network card, and for a card that other jobs use as well. With `protocols` a message
goes by the faster of two: this one, or one of less latency and less bandwidth (NCCL's LL128).
"""

from collections.abc import Sequence

from schemas.cluster import Node

LINK_LATENCY_S = 12e-6
"""one hop between GPUs of a server, protocol and kernel start included"""
NETWORK_LATENCY_S = 35e-6
"""one hop between servers, staged through host memory"""
HALF_SPEED_BYTES = 1.5e6
"""size of message at which a path reaches half its bandwidth"""
SOCKETS_SHARE = 0.88
"""share of its bandwidth that a ring keeps when it crosses the link between two sockets"""
SHORT_LATENCY, SHORT_BANDWIDTH = 0.3, 0.8
"""latency and bandwidth of the protocol for short messages, as shares of the other protocol's"""
RIVALS_SHARE = 0.35
"""share of a network card's bandwidth that other jobs on the same server take at most"""


def all_reduce_s(
    gang: Sequence[tuple[Node, int]],
    size: float,
    paths: Sequence[float],
    rivals: float,
    *,
    protocols: bool = False,
) -> float:
    """Seconds to reduce `size` bytes.

    `paths`: each server's own factor on its bandwidths. `rivals`: 0 … 1, how busy the network is.
    """
    members = sum(gpus for _, gpus in gang)
    if members == 1:
        return 0.0
    reach = size / (size + HALF_SPEED_BYTES)
    if len(gang) == 1:
        node, gpus = gang[0]
        bandwidth, latency_s = _inside(node, gpus) * paths[0], LINK_LATENCY_S
    else:
        bandwidth = min(
            _between(node, gpus, rivals) * path for (node, gpus), path in zip(gang, paths, strict=True)
        )
        latency_s = NETWORK_LATENCY_S
    steps = 2 * (members - 1)
    moving_s, waiting_s = size * steps / members / (2 * bandwidth), steps * latency_s
    long_s = moving_s / reach + waiting_s
    return min(long_s, moving_s / SHORT_BANDWIDTH + waiting_s * SHORT_LATENCY) if protocols else long_s


def _inside(node: Node, gpus: int) -> float:
    return node.link_bandwidth * (SOCKETS_SHARE if 2 * gpus > node.gpus > 2 else 1.0)  # noqa: PLR2004 - one socket


def _between(node: Node, gpus: int, rivals: float) -> float:
    filled = (gpus + 1) / (gpus + 2)  # a single GPU keeps a card two thirds busy
    others = 1.0 - gpus / node.gpus
    return node.network_bandwidth * filled * (1.0 - RIVALS_SHARE * others * rivals) * _FULL


_FULL = 1.08  # so that two full servers of eight achieve what was measured on them
