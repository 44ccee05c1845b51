"""Starts a process in its groups, under its account, in a session of its own. All of it blocks."""

import errno
import json
import os
import pwd
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from services.agent.process.kernel import enter

USER_MIN = 1_000
"""accounts below this number are the system's; nobody becomes one of them by naming it"""
REACH_LIMIT_S = 30.0
"""for a folder to be made, on file systems of other machines too"""
FOUND_BY = ("PATH", "LD_LIBRARY_PATH")
"""variables of the agent by which its own interpreter may find its libraries"""


class Account(msgspec.Struct, frozen=True):
    uid: int
    gid: int
    groups: tuple[int, ...]
    name: str
    home: str


class ProcessSpec(msgspec.Struct, frozen=True, kw_only=True):
    command: Sequence[str]
    environment: Mapping[str, str]
    folder: str
    """folder that it works in; empty: the agent's"""
    log: Path
    """file to which what it prints is appended"""
    groups: Sequence[Path] = ()
    account: Account | None = None
    """account that it runs as; None: the agent's"""


class NoAccount(ValueError):
    """This user's jobs cannot run on the node; the text says why."""


def account_of(user: str) -> Account | None:
    """The account of a job's user, where the agent may take it: as root. None: the agent's own, in two cases.

    It may take no other, or the user is the agent's. Raises NoAccount: nobody's job becomes root's.
    """
    if os.geteuid() != 0 or user == pwd.getpwuid(os.geteuid()).pw_name:
        return None
    if not user:
        raise NoAccount("the job has no user, and runs as root for none: a token with a user gives it one")
    try:
        entry = pwd.getpwnam(user)
    except KeyError:
        raise NoAccount(f"this node has no account {user}, and a job of {user} runs as no other") from None
    if entry.pw_uid < USER_MIN:
        raise NoAccount(f"{user} is an account of the system on this node; no job runs as it")
    groups = os.getgrouplist(entry.pw_name, entry.pw_gid)
    return Account(entry.pw_uid, entry.pw_gid, tuple(groups), entry.pw_name, entry.pw_dir)


def started(start: ProcessSpec) -> subprocess.Popen[bytes]:
    """Raises OSError, where not even the interpreter of the agent can be started."""
    plan = {
        "groups": [str(path) for path in start.groups],
        "folder": start.folder,
        "environment": dict(start.environment),
    }
    with start.log.open("ab") as log:
        own(start.log, start.account)
        return _entering(start.account, plan, start.command, log)


def reach(folder: Path, account: Account | None, *, make: bool = False) -> None:
    """Get into the folder as the account can, and make it before as the account may. Raises OSError."""
    process = _entering(account, {"folder": str(folder), "make": make, "reach": True})
    try:
        code = process.wait(REACH_LIMIT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        # Killed it waits for its disk all the same.
        threading.Thread(target=process.wait, daemon=True).start()
        raise TimeoutError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT), str(folder)) from None
    if code:
        raise OSError(abs(code), os.strerror(abs(code)), str(folder))


def _entering(
    account: Account | None,
    plan: Mapping[str, Any],
    command: Sequence[str] = (),
    output: BinaryIO | int = subprocess.DEVNULL,
) -> subprocess.Popen[bytes]:
    """The command that enters a rank. Its instructions are in an unnamed file: command lines are public."""
    usual = {"groups": (), "make": False, "reach": False, "environment": {}}
    whole = usual | dict(plan) | {"account": account and (account.uid, account.gid, account.groups)}
    with open(os.memfd_create("plan"), "w+") as file:  # noqa: PTH123 - a descriptor
        json.dump(whole, file)
        file.seek(0)
        return subprocess.Popen(  # noqa: S603 - a job's command is what a job is
            [sys.executable, "-I", "-S", enter.__file__, f"{file.fileno()}", *command],
            env={name: os.environ[name] for name in FOUND_BY if name in os.environ},
            pass_fds=(file.fileno(),),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )


def own(path: Path, account: Account | None) -> None:
    """Give a file or folder to the account. Raises OSError."""
    if account is not None:
        os.chown(path, account.uid, account.gid)
