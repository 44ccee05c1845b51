"""Has agents time all-reduces on their nodes, by questions on the bus, a few nodes at a time."""

from collections.abc import Container, Iterable, Sequence
from typing import TypeVar

import msgspec

from schemas.base import Message
from schemas.calibration import AllReduceMeeting, AllReduceTimes, Ring
from schemas.cluster import Node
from schemas.codec import Malformed
from schemas.ids import NodeId
from schemas.questions import JoinAllReduce, OpenAllReduce
from services.estimator.theory.calibration import REPEATS, SIZES, Timing, between, inside
from shared.runtime.bus.contract import Questions, Unavailable
from shared.runtime.tasks import Tasks

AT_ONCE = 16
"""leaders that measure at the same time, each one ring after the other"""
TIMEOUT_REAL_S = 60.0
BYTES_MOST = 1e15
SHORTEST_S, LONGEST_S = 1e-9, 1e6
"""what all-reduces can move and take, so that bandwidths which follow are numbers that messages can have"""
M = TypeVar("M", bound=Message)


class NotMeasured(Exception):
    """A ring could not be timed."""

    def __init__(self, node_id: NodeId, reason: str) -> None:
        """`node_id`: the node that was in the way."""
        super().__init__(reason)
        self.node_id = node_id


class NotBegun(NotMeasured):
    """A node refused to begin, as it does while its GPUs are in use."""


Timed = dict[NodeId, list[Timing] | NotMeasured]
"""the timings of all rings of each leader, or why the first that failed has none"""


async def measured(
    bus: Questions, tasks: Tasks, nodes: Sequence[Node]
) -> tuple[list[Timing], dict[NodeId, str]]:
    """The timings of all rings, and the nodes without timings, each with the reason.

    In place of a node that is left out the next of its type is timed. Pairs are replaced only where one did
    not begin: where the network between nodes does not work, each would take as long as the first.
    """
    timings: list[Timing] = []
    left_out: dict[NodeId, str] = {}
    asked: set[NodeId] = set()
    while rings := [ring for ring in inside(_without(nodes, left_out)) if _leader(ring) not in asked]:
        alone = await _timed(bus, tasks, rings)
        timings += _timings(alone)
        left_out |= _reasons(alone)
        asked |= alone.keys()
    paired: set[NodeId] = set()
    while rings := between(_without(nodes, left_out.keys() - paired), paired):
        pairs = await _timed(bus, tasks, rings)
        timings += _timings(pairs)
        left_out |= _reasons(pairs)
        begun = [ring for ring in rings if not isinstance(pairs[_leader(ring)], NotBegun)]
        paired |= {node.node_id for ring in begun for node, _ in ring.members}
    return timings, left_out


def _without(nodes: Sequence[Node], left_out: Container[NodeId]) -> list[Node]:
    return [node for node in nodes if node.node_id not in left_out]


def _leader(ring: Ring) -> NodeId:
    return ring.members[0][0].node_id


def _timings(timed: Timed) -> list[Timing]:
    return [one for answer in timed.values() if not isinstance(answer, NotMeasured) for one in answer]


def _reasons(timed: Timed) -> dict[NodeId, str]:
    return {one.node_id: str(one) for one in timed.values() if isinstance(one, NotMeasured)}


async def _timed(bus: Questions, tasks: Tasks, rings: Iterable[Ring]) -> Timed:
    of_leader: dict[NodeId, list[Ring]] = {}
    for ring in rings:
        of_leader.setdefault(_leader(ring), []).append(ring)
    timed: Timed = {}
    waiting = iter(of_leader.items())

    async def slot() -> None:
        for node_id, of_node in waiting:
            timed[node_id] = await _in_turn(bus, tasks, of_node)

    await tasks.all(slot() for _ in range(min(AT_ONCE, len(of_leader))))
    return {node_id: timed[node_id] for node_id in of_leader}


async def _in_turn(bus: Questions, tasks: Tasks, rings: Iterable[Ring]) -> list[Timing] | NotMeasured:
    timings = []
    for ring in rings:
        try:
            times = await _times(bus, tasks, ring)
        except NotMeasured as error:
            return error
        if not _whole(times):
            reason = "its agent's answer is incomplete, or has times that cannot be"
            return NotMeasured(_leader(ring), reason)
        timings.append(Timing(ring, times))
    return timings


async def _times(bus: Questions, tasks: Tasks, ring: Ring) -> AllReduceTimes:
    """What the ring's first node timed while the others took part. Raises NotMeasured."""
    nodes = [node.node_id for node, _ in ring.members]
    opened = [OpenAllReduce(node_id=node_id, ring=ring, sizes=SIZES) for node_id in nodes]
    first, *_ = await tasks.all(_asked(bus, question, AllReduceMeeting) for question in opened)
    parts = [
        JoinAllReduce(node_id=node_id, ring=ring, sizes=first.sizes, repeats=REPEATS, meeting=first.meeting)
        for node_id in nodes
    ]
    times, *_ = await tasks.all(_asked(bus, question, AllReduceTimes) for question in parts)
    return msgspec.structs.replace(times, sizes=() if first.sizes == SIZES else first.sizes)


async def _asked(bus: Questions, question: OpenAllReduce | JoinAllReduce, kind: type[M]) -> M:
    try:
        reply = await bus.ask(question, TIMEOUT_REAL_S)
    except Unavailable as error:
        raise NotMeasured(question.node_id, f"its agent does not answer: {error}") from None
    except Malformed as error:
        raise NotMeasured(question.node_id, f"its agent's answer cannot be read: {error}") from None
    if not isinstance(reply, kind):
        refused = NotBegun if isinstance(question, OpenAllReduce) else NotMeasured
        raise refused(question.node_id, str(getattr(reply, "reason", "refused")))
    return reply


def _whole(times: AllReduceTimes) -> bool:
    """Whether every size was timed as often as asked for, within what is possible."""
    rows, sizes = times.seconds, times.sizes or SIZES
    alike = len(rows) == len(sizes) and all(len(row) == REPEATS for row in rows)
    possible = all(1.0 <= size <= BYTES_MOST for size in sizes)
    return alike and possible and all(SHORTEST_S <= one <= LONGEST_S for row in rows for one in row)
