"""Ends the process of a leader that is alive and does no work: it reports that, gives up its lease, exits.

What holds the leader up may be a thread that no exception reaches, so the process ends at once, without a
clean-up. Its supervisor starts it again.
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

CHECKS = 10
"""number of checks within the time that work may be outstanding"""
CHECK_LIMIT_REAL_S = 2.0
SHOWN_REAL_S = 5.0
"""how long the report of what is wrong can be read before the process exits"""
STALLED = 75
"""exit code of a process that has stalled"""

log = structlog.get_logger()


async def watch(
    shell: Shell, bus: Bus, facts: Sequence[str], *, candidate: Candidate, reporter: Reporter, limit_s: float
) -> None:
    """Check until cancelled, or until work is outstanding for too long: then end the process.

    The limits begin again where it does not lead, was asleep, or NATS does not answer.
    """
    while not shell.stalled():
        asleep_s = await _pause(limit_s / CHECKS)
        if not shell.leads() or asleep_s > limit_s / 2 or not await _check_facts(shell, bus, facts):
            shell.progress.restart_limits()
    log.error("alive but idle", service=reporter.report.name, reason=shell.stalled())
    candidate.give_up()
    await reporter.stall(shell.stalled())
    await candidate.release()
    await asyncio.sleep(SHOWN_REAL_S)
    os._exit(STALLED)


async def _pause(real_s: float) -> float:
    """Sleep; returns by how much that took longer."""
    began = time.monotonic()
    await asyncio.sleep(real_s)
    return time.monotonic() - began - real_s


async def _check_facts(shell: Shell, bus: Bus, facts: Sequence[str]) -> bool:
    """Compare what the shell has handled with the newest fact; false: the bus does not answer."""
    try:
        async with asyncio.timeout(CHECK_LIMIT_REAL_S):
            newest = await bus.newest(facts)
    except OSError:
        return False
    shell.progress.read(shell.seq, newest)
    return True
