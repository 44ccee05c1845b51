"""Keeps a stack's NATS running: restarts it when it has ended, or a full or lost disk is usable again.

A server of NATS (2.15) whose write has failed acknowledges nothing for that stream, even if there is room,
until it is restarted. It cannot report a lost disk, since its log is on that disk: so the disk is tried.
"""

import asyncio
import os
import re
from collections.abc import Collection, Mapping

from hopyard.failures import Died, Invalid, NotReady
from hopyard.local.processes import Allowance, Restarts, Say
from shared.runtime.process.nats_server import RECOVERY_LIMIT_S, START_TIMEOUT_S, NatsServer, Recovering
from shared.runtime.process.nats_servers import NatsServers

LOOK_EVERY_S = 0.5
LONGEST_S = 2.0
"""longest wait before a server that ended, or did not start, is started again"""
REASONS_MAX = 20
"""reasons that are remembered as reported, at most"""

LEAST_BYTES = 4 * 1024 * 1024
"""bytes free, below which the disk counts as full"""
STORE = "jetstream"
"""the folder that a server makes inside its own folder"""
ROOM_BYTES = 16 * 1024 * 1024
"""bytes free, from which on a server is restarted"""

NOTHING_NEW = "running jobs train on, and submissions are refused"
OTHERS = "the other servers do all its work"
"""the effect, while fewer than half of the servers store nothing"""
ENDED = "{} ended; starting it again in {:g} s"
FULL = "the disk of {} is full: {} until there is room"
GONE = "the disk of {} takes nothing ({}): {} until it does"
BACK = "that disk is back: nats-server starts again, since it stores nothing after a failed write"
AWAY = "{} does not come back ({}): {}; trying again"
SLOW = "{} runs, and accepts no clients while it recovers its store: {}"
LINE_BEGINS = re.compile(r"^\[\d+\] \S+ \S+ \[[A-Z]{3}\] ")
"""process, date, time and level, before the words of a line of its log"""
THERE = "nats-server has started again"
ROOM = "there is room again: nats-server starts again, since it stores nothing after a failed write"


async def start_nats(nats: NatsServers, say: Say) -> None:
    """Start the servers, and wait longer for any that still recover their store. Raises NotReady, Invalid."""
    why = await _begun(nats, START_TIMEOUT_S)
    if why and all(isinstance(error, Recovering) for error in why.values()):
        say(SLOW.format(_named(why, nats), "the stack waits for it"))
        why = await _begun(nats, RECOVERY_LIMIT_S)
    for number, error in why.items():
        name = _named([number], nats)
        raise error if isinstance(error, Invalid) else NotReady(f"{name} does not start: {_reason(error)}")


async def _begun(nats: NatsServers, limit_s: float) -> dict[int, Exception]:
    """Why servers accept no clients, by number; errors not due to the environment are raised."""
    why = await nats.begin(limit_s)
    for error in why.values():
        if not isinstance(error, RuntimeError | OSError | Invalid):
            raise error
    return why


async def keep_nats(nats: NatsServers, restarts: Restarts, say: Say) -> None:
    """Restart servers without the limit of `keep`: the services wait for them, and their store is on disk.

    While the disk is gone no server is started: it would end, or begin an empty store where the disk was.
    Raises Died if `restarts` allows none.
    """
    allowed, disk, outage, restart = Allowance(restarts), NatsDisk(nats), Outage(nats, say), False
    while True:
        await asyncio.sleep(LOOK_EVERY_S)
        if restart or await asyncio.to_thread(disk.to_restart, say):  # waits as long as the disk hangs
            await nats.stop()
        elif nats.ready() or disk.unfit:
            continue
        elif ended := nats.ended():
            if restarts.most == 0:
                raise Died(f"{_named(ended, nats)} ended: {nats.each[ended[0] - 1].log_tail()}")
            delay_s = min(allowed.take() or LONGEST_S, LONGEST_S)
            if not outage.said:
                say(ENDED.format(_named(ended, nats), delay_s))
            await asyncio.sleep(delay_s)
            restart = await asyncio.to_thread(disk.to_restart, say)  # the disk may have gone meanwhile
            if restart or disk.unfit:
                continue
        why = await _begun(nats, START_TIMEOUT_S)  # the accounts that a server accepts are on a disk too
        restart = bool(why) and await asyncio.to_thread(disk.to_restart, say)
        if not (disk.unfit or restart):
            outage.say_of(why)


class Outage:
    """Reports why servers do not come back, each reason once."""

    def __init__(self, nats: NatsServers, say: Say) -> None:
        self._nats = nats
        self._say = say
        self.said: set[str] = set()
        """the reasons so far, without numbers, which differ from try to try"""

    def say_of(self, why: Mapping[int, Exception]) -> None:
        """`why`: why servers accept no clients, by their numbers; empty: all accept them."""
        if not why and self.said:
            self._say(THERE)
            self.said.clear()
        if why:
            self._say_once(why)

    def _say_once(self, why: Mapping[int, Exception]) -> None:
        name, effect = _named(why, self._nats), _effect(len(why), self._nats)
        error = next(iter(why.values()))
        reason = _reason(error)
        slow = isinstance(error, Recovering)
        line = SLOW.format(name, f"{effect} until then") if slow else AWAY.format(name, reason, effect)
        kind = f"{sorted(why)} {SLOW if slow else re.sub('[0-9]+', '', reason)}"
        if kind not in self.said and len(self.said) < REASONS_MAX:
            self.said.add(kind)
            self._say(line)


def _reason(error: Exception) -> str:
    """The last line of the server's log, without its process and time."""
    return LINE_BEGINS.sub("", str(error).splitlines()[-1])


def _named(numbers: Collection[int], nats: NatsServers) -> str:
    """The servers by their numbers; one alone has none."""
    of = len(nats.each)
    return "nats-server" if of == 1 else f"nats-server {', '.join(map(str, numbers))} of {of}"


def _effect(lost: int, nats: NatsServers) -> str:
    """What follows if `lost` servers store nothing."""
    return OTHERS if 2 * lost < len(nats.each) else NOTHING_NEW


class NatsDisk:
    def __init__(self, nats: NatsServers) -> None:
        self._nats = nats
        self._full = False
        self._gone = False
        self._was_gone = False
        """whether lost disks made the store unusable, and no restart has followed"""
        self._lacking: set[NatsServer] = set()
        """the servers whose disks were gone at the last look"""

    @property
    def unfit(self) -> bool:
        """Whether the disk was unusable for a server when it was last tried."""
        return self._gone or self._full

    def to_restart(self, say: Say) -> bool:
        """Whether to restart a server that stores nothing although it could. Reports once if it cannot."""
        free = self._free(say)
        if not free:
            return False
        least = min(free.values())
        if least < LEAST_BYTES and not self._full:
            say(FULL.format(*self._lost([server for server in free if free[server] < LEAST_BYTES])))
        self._full = least < ROOM_BYTES and (self._full or least < LEAST_BYTES)
        full_once = [server for server in self._nats.each if server.stores_nothing()]
        if least < ROOM_BYTES or not (full_once or self._was_gone):
            return False
        say(BACK if self._was_gone else ROOM)
        self._was_gone = False
        return True

    def _free(self, say: Say) -> dict[NatsServer, int]:
        """Free bytes of each server's disk; empty while a disk is gone below a server that is watched.

        A server whose disk is gone is killed: once the disk is back it would overwrite what is there. One of
        three may come back with an empty disk, since the two others have everything. Two may not: they would
        be a majority, and agree that there is nothing.
        """
        free: dict[NatsServer, int] = {}
        gone: dict[NatsServer, str | None] = {}
        each = self._nats.each
        running = [server for server in each if server.running()]
        for server in running if 2 * len(running) > len(each) else each:
            try:
                os.utime(server.folder / STORE)
                found = os.statvfs(server.folder)
            except OSError as error:
                gone[server] = error.strerror
                server.kill()
            else:
                free[server] = found.f_bavail * found.f_frsize
        self._gone = bool(gone) and 2 * len(free) <= len(each)
        self._was_gone = self._gone if gone else self._was_gone
        before, self._lacking = self._lacking, set(gone)
        if self._lacking - before:
            folders, effect = self._lost(gone)
            say(GONE.format(folders, next(iter(gone.values())), effect))
        return {} if gone else free

    def _lost(self, servers: Collection[NatsServer]) -> tuple[str, str]:
        """The folders of servers that store nothing, and the effect, counting those that do not run."""
        ended = [server for server in self._nats.each if not server.running() and server not in servers]
        return ", ".join(str(server.folder) for server in servers), _effect(
            len(servers) + len(ended), self._nats
        )
