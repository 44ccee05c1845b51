"""What facts say of a node, for all who keep nodes: where it is in its life, as one struct and one table.

    joined → alive ⇄ lost

A drain lasts until the node is restored: it outlives a loss and a new life of the agent.
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import msgspec

from schemas.cluster import Node
from schemas.events import NodeDrained, NodeEvent, NodeJoined, NodeLost, NodeRestored, NodeReturned
from schemas.ids import NodeId
from schemas.placement import ONLY_LOCKSTEP


class KnownNode(msgspec.Struct, kw_only=True):
    """A node that joined once. Whoever keeps more about nodes extends it, or keeps it beside."""

    node: Node
    life: str = ""
    """of its agent, as it joined last"""
    modes: tuple[str, ...] = ONLY_LOCKSTEP
    """how gangs may synchronise that it runs"""
    workloads: tuple[str, ...] = ()
    """what can train there, as `NodeJoined` has it; empty: anything"""
    runs_commands: bool = False
    """whether it starts the command of a job"""
    alive: bool = True
    draining: bool = False

    @property
    def usable(self) -> bool:
        """Whether something new may start on it."""
        return self.alive and not self.draining


N = TypeVar("N", bound=KnownNode)


def known_node(joined: NodeJoined) -> KnownNode:
    return KnownNode(
        node=joined.node,
        life=joined.life,
        modes=joined.modes,
        workloads=joined.workloads,
        runs_commands=joined.runs_commands,
    )


def fold_node(nodes: dict[NodeId, N], fact: NodeEvent, new: Callable[[NodeJoined], N]) -> None:
    """Take a fact of `NODE_FOLDS` into account; `new` makes the entry of a node that joins first.

    A fact about a node that never joined changes nothing.
    """
    known = nodes.get(fact.node_id)
    if known is not None:
        NODE_FOLDS[type(fact)](known, fact)
    elif isinstance(fact, NodeJoined):
        nodes[fact.node_id] = new(fact)


def _joined(known: KnownNode, fact: NodeJoined) -> None:
    known.node, known.life, known.modes, known.alive = fact.node, fact.life, fact.modes, True
    known.workloads, known.runs_commands = fact.workloads, fact.runs_commands


def _lost(known: KnownNode, _: NodeLost) -> None:
    known.alive = False


def _returned(known: KnownNode, _: NodeReturned) -> None:
    known.alive = True


def _drained(known: KnownNode, _: NodeDrained) -> None:
    known.draining = True


def _restored(known: KnownNode, _: NodeRestored) -> None:
    known.draining = False


NODE_FOLDS: Mapping[type[NodeEvent], Callable[[KnownNode, Any], None]] = {
    NodeJoined: _joined,
    NodeLost: _lost,
    NodeReturned: _returned,
    NodeDrained: _drained,
    NodeRestored: _restored,
}
