"""Finds the processes of a worker by scanning /proc, where there are no control groups.

A process belongs to the worker if it descends from one of its ranks, or if its environment has the worker's
variable. The variable finds orphans that left their session; forks of a template write it into the memory of
which /proc shows it. The agent becomes the parent of such orphans, to reap them.
"""

import contextlib
import ctypes
import os
import signal
import time
from collections.abc import Iterable

import msgspec

from services.agent.process.kernel.cgroups import EMPTY_LIMIT_S, LOOK_EVERY_S, OutOfMemory
from services.agent.process.kernel.identities import (
    Identity,
    alive,
    ended_children,
    environment_of,
    identity_of,
    parents,
    send,
)

PR_SET_CHILD_SUBREAPER = 36


class ProcessScan(msgspec.Struct):
    """The processes of one worker. `variable`: the beginning of a variable that only these processes have."""

    variable: str
    ranks: list[Identity] = []

    def pids(self) -> list[int]:
        """Pids of the worker's processes; reads /proc for every process of the machine."""
        parent_of = parents()
        roots = {rank.pid for rank in self.ranks if alive(rank)}
        return [pid for pid in parent_of if _descends(pid, roots, parent_of) or self._named(pid)]

    def _named(self, pid: int) -> bool:
        return pid != os.getpid() and has_variable(pid, self.variable)

    def out_of_memory(self) -> OutOfMemory:
        """No kills: without a control group they are not known."""
        return OutOfMemory()

    def kill(self) -> None:
        """Send SIGKILL to all processes until none is left, for a few seconds. Blocks."""
        then = time.monotonic() + EMPTY_LIMIT_S
        found, killed = self._identities(), set[Identity]()
        while found and time.monotonic() < then:
            for identity in found:
                send(identity, signal.SIGKILL)
            killed |= found
            time.sleep(LOOK_EVERY_S)
            # A process that is ending has no environment any more, and cannot be reaped yet.
            found = self._identities() | set(filter(alive, killed))
        ranks = {rank.pid for rank in self.ranks}  # each began a session
        self._reap({*(identity.pid for identity in killed), *ended_children(ranks)} - ranks)

    def _identities(self) -> set[Identity]:
        return set(filter(None, map(identity_of, self.pids())))

    def _reap(self, orphans: Iterable[int]) -> None:
        """Reap orphans; they must be no ranks, whose exit codes are read elsewhere."""
        for pid in orphans:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)

    def remove(self) -> None:
        """There is nothing to remove."""


def has_variable(pid: int, variable: str) -> bool:
    """Whether the process started with a variable that begins as given (`NAME=VAL…`)."""
    return any(one.startswith(variable.encode()) for one in environment_of(pid).split(b"\0"))


def take_in_orphans() -> bool:
    """Make this process the parent of orphaned descendants; false: the kernel cannot."""
    return ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0  # type: ignore[no-any-return]


def _descends(pid: int, roots: set[int], parent_of: dict[int, int]) -> bool:
    """Whether a process descends from one of `roots`, or is one."""
    seen: set[int] = set()
    while pid not in roots:
        seen.add(pid)
        pid = parent_of.get(pid, 0)
        if pid == 0 or pid in seen:
            return False
    return True
