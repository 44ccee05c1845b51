"""Builders of messages, with every default filled in, and small helpers around readers."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence

from schemas.events import JobCancelled, NodeDrained, ProfilingPlanned
from schemas.ids import JobId, NodeId
from schemas.samples import Heartbeat
from schemas.subjects import FACT_SUBJECTS
from shared.runtime.bus.contract import Bus, Record
from tests.bus_nets import LIMIT_S


def cancelled(job: object = "j", at: float = 0.0) -> JobCancelled:
    return JobCancelled(at=at, job_id=JobId(str(job)))


def drained(node: object = "n", at: float = 0.0) -> NodeDrained:
    return NodeDrained(at=at, node_id=NodeId(str(node)))


def opened(number: int, at: float = 0.0) -> ProfilingPlanned:
    return ProfilingPlanned(at=at, round=number, runs=())


def heartbeat(node: object = "n", at: float = 0.0) -> Heartbeat:
    return Heartbeat(at=at, node_id=NodeId(str(node)), life="l", workers=())


async def next_records(
    batches: AsyncIterator[list[Record]], count: int, limit_s: float = LIMIT_S
) -> list[Record]:
    records: list[Record] = []
    async with asyncio.timeout(limit_s):
        while len(records) < count:
            records += await anext(batches)
    return records


async def read_all(bus: Bus, count: int, subjects: Sequence[str] = FACT_SUBJECTS) -> list[Record]:
    """The first `count` facts of the stream."""
    return await next_records(bus.read(0, subjects), count)


def jobs(records: Sequence[Record]) -> list[str]:
    return [str(getattr(record.event, "job_id", "-")) for record in records]


async def until(holds: Callable[[], bool], limit_s: float = LIMIT_S) -> None:
    """Wait for something to become true, without guessing how long it takes."""
    async with asyncio.timeout(limit_s):
        while not holds():
            await asyncio.sleep(0.01)
