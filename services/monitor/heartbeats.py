"""The time of each node's last heartbeat, and which nodes have sent none for too long. Volatile."""

from collections.abc import Iterable

from schemas.ids import NodeId


class Heartbeats:
    """`limit_s`: seconds without a heartbeat after which a node counts as silent.

    It watches only alive nodes.
    """

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._heard: dict[NodeId, float] = {}
        """time of the last heartbeat, the oldest first"""

    def heard(self, node_id: NodeId, now: float) -> None:
        self._heard.pop(node_id, None)
        self._heard[node_id] = now

    def restart(self, nodes: Iterable[NodeId], now: float) -> None:
        """Watch exactly these nodes, as if each had sent a heartbeat now."""
        self._heard = dict.fromkeys(nodes, now)

    def drop(self, node_id: NodeId) -> None:
        self._heard.pop(node_id, None)

    def first_timeout(self) -> float | None:
        """When the first node becomes silent, if no heartbeat comes before; None: no node is watched."""
        oldest = next(iter(self._heard.values()), None)
        return None if oldest is None else oldest + self._limit_s

    def watcher_was_late(self, now: float) -> bool:
        """Whether this call is so late that the monitor itself, not a node, may have been stopped."""
        end = self.first_timeout()
        return end is not None and now - end > self._limit_s / 2

    def take_silent(self, now: float) -> list[NodeId]:
        """Return the silent nodes, and stop watching them."""
        late = [node_id for node_id, heard in self._heard.items() if heard + self._limit_s <= now]
        for node_id in late:
            del self._heard[node_id]
        return late

    def age_s(self, node_id: NodeId, now: float) -> float | None:
        """Seconds since the node's last heartbeat; None: it is not watched."""
        heard = self._heard.get(node_id)
        return None if heard is None else max(now - heard, 0.0)
