"""The machines that jobs are matched to: GPUs by kind, and when each is free. Pure."""

from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec

from schemas.ids import GpuType, NodeId
from schemas.placement import Configuration, Gang, Relaxed
from services.planner.policies.contract.decision import Choice
from services.planner.policies.contract.view import View, ViewJob, ViewNode
from services.planner.policies.kit.gangs import place, pools
from shared.domain import in_turns

SOON_S = 1e-3
"""the least time after which a GPU in use counts as free, even if its job should have ended already"""


class Kind(msgspec.Struct, frozen=True):
    """GPUs that are alike to every job."""

    gpu_type: GpuType
    relaxed: bool = False
    """whether their nodes run relaxed gangs, so that one GPU can compute all tasks of a round one after
    another; false wherever a machine is a gang"""

    def runs(self, job: ViewJob, tasks: int) -> bool:
        """Whether it can run a job's rounds of so many tasks; several on one GPU need relaxed gangs."""
        able = tasks == 1 or not self.relaxed or not job.lacks({Relaxed})
        return self.gpu_type in job.gpu_types and able


class Machines(msgspec.Struct, frozen=True, kw_only=True):
    kinds: tuple[Kind, ...]
    """in alphabetical order of their types"""
    nodes: tuple[tuple[ViewNode, ...], ...]
    """by kind"""
    idle: dict[NodeId, int]
    """by node: GPUs that no job has"""
    free_in_s: tuple[tuple[float, ...], ...]
    """d by kind and GPU, ascending: seconds until it is free; 0: it is idle"""

    def gpus(self, kind: int) -> int:
        """All GPUs of a kind that the plan may use, idle or not."""
        return len(self.free_in_s[kind])

    def empty(self, kind: int, gpus: int) -> Configuration:
        """A place for `gpus` GPUs of a kind, if all were idle; the kind must have as many."""
        return _found(self.nodes[kind], gpus, {node.node_id: node.idle for node in self.nodes[kind]})

    def room(self, kind: int, gpus: int, idle: Mapping[NodeId, int]) -> Configuration:
        """A place on the `idle` GPUs of a kind; empty: there is no room."""
        return _found(self.nodes[kind], gpus, idle)


def machines(
    view: View, kept: Sequence[Choice], idle: dict[NodeId, int], left_s: Sequence[float], *, in_gangs: bool
) -> Machines:
    """The machines of a view.

    `left_s`: seconds that each of the `kept` jobs still runs; `idle`: the GPUs that they leave, by node;
    `in_gangs`: each task of a round has a GPU of its own.
    """
    groups: dict[Kind, list[ViewNode]] = {}
    for node in view.nodes:
        if node.idle > 0:
            groups.setdefault(_kind_of(node, in_gangs=in_gangs), []).append(node)
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


def whole_sizes(view: View, *, in_gangs: bool) -> Mapping[Kind, int]:
    """All GPUs of each kind, those included that are used for measurements now."""
    sizes: Counter[Kind] = Counter()
    for node in view.nodes:
        sizes[_kind_of(node, in_gangs=in_gangs)] += node.gpus
    return sizes


def _kind_of(node: ViewNode, *, in_gangs: bool) -> Kind:
    return Kind(node.gpu_type, not in_gangs and Relaxed.tag() in node.modes)


def _busy(kept: Sequence[Choice], left_s: Sequence[float]) -> dict[NodeId, list[float]]:
    """By node: in how many seconds each GPU in use is free. A rota's GPU is free once all its jobs end."""
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
