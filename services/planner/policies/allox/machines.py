"""The machines that jobs are matched to: GPUs by kind, and when each is free. Pure."""

from collections.abc import Mapping, Sequence

import msgspec

from schemas.ids import GpuType, NodeId
from schemas.placement import Configuration, Gang, Relaxed
from services.planner.policies.contract.decision import Choice
from services.planner.policies.contract.view import View, ViewJob, ViewNode
from services.planner.policies.kit.gangs import place, pools
from shared.domain import in_turns

SOON_S = 1e-3
"""a GPU in use is free no sooner, however late its job is"""


class Kind(msgspec.Struct, frozen=True):
    """GPUs that are alike to every job."""

    gpu_type: GpuType
    relaxed: bool = False
    """whether their nodes let tasks of a round follow one another, where that matters"""

    def runs(self, job: ViewJob) -> bool:
        return self.gpu_type in job.gpu_types and not (self.relaxed and job.lacks({Relaxed}))


class Machines(msgspec.Struct, frozen=True, kw_only=True):
    kinds: tuple[Kind, ...]
    """in alphabetical order of their types"""
    nodes: tuple[tuple[ViewNode, ...], ...]
    """by kind"""
    idle: dict[NodeId, int]
    """GPUs that nobody has"""
    free_in_s: tuple[tuple[float, ...], ...]
    """d by kind and GPU, ascending; 0: idle"""

    def gpus(self, kind: int) -> int:
        """All of them, idle or not."""
        return len(self.free_in_s[kind])

    def empty(self, kind: int, gpus: int) -> Configuration:
        """Where so many GPUs would be if all were idle; there are as many."""
        return _found(self.nodes[kind], gpus, {node.node_id: node.idle for node in self.nodes[kind]})

    def room(self, kind: int, gpus: int, idle: Mapping[NodeId, int]) -> Configuration:
        """Empty: there is none."""
        return _found(self.nodes[kind], gpus, idle)


def machines(
    view: View, kept: Sequence[Choice], idle: dict[NodeId, int], left_s: Sequence[float], *, in_gangs: bool
) -> Machines:
    """`left_s`: how long each of those that are `kept` still runs; `idle`: what they leave.

    `in_gangs`: all tasks of a round have a GPU each.
    """
    groups: dict[Kind, list[ViewNode]] = {}
    for node in view.nodes:
        if node.idle > 0:
            groups.setdefault(Kind(node.gpu_type, not in_gangs and Relaxed.tag() in node.modes), []).append(
                node
            )
    busy = _busy(kept, left_s)
    kinds = sorted(groups, key=lambda kind: (kind.gpu_type, kind.relaxed))
    return Machines(
        kinds=tuple(kinds),
        nodes=tuple(tuple(groups[kind]) for kind in kinds),
        idle=idle,
        free_in_s=tuple(
            tuple(
                sorted(
                    free_s
                    for node in groups[kind]
                    for free_s in (*busy.get(node.node_id, ()), *[0.0] * idle[node.node_id])
                )
            )
            for kind in kinds
        ),
    )


def _busy(kept: Sequence[Choice], left_s: Sequence[float]) -> dict[NodeId, list[float]]:
    """When each GPU in use is free, by node. GPUs of a rota are free when the last of its jobs has ended."""
    ends: dict[str, tuple[Gang, float]] = {}
    for choice, seconds in zip(kept, left_s, strict=True):
        holder = in_turns.holder(choice.job_id, choice.gang)
        _, known_s = ends.get(holder, (choice.gang, SOON_S))
        ends[holder] = choice.gang, max(known_s, seconds)
    busy: dict[NodeId, list[float]] = {}
    for gang, seconds in ends.values():
        for one in gang.members:
            busy.setdefault(one.node, []).extend([seconds] * one.gpus)
    return busy


def _found(nodes: Sequence[ViewNode], gpus: int, idle: Mapping[NodeId, int]) -> Configuration:
    own = pools((node.node_id, node.gpu_type, node.gpus) for node in nodes)
    return place(gpus, types=tuple(own), pools=own, free=idle) or {}
