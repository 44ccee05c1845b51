"""Has agents time all-reduces on their nodes, by questions on the bus, a few nodes at a time."""

from collections.abc import Container, Iterable, Sequence
from typing import TypeVar

import msgspec

from schemas.base import Message
from schemas.calibration import AllReduceMeeting, AllReduceTimes, Ring
from schemas.cluster import Node
from schemas.ids import NodeId
from schemas.questions import JoinAllReduce, OpenAllReduce
from services.estimator.theory.calibration import REPEATS, SIZES, Timing, between, inside
from shared.runtime.bus.contract import Questions, Unavailable
from shared.runtime.tasks import Tasks

AT_ONCE = 16
"""leaders that measure at the same time, each one ring after the other"""
TIMEOUT_REAL_S = 60.0
M = TypeVar("M", bound=Message)


class NotMeasured(Exception):
    """A ring could not be timed; the text says why."""


async def measured(
    bus: Questions, tasks: Tasks, nodes: Sequence[Node]
) -> tuple[list[Timing], dict[NodeId, str]]:
    """The timings of all rings, and the nodes without timings, each with the reason.

    In place of a node that is left out the next of its type is timed.
    """
    alone: list[Timing] = []
    left_out: dict[NodeId, str] = {}
    asked: set[NodeId] = set()
    while rings := [ring for ring in inside(_without(nodes, left_out)) if _leader(ring) not in asked]:
        timings, more = await _timed(bus, tasks, rings)
        alone += timings
        left_out |= more
        asked |= set(map(_leader, rings))
    pairs, more = await _timed(bus, tasks, between(_without(nodes, left_out)))
    return [*alone, *pairs], {**more, **left_out}


def _without(nodes: Sequence[Node], left_out: Container[NodeId]) -> list[Node]:
    return [node for node in nodes if node.node_id not in left_out]


def _leader(ring: Ring) -> NodeId:
    return ring.members[0][0].node_id


async def _timed(
    bus: Questions, tasks: Tasks, rings: Iterable[Ring]
) -> tuple[list[Timing], dict[NodeId, str]]:
    of_leader: dict[NodeId, list[Ring]] = {}
    for ring in rings:
        of_leader.setdefault(_leader(ring), []).append(ring)
    by_node: dict[NodeId, list[Timing] | str] = {}
    waiting = iter(of_leader.items())

    async def slot() -> None:
        for node_id, of_node in waiting:
            by_node[node_id] = await _in_turn(bus, tasks, of_node)

    await tasks.all(slot() for _ in range(min(AT_ONCE, len(of_leader))))
    answers = [by_node[node_id] for node_id in of_leader]
    timings = [one for answer in answers if not isinstance(answer, str) for one in answer]
    return timings, {node_id: reason for node_id, reason in by_node.items() if isinstance(reason, str)}


async def _in_turn(bus: Questions, tasks: Tasks, rings: Iterable[Ring]) -> list[Timing] | str:
    """The timings of all rings of one leader, or the reason why the first that failed has none."""
    timings = []
    for ring in rings:
        try:
            times = await _times(bus, tasks, ring)
        except NotMeasured as error:
            return str(error)
        if not _whole(times):
            return "its agent's answer is incomplete, or has times that are not positive numbers"
        timings.append(Timing(ring, times))
    return timings


async def _times(bus: Questions, tasks: Tasks, ring: Ring) -> AllReduceTimes:
    """What the ring's first node timed while the others took part. Raises NotMeasured."""
    nodes = [node.node_id for node, _ in ring.members]
    opened = [OpenAllReduce(node_id=node_id, ring=ring, sizes=SIZES) for node_id in nodes]
    first, *_ = await tasks.all(_asked(bus, question, AllReduceMeeting, nodes[0]) for question in opened)
    parts = [
        JoinAllReduce(node_id=node_id, ring=ring, sizes=first.sizes, repeats=REPEATS, meeting=first.meeting)
        for node_id in nodes
    ]
    times, *_ = await tasks.all(_asked(bus, question, AllReduceTimes, nodes[0]) for question in parts)
    return msgspec.structs.replace(times, sizes=() if first.sizes == SIZES else first.sizes)


async def _asked(bus: Questions, question: OpenAllReduce | JoinAllReduce, kind: type[M], leader: NodeId) -> M:
    whose = "its" if question.node_id == leader else f"{question.node_id}: its"
    try:
        reply = await bus.ask(question, TIMEOUT_REAL_S)
    except Unavailable as error:
        raise NotMeasured(f"{whose} agent does not answer: {error}") from None
    if not isinstance(reply, kind):
        reason = str(getattr(reply, "reason", "refused"))
        raise NotMeasured(reason if question.node_id == leader else f"{question.node_id}: {reason}")
    return reply


def _whole(times: AllReduceTimes) -> bool:
    """Whether every size was timed as often as asked for."""
    rows = times.seconds
    alike = len(rows) == len(times.sizes or SIZES) and all(len(row) == REPEATS for row in rows)
    numbers = [*times.sizes, *(seconds for row in rows for seconds in row)]
    return alike and all(0 < number < float("inf") for number in numbers)
