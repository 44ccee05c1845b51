"""The identity of a process. Pids are reused, so no process is signalled by its pid alone."""

import contextlib
import os
import signal
from collections.abc import Collection
from functools import cache
from pathlib import Path

import msgspec
import structlog

PROC = Path("/proc")
SHELLS = frozenset({"ash", "bash", "dash", "ksh", "mksh", "sh", "zsh"})
_STATE, _PARENT, _SESSION, _START_TIME = 0, 1, 3, 19
"""indices of fields in /proc/PID/stat, counted after the name, which may hold any characters"""

log = structlog.get_logger()


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """Identifies a process for good: no other process of this or a later boot has the same identity."""

    pid: int
    start_time: int
    """clock ticks since the boot"""
    boot_id: str


@cache
def boot_id() -> str:
    return (PROC / "sys/kernel/random/boot_id").read_text().strip()


def identity_of(pid: int) -> Identity | None:
    """The identity of a process; None: there is none of this pid, or it is a zombie."""
    fields = _stat(pid)
    if not fields or fields[_STATE] in "ZX":
        return None
    return Identity(pid=pid, start_time=int(fields[_START_TIME]), boot_id=boot_id())


def alive(identity: Identity) -> bool:
    return identity_of(identity.pid) == identity


def opened(identity: Identity) -> int | None:
    """A pidfd of the process, which the caller must close; None: the process is gone."""
    try:
        descriptor = os.pidfd_open(identity.pid)
    except OSError:
        return None
    if alive(identity):  # checked after the opening, so the descriptor cannot be of a later process
        return descriptor
    os.close(descriptor)
    return None


def send(identity: Identity, number: signal.Signals) -> bool:
    """Signal the process; false: it is gone, or this account may not signal it."""
    descriptor = opened(identity)
    if descriptor is None:
        return False
    try:
        signal.pidfd_send_signal(descriptor, number)
    except ProcessLookupError:
        return False
    except PermissionError:
        _say_refused(identity)
        return False
    finally:
        os.close(descriptor)
    return True


@cache
def _say_refused(identity: Identity) -> None:
    """Log a refusal once, since a kill is tried repeatedly."""
    log.warning("a process may not be signalled", pid=identity.pid)


def parents() -> dict[int, int]:
    """The parent of every process of the machine."""
    found = {}
    for path in PROC.iterdir():
        if path.name.isdecimal() and (fields := _stat(int(path.name))):
            found[int(path.name)] = int(fields[_PARENT])
    return found


def ended_children(sessions: Collection[int]) -> list[int]:
    """Pids of this process's children in some sessions that have ended and are not reaped yet."""
    ended = []
    for path in PROC.iterdir():
        fields = _stat(int(path.name)) if path.name.isdecimal() else []
        if fields and fields[_STATE] == "Z" and int(fields[_PARENT]) == os.getpid():
            ended += [int(path.name)] if int(fields[_SESSION]) in sessions else []
    return ended


def run_by_shells(shell: Identity) -> list[Identity]:
    """The processes that a shell runs, and those that shells among them run; none if it is no shell."""
    parent_of = parents()
    found, shells = list[Identity](), [shell]
    while shells:
        one = shells.pop()
        if SHELLS & _names(one.pid):
            below = [identity_of(pid) for pid, parent in parent_of.items() if parent == one.pid]
            run = [child for child in below if child is not None]
            found += run
            shells += run
    return found


def _names(pid: int) -> set[str]:
    """The names of its program: of what was started, which may be a script, and of the file that runs."""
    names, process = set[str](), PROC / str(pid)
    with contextlib.suppress(OSError):
        names.add((process / "comm").read_text(errors="replace").strip())
    with contextlib.suppress(OSError):
        names.add((process / "exe").readlink().name)
    return names


def environment_of(pid: int) -> bytes:
    """The environment with which its program started; empty: it cannot be read."""
    with contextlib.suppress(OSError):
        return (PROC / str(pid) / "environ").read_bytes()
    return b""


def _stat(pid: int) -> list[str]:
    try:
        text = (PROC / str(pid) / "stat").read_text(errors="replace")
    except OSError:
        return []
    return text.rpartition(")")[2].split()
