"""Finds the processes of a worker by scanning /proc, where there are no control groups.

They are the descendants of its ranks, and whatever has the worker's name in its environment: a process that
left its session, and whose parent is gone, is found by that. The agent takes in such orphans itself, to reap
them. One that is an orphan and started no program of its own since a template made it is not found.
"""

import contextlib
import ctypes
import os
import signal
import time

import msgspec

from services.agent.process.kernel.cgroups import EMPTY_LIMIT_S, LOOK_EVERY_S, OutOfMemory
from services.agent.process.kernel.identities import (
    Identity,
    alive,
    environment_of,
    identity_of,
    parents,
    send,
)

PR_SET_CHILD_SUBREAPER = 36


class ProcessScan(msgspec.Struct):
    """The processes of one worker. `variable`: how one begins that all of them have, and no other process."""

    variable: str
    ranks: list[Identity] = []

    def pids(self) -> list[int]:
        """Looks at every process of the machine."""
        parent_of = parents()
        roots = {rank.pid for rank in self.ranks if alive(rank)}
        return [pid for pid in parent_of if _descends(pid, roots, parent_of) or self._named(pid)]

    def _named(self, pid: int) -> bool:
        return pid != os.getpid() and has_variable(pid, self.variable)

    def out_of_memory(self) -> OutOfMemory:
        """Not known without a control group."""
        return OutOfMemory()

    def kill(self) -> None:
        """Send SIGKILL to all processes until none is left, for a few seconds. Blocks."""
        then = time.monotonic() + EMPTY_LIMIT_S
        while (found := self._identities()) and time.monotonic() < then:
            for identity in found:
                send(identity, signal.SIGKILL)
            time.sleep(LOOK_EVERY_S)
            self._reap(found)

    def _identities(self) -> list[Identity]:
        found = [identity_of(pid) for pid in self.pids()]
        return [identity for identity in found if identity is not None]

    def _reap(self, found: list[Identity]) -> None:
        """Reap orphans only: how a rank ended is asked for elsewhere."""
        for identity in found:
            if identity not in self.ranks:
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(identity.pid, os.WNOHANG)

    def remove(self) -> None:
        """There is nothing to remove."""


def has_variable(pid: int, variable: str) -> bool:
    """Whether one that begins so, `NAME=VAL…`, was in the environment that the process began with."""
    return any(one.startswith(variable.encode()) for one in environment_of(pid).split(b"\0"))


def take_in_orphans() -> bool:
    """Have this process become the parent of its descendants' orphans; false: the kernel does not."""
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
