"""Has the agents time their paths. Outside work: asks on the bus, a few nodes at once."""

import asyncio
from collections.abc import Iterable, Sequence

from schemas.calibration import AllReduceTimes, Gang
from schemas.cluster import Node
from schemas.ids import NodeId
from schemas.questions import TimeAllReduce
from services.estimator.calibration import REPEATS, SIZES, Timing, between, inside
from shared.runtime.bus import Questions, Unavailable

AT_ONCE = 16
"""nodes that measure at the same time; none does so twice at once"""
TIMEOUT_REAL_S = 60.0


async def measured(bus: Questions, nodes: Sequence[Node]) -> tuple[list[Timing], dict[NodeId, str]]:
    """What was timed; and the nodes that did not measure, with their reasons."""
    alone, left_out = await _timed(bus, inside(nodes))
    idle = [node for node in nodes if node.node_id not in left_out]
    pairs, more = await _timed(bus, between(idle))
    return [*alone, *pairs], {**more, **left_out}


async def _timed(bus: Questions, gangs: Iterable[Gang]) -> tuple[list[Timing], dict[NodeId, str]]:
    of_leader: dict[NodeId, list[Gang]] = {}
    for gang in gangs:
        of_leader.setdefault(gang.members[0][0].node_id, []).append(gang)
    slots = asyncio.Semaphore(AT_ONCE)

    async def of(gangs: list[Gang]) -> list[Timing] | str:
        async with slots:
            return await _in_turn(bus, gangs)

    answers = await asyncio.gather(*(of(gangs) for gangs in of_leader.values()))
    by_node = dict(zip(of_leader, answers, strict=True))
    timings = [one for answer in answers if not isinstance(answer, str) for one in answer]
    return timings, {node_id: reason for node_id, reason in by_node.items() if isinstance(reason, str)}


async def _in_turn(bus: Questions, gangs: Iterable[Gang]) -> list[Timing] | str:
    """All of one leader's gangs, or why not."""
    timings = []
    for gang in gangs:
        try:
            reply = await bus.ask(TimeAllReduce(gang=gang, sizes=SIZES, repeats=REPEATS), TIMEOUT_REAL_S)
        except Unavailable as error:
            return f"its agent does not answer: {error}"
        if not isinstance(reply, AllReduceTimes):
            return str(getattr(reply, "reason", "refused"))
        if not _whole(reply):
            return "its agent's answer is incomplete, or has times that are none"
        timings.append(Timing(gang, reply))
    return timings


def _whole(times: AllReduceTimes) -> bool:
    """Whether every size was timed as often as asked."""
    rows = times.seconds
    alike = len(rows) == len(SIZES) and all(len(row) == REPEATS for row in rows)
    return alike and all(0 < seconds < float("inf") for row in rows for seconds in row)
