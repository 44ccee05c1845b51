"""The stream of facts as lines of JSON: those stored so far and, if followed, new ones."""

import asyncio
import contextlib
import math
from collections.abc import AsyncGenerator, AsyncIterator, Callable

import msgspec

from schemas.base import Event
from schemas.subjects import FACT_SUBJECTS
from shared.runtime.bus.contract import Batch, Facts, Record, Unavailable

SILENCE_REAL_S = 60.0
"""seconds that stored facts may take to come, since they may have to be read from the archive"""


async def records(
    facts: Facts, after: int, last: int | None, *, idle_real_s: float, wanted: Callable[[], bool]
) -> AsyncGenerator[Record, None]:
    """Facts with a sequence above `after`, up to `last`; without `last`, as they come.

    All subjects are read, so that the fact `last` is seen, whatever it is about. After `idle_real_s` without
    a fact, `wanted` decides whether to go on waiting, since the client may have hung up. Raises Unavailable
    if facts up to `last` are missing: an incomplete response must not look complete.
    """
    if last is not None and after >= last:
        return
    silence_real_s = math.inf if last is None else SILENCE_REAL_S
    async with contextlib.aclosing(_batches(facts, after, idle_real_s, silence_real_s, wanted)) as batches:
        async for batch in batches:
            for record in batch:
                if record.seq > after:  # a batch may be delivered twice
                    yield record
                    after = record.seq
            after = max(after, batch.last)
            if last is not None and after >= last:
                return
    if last is not None:
        raise Unavailable(f"facts {after + 1} to {last} did not come; ask again")


async def _batches(
    facts: Facts, after: int, idle_real_s: float, silence_real_s: float, wanted: Callable[[], bool]
) -> AsyncGenerator[Batch, None]:
    """Batches of facts, until none comes for so long, or after `idle_real_s` without one `wanted` fails."""
    silent_s = 0.0
    source = facts.read(after, FACT_SUBJECTS)
    pending = asyncio.ensure_future(anext(source, None))
    try:
        while True:
            await asyncio.wait({pending}, timeout=idle_real_s)
            if pending.done():
                batch, silent_s = pending.result(), 0.0
                if batch is None:
                    return
                yield batch
                pending = asyncio.ensure_future(anext(source, None))
            elif not wanted() or (silent_s := silent_s + idle_real_s) >= silence_real_s:
                return
    finally:
        await _close(source, pending)


async def _close(source: AsyncIterator[Batch], pending: asyncio.Future[Batch | None]) -> None:
    """Close the reader: one that is left open would keep its subscription."""
    pending.cancel()
    await asyncio.wait({pending})
    if not pending.cancelled():
        pending.exception()  # retrieved, so that asyncio does not report it
    if isinstance(source, AsyncGenerator):
        await source.aclose()


def problem_line(text: str) -> bytes:
    """The last line of a response that is not complete; it says why."""
    return msgspec.json.encode({"problem": text}) + b"\n"


def line(record: Record) -> bytes:
    return msgspec.json.encode(record) + b"\n"


def about(event: Event, job_id: str | None) -> bool:
    """Whether the fact is about the job; without a job, every fact counts."""
    return job_id is None or getattr(event, "job_id", None) == job_id
