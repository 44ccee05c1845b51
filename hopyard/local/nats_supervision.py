"""Keeps a stack's NATS running: starts it again when it ended, and when a disk is well that was full or gone.

A server of NATS (2.15) whose write has failed answers no publication to that stream again, room or not,
until it starts anew. Of a disk that is gone it says nothing, as its log is there too: so the disk is asked.
"""

import asyncio
import os
from pathlib import Path

from hopyard.failures import Died, NotReady
from hopyard.local.processes import Allowance, Restarts, Say
from shared.runtime.process.nats_servers import NatsServers

LOOK_EVERY_S = 0.5

LEAST_BYTES = 4 * 1024 * 1024
"""free, for the disk to count as full"""
STORE = "jetstream"
"""what a server makes in its folder"""
ROOM_BYTES = 16 * 1024 * 1024
"""free, for a server to begin anew"""
FULL = "the disk of {} is full: jobs run on, nothing new is taken until there is room"
GONE = "the disk of {} takes nothing ({}): jobs run on, nothing new is taken until it does"
BACK = "that disk is back: nats-server starts anew, since it stores nothing after a failed write"
ROOM = "there is room again: nats-server starts anew, since it stores nothing after a failed write"


async def start_nats(nats: NatsServers) -> None:
    """Raises NotReady."""
    try:
        await nats.start()
    except (RuntimeError, OSError) as error:
        raise NotReady(str(error)) from None


async def keep_nats(nats: NatsServers, restarts: Restarts, say: Say) -> None:
    """As `keep`: the services wait for the server and reconnect, and its store is on the disk."""
    allowed, disk = Allowance(restarts), NatsDisk(nats)
    while True:
        await asyncio.sleep(LOOK_EVERY_S)
        if nats.running():
            if await asyncio.to_thread(disk.to_begin_anew, say):  # on a disk that hangs this waits
                await nats.stop()
                await start_nats(nats)
            continue
        delay_s = allowed.take()
        if delay_s is None:
            raise Died("nats-server ended")
        say(f"nats-server ended; starting it again in {delay_s:g} s")
        await asyncio.sleep(delay_s)
        await start_nats(nats)


class NatsDisk:
    def __init__(self, nats: NatsServers) -> None:
        self._nats = nats
        self._full = False
        self._gone = False

    def to_begin_anew(self, say: Say) -> bool:
        """Whether the server stores nothing although it could. Says once that it cannot."""
        was_gone, self._gone = self._gone, self._is_gone(say)
        if self._gone:
            return False
        if was_gone:
            say(BACK)
            return True
        free = min(_free(server.folder) for server in self._nats.each)
        if free < LEAST_BYTES and not self._full:
            say(FULL.format(self._nats.each[0].folder))
        self._full = free < ROOM_BYTES and (self._full or free < LEAST_BYTES)
        vain = [server for server in self._nats.each if server.stores_nothing()]
        anew = bool(vain) and free >= ROOM_BYTES
        if anew:
            say(ROOM)
        return anew

    def _is_gone(self, say: Say) -> bool:
        """Until what it holds is there again and can be written to."""
        for server in self._nats.each:
            try:
                os.utime(server.folder / STORE)
            except OSError as error:
                if not self._gone:
                    say(GONE.format(server.folder, error.strerror))
                return True
        return False


def _free(folder: Path) -> int:
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize
