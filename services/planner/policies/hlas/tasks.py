"""The tasks of one round on the GPUs of a job. Pure."""

import heapq
import math
from collections.abc import Mapping, Sequence
from typing import Literal

from schemas.ids import NodeId
from schemas.placement import Configuration, Gang, Relaxed

Fill = Literal["spread", "one-each"]


def earliest_end(task_s: Sequence[float], tasks: int) -> list[int]:
    """Tasks by GPU, each given to the GPU on which it ends first; ties: the lower index."""
    ends = [(each, index) for index, each in enumerate(task_s)]
    heapq.heapify(ends)
    given = [0] * len(task_s)
    for _ in range(tasks):
        index = ends[0][1]
        given[index] += 1
        heapq.heapreplace(ends, (task_s[index] * (given[index] + 1), index))
    return given


def in_waves(gpus: int, tasks: int) -> list[int]:
    """Tasks by GPU, given to the GPUs in turn."""
    whole, rest = divmod(tasks, gpus)
    return [whole + (index < rest) for index in range(gpus)]


def groups_needed(tasks: int, gpus: int, groups: int) -> int:
    """How many groups a job needs so that there is a GPU for each task. `gpus`: in all groups together."""
    return max(math.ceil(tasks * groups / gpus), 1) if gpus else 1


def gang(place: Configuration, task_s: Mapping[NodeId, float], tasks: int, fill: Fill) -> Gang:
    """The relaxed gang of a job on a place, without GPUs that get no task.

    `task_s`: seconds of a task on one GPU, by node.
    """
    owner = [node_id for node_id in sorted(place) for _ in range(place[node_id])]
    each = [task_s[node_id] for node_id in owner]
    given = earliest_end(each, tasks) if fill == "spread" else in_waves(len(owner), tasks)
    by_node: dict[NodeId, list[int]] = {}
    for node_id, count in zip(owner, given, strict=True):
        if count:
            by_node.setdefault(node_id, []).append(count)
    members = {node_id: len(counts) for node_id, counts in by_node.items()}
    return Gang.of(members, Relaxed(tasks=tuple(map(tuple, by_node.values()))))
