"""Ends a leader that is alive but does no work: it gives up its lease, says so, and exits.

What holds it up may be a thread that no exception reaches, so the process ends at once, without cleaning up;
whoever started it starts it again.
"""

import asyncio
import os
import time
from collections.abc import Sequence

import structlog

from shared.runtime.bus.contract import Bus
from shared.runtime.leadership import Candidate
from shared.runtime.process.reports import Reporter
from shared.runtime.shell.shell import Shell

LOOKS = 10
"""checks within the time that work may be outstanding"""
LOOK_LIMIT_REAL_S = 2.0
SHOWN_REAL_S = 5.0
"""how long it reports what is wrong before it exits"""
STALLED = 75
"""exit code"""

log = structlog.get_logger()


async def watch(
    shell: Shell, bus: Bus, facts: Sequence[str], *, candidate: Candidate, reporter: Reporter, limit_s: float
) -> None:
    """Returns only by ending the process."""
    while not shell.stalled():
        asleep_s = await _pause(limit_s / LOOKS)
        if not shell.leads() or asleep_s > limit_s / 2 or not await _read(shell, bus, facts):
            shell.progress.restart_limits()
    log.error("alive but idle", service=reporter.report.name, reason=shell.stalled())
    candidate.give_up()
    await reporter.stall(shell.stalled())
    await candidate.release()
    await asyncio.sleep(SHOWN_REAL_S)
    os._exit(STALLED)


async def _pause(real_s: float) -> float:
    """Sleep; by how much it took longer than asked for."""
    began = time.monotonic()
    await asyncio.sleep(real_s)
    return time.monotonic() - began - real_s


async def _read(shell: Shell, bus: Bus, facts: Sequence[str]) -> bool:
    """Note how far it has come; false: the bus does not say how far it could be."""
    try:
        async with asyncio.timeout(LOOK_LIMIT_REAL_S):
            newest = await bus.newest(facts)
    except OSError:
        return False
    shell.progress.read(shell.seq, newest)
    return True
