"""Keeps a stack's NATS running: restarts it when it ended, and when a full or lost disk is usable again.

A server of NATS (2.15) whose write has failed answers no publication to that stream again, room or not,
until it starts anew. Of a disk that is gone it says nothing, as its log is there too: so the disk is asked.
"""

import asyncio
import os

from hopyard.failures import Invalid, NotReady
from hopyard.local.processes import Allowance, Restarts, Say
from shared.runtime.process.nats_servers import NatsServers

LOOK_EVERY_S = 0.5
LONGEST_S = 2.0
"""until a server that ended, or did not start, is started again"""

LEAST_BYTES = 4 * 1024 * 1024
"""free, for the disk to count as full"""
STORE = "jetstream"
"""what a server makes in its folder"""
ROOM_BYTES = 16 * 1024 * 1024
"""free, for a server to begin anew"""
FULL = "the disk of {} is full: jobs run on, nothing new is taken until there is room"
GONE = "the disk of {} takes nothing ({}): jobs run on, nothing new is taken until it does"
BACK = "that disk is back: nats-server starts anew, since it stores nothing after a failed write"
AWAY = "NATS does not come back ({}): jobs run on, nothing new is taken; it is tried again and again"
THERE = "nats-server has started again"
ROOM = "there is room again: nats-server starts anew, since it stores nothing after a failed write"


async def start_nats(nats: NatsServers) -> None:
    """Raises NotReady."""
    try:
        await nats.start()
    except (RuntimeError, OSError) as error:
        raise NotReady(str(error)) from None


async def keep_nats(nats: NatsServers, restarts: Restarts, say: Say) -> None:
    """As `keep`, for as long as it takes: the services wait for the server, and its store is on the disk.

    Without the disk no server is started: it would end, or begin an empty store where the disk was.
    """
    allowed, disk, failed = Allowance(restarts), NatsDisk(nats), False
    while True:
        await asyncio.sleep(LOOK_EVERY_S)
        if await asyncio.to_thread(disk.to_begin_anew, say):  # on a disk that hangs this waits
            await nats.stop()
        elif nats.running() or disk.unfit:
            continue
        else:
            delay_s = min(allowed.take() or LONGEST_S, LONGEST_S)
            if not failed:
                say(f"nats-server ended; starting it again in {delay_s:g} s")
            await asyncio.sleep(delay_s)
        try:
            await start_nats(nats)
        except (NotReady, Invalid) as error:  # the accounts that it lets in are on a disk too
            await asyncio.to_thread(disk.to_begin_anew, say)
            if not (disk.unfit or failed):
                say(AWAY.format(str(error).splitlines()[-1]))
            failed = True
        else:
            if failed:
                say(THERE)
            failed = False


class NatsDisk:
    def __init__(self, nats: NatsServers) -> None:
        self._nats = nats
        self._full = False
        self._gone = False
        self._was_gone = False
        """since the servers began"""

    @property
    def unfit(self) -> bool:
        """Whether no server could begin on it when it was last asked."""
        return self._gone or self._full

    def to_begin_anew(self, say: Say) -> bool:
        """Whether to restart a server that stores nothing although it could. Says once that it cannot."""
        free = self._free(say)
        if free is None:
            return False
        if free < LEAST_BYTES and not self._full:
            say(FULL.format(self._nats.each[0].folder))
        self._full = free < ROOM_BYTES and (self._full or free < LEAST_BYTES)
        full_once = [server for server in self._nats.each if server.stores_nothing()]
        if free < ROOM_BYTES or not (full_once or self._was_gone):
            return False
        say(BACK if self._was_gone else ROOM)
        self._was_gone = False
        return True

    def _free(self, say: Say) -> int | None:
        """Bytes; None until what the servers hold is there again and can be written to.

        One of several that ended may come back without its disk: those that run hold all.
        """
        free = []
        each = self._nats.each
        for server in [one for one in each if one.running()] or each:
            try:
                os.utime(server.folder / STORE)
                found = os.statvfs(server.folder)
            except OSError as error:
                if not self._gone:
                    say(GONE.format(server.folder, error.strerror))
                self._gone = self._was_gone = True
                return None
            free.append(found.f_bavail * found.f_frsize)
        self._gone = False
        return min(free)
