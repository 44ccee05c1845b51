"""The state of a node as facts tell it: one struct and one fold, used by every service that keeps nodes.

    joined → alive ⇄ lost → removed

A drain lasts until the node is restored or removed, also over a loss and a restart of the agent. An agent
that leaves, because its node's time is over, has left until an agent starts on the node again. GPUs are
withheld until the agent restarts; `node` has only the GPUs that jobs can get. A lost node that was removed
counts as one that never joined, until its agent is heard again.
"""

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, TypeVar

import msgspec

from schemas.cluster import Node
from schemas.events import (
    GpusWithheld,
    NodeDrained,
    NodeEvent,
    NodeJoined,
    NodeLost,
    NodeRemoved,
    NodeRestored,
    NodeReturned,
)
from schemas.ids import NodeId
from schemas.placement import ONLY_LOCKSTEP


class KnownNode(msgspec.Struct, kw_only=True, dict=True):
    """A node that has joined at least once. Services that keep more about nodes extend it."""

    whole: Node
    """the node with all its GPUs, since a snapshot cannot hold a node without GPUs"""
    life: str = ""
    """the newest life of its agent"""
    modes: tuple[str, ...] = ONLY_LOCKSTEP
    """modes of the gangs that it runs"""
    workloads: tuple[str, ...] = ()
    """workloads that it knows, as in `NodeJoined`; empty: any"""
    runs_commands: bool = False
    """whether it runs the commands of jobs"""
    residents_max: int = 0
    """processes of relaxed jobs that one of its GPUs has at most; 0: none stands by there"""
    alive: bool = True
    draining: bool = False
    drained_for: str = ""
    """why it drains; empty: it does not, or no reason was given"""
    leaving: bool = False
    """whether its agent leaves, since the node's time is nearly over"""
    leaving_for: str = ""
    """why its agent leaves; empty: as above"""
    withheld: dict[int, str] = {}
    """GPUs that no job gets, by index, and why"""
    removed: bool = False
    """whether it counts as one that never joined; then it is not alive"""

    @property
    def emptied(self) -> bool:
        """Whether jobs that run on the node have to move away."""
        return self.draining or self.leaving

    @property
    def usable(self) -> bool:
        """Whether something new may start on it."""
        return self.alive and not self.emptied and self.node.gpus > 0

    @cached_property
    def node(self) -> Node:
        """The node with the GPUs that are not withheld."""
        return _with_gpus(self.whole, self.whole.gpus - len(self.withheld))

    def withhold(self, gpus: Mapping[int, str]) -> None:
        self.withheld = {index: gpus[index] for index in sorted(gpus) if 0 <= index < self.whole.gpus}
        self.__dict__.pop("node", None)


N = TypeVar("N", bound=KnownNode)


def known_node(joined: NodeJoined) -> KnownNode:
    return as_joined(KnownNode(whole=joined.node), joined)


def as_joined(known: N, joined: NodeJoined) -> N:
    """The node as its `NodeJoined` describes it."""
    known.life, known.modes, known.workloads = joined.life, joined.modes, joined.workloads
    known.runs_commands, known.residents_max = joined.runs_commands, joined.residents_max
    known.whole = joined.node
    known.withhold(joined.withheld)
    return known


def fold_node(nodes: dict[NodeId, N], fact: NodeEvent, new: Callable[[NodeJoined], N]) -> None:
    """Fold a fact of `NODE_FOLDS`; `new` makes the entry of a node that joins for the first time.

    A fact about a node that never joined changes nothing.
    """
    known = nodes.get(fact.node_id)
    if known is not None:
        NODE_FOLDS[type(fact)](known, fact)
    elif isinstance(fact, NodeJoined):
        nodes[fact.node_id] = new(fact)


def _joined(known: KnownNode, fact: NodeJoined) -> None:
    if known.life != fact.life:
        known.leaving, known.leaving_for = False, ""
    known.alive, known.removed = True, False
    as_joined(known, fact)


def _lost(known: KnownNode, _: NodeLost) -> None:
    known.alive = False


def _returned(known: KnownNode, _: NodeReturned) -> None:
    known.alive, known.removed = True, False


def _removed(known: KnownNode, _: NodeRemoved) -> None:
    if not known.alive:  # else it came back before the fact
        known.removed = True
        known.draining, known.drained_for = False, ""


def _drained(known: KnownNode, fact: NodeDrained) -> None:
    if not fact.life:
        known.draining, known.drained_for = True, fact.reason
    elif fact.life == known.life:  # else it is over: the fact crossed the next life's NodeJoined
        known.leaving, known.leaving_for = True, fact.reason


def _restored(known: KnownNode, _: NodeRestored) -> None:
    known.draining, known.drained_for = False, ""


def _withheld(known: KnownNode, fact: GpusWithheld) -> None:
    known.withhold(fact.gpus)


def _with_gpus(node: Node, gpus: int) -> Node:
    return node if node.gpus == gpus else msgspec.structs.replace(node, gpus=gpus)


NODE_FOLDS: Mapping[type[NodeEvent], Callable[[KnownNode, Any], None]] = {
    NodeJoined: _joined,
    NodeLost: _lost,
    NodeReturned: _returned,
    NodeDrained: _drained,
    NodeRestored: _restored,
    NodeRemoved: _removed,
    GpusWithheld: _withheld,
}
