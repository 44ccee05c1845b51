"""Who was heard from, and whose silence has lasted too long. Volatile: a restart begins every lease anew."""

from collections.abc import Iterable

from schemas.ids import NodeId


class Leases:
    """Times of the last heartbeats of the nodes that count as alive, the oldest first."""

    def __init__(self, lease_s: float) -> None:
        self._lease_s = lease_s
        self._heard: dict[NodeId, float] = {}

    def renew(self, node_id: NodeId, now: float) -> None:
        self._heard.pop(node_id, None)
        self._heard[node_id] = now

    def renew_all(self, nodes: Iterable[NodeId], now: float) -> None:
        """Begin again with exactly these nodes."""
        self._heard = dict.fromkeys(nodes, now)

    def drop(self, node_id: NodeId) -> None:
        self._heard.pop(node_id, None)

    def first_end(self) -> float | None:
        """When the next lease ends, if nobody is heard from before."""
        oldest = next(iter(self._heard.values()), None)
        return None if oldest is None else oldest + self._lease_s

    def slept_through(self, now: float) -> bool:
        """Whether the watcher is so late that it may have missed the heartbeats itself."""
        end = self.first_end()
        return end is not None and now - end > self._lease_s / 2

    def expired(self, now: float) -> list[NodeId]:
        """Nodes whose lease is over; they are no longer watched."""
        late = [node_id for node_id, heard in self._heard.items() if heard + self._lease_s <= now]
        for node_id in late:
            del self._heard[node_id]
        return late

    def silence_s(self, node_id: NodeId, now: float) -> float | None:
        heard = self._heard.get(node_id)
        return None if heard is None else max(now - heard, 0.0)
