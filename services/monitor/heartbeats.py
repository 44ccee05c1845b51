"""When each node was last heard from, and which have been silent for too long. Volatile."""

from collections.abc import Iterable

from schemas.ids import NodeId


class Heartbeats:
    """Times of the last heartbeats of the nodes that count as alive, the oldest first."""

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._heard: dict[NodeId, float] = {}

    def heard(self, node_id: NodeId, now: float) -> None:
        self._heard.pop(node_id, None)
        self._heard[node_id] = now

    def begin(self, nodes: Iterable[NodeId], now: float) -> None:
        """Begin again with exactly these nodes."""
        self._heard = dict.fromkeys(nodes, now)

    def drop(self, node_id: NodeId) -> None:
        self._heard.pop(node_id, None)

    def first_end(self) -> float | None:
        """When the first silence is too long, if nobody is heard from before."""
        oldest = next(iter(self._heard.values()), None)
        return None if oldest is None else oldest + self._limit_s

    def slept_through(self, now: float) -> bool:
        """Whether the watcher is so late that it may have missed the heartbeats itself."""
        end = self.first_end()
        return end is not None and now - end > self._limit_s / 2

    def too_long(self, now: float) -> list[NodeId]:
        """Nodes that were silent for longer than the limit; they are no longer watched."""
        late = [node_id for node_id, heard in self._heard.items() if heard + self._limit_s <= now]
        for node_id in late:
            del self._heard[node_id]
        return late

    def of(self, node_id: NodeId, now: float) -> float | None:
        """Seconds since the node's last heartbeat; None: it is not watched."""
        heard = self._heard.get(node_id)
        return None if heard is None else max(now - heard, 0.0)
