"""Starts a process in its control groups, under its account, in a session of its own. All calls block."""

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
"""smallest uid of a user account; no job runs as a system account, whatever user it names"""
REACH_LIMIT_S = 30.0
"""time to make or enter a folder, which may be on a network file system"""
INTERPRETER_VARIABLES = ("PATH", "LD_LIBRARY_PATH")
"""variables of the agent that its interpreter may need to find its libraries"""


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
    """its working directory; empty: the agent's"""
    log: Path
    """file to which its output is appended"""
    groups: Sequence[Path] = ()
    account: Account | None = None
    """account under which it runs; None: the agent's"""


class NoAccount(ValueError):
    """This user's jobs cannot run on the node; the text says why."""


def account_of(user: str) -> Account | None:
    """The account under which a job of this user runs.

    None: the agent's own, because the agent is not root, or because the user is the agent's. Raises
    NoAccount: the job names no user, or one without an account here, or with a system account. So no job
    runs as root by default.
    """
    if os.geteuid() != 0 or user == pwd.getpwuid(os.geteuid()).pw_name:
        return None
    if not user:
        raise NoAccount("the job has no user, and no such job runs as root: a token with a user gives it one")
    try:
        entry = pwd.getpwnam(user)
    except KeyError:
        raise NoAccount(
            f"this node has no account {user}, and jobs of {user} run as no other account"
        ) from None
    if entry.pw_uid < USER_MIN:
        raise NoAccount(f"{user} is an account of the system on this node; no job runs as it")
    groups = os.getgrouplist(entry.pw_name, entry.pw_gid)
    return Account(entry.pw_uid, entry.pw_gid, tuple(groups), entry.pw_name, entry.pw_dir)


def start_process(start: ProcessSpec) -> subprocess.Popen[bytes]:
    """Start a process. Raises OSError: not even the agent's interpreter can be started.

    If the command cannot be started, the process ends with exit code 127 (see `enter`).
    """
    plan = {
        "groups": [str(path) for path in start.groups],
        "folder": start.folder,
        "environment": dict(start.environment),
    }
    with start.log.open("ab") as log:
        give_to(start.log, start.account)
        return _enter(start.account, plan, start.command, log)


def reach(folder: Path, account: Account | None, *, make: bool = False) -> None:
    """Check that the account can enter the folder; `make`: make it first, as the account. Raises OSError."""
    process = _enter(account, {"folder": str(folder), "make": make, "reach": True})
    try:
        code = process.wait(REACH_LIMIT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        # A killed process may still wait for its disk, so a thread reaps it.
        threading.Thread(target=process.wait, daemon=True).start()
        raise TimeoutError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT), str(folder)) from None
    if code:
        raise OSError(abs(code), os.strerror(abs(code)), str(folder))


def _enter(
    account: Account | None,
    plan: Mapping[str, Any],
    command: Sequence[str] = (),
    output: BinaryIO | int = subprocess.DEVNULL,
) -> subprocess.Popen[bytes]:
    """Start `enter.py`. Its plan is in an unnamed file, since everybody can read command lines."""
    usual = {"groups": (), "make": False, "reach": False, "environment": {}}
    whole = usual | dict(plan) | {"account": account and (account.uid, account.gid, account.groups)}
    with open(os.memfd_create("plan"), "w+") as file:  # noqa: PTH123 - a descriptor
        json.dump(whole, file)
        file.seek(0)
        return subprocess.Popen(  # noqa: S603 - a job's command is what a job is
            [sys.executable, "-I", "-S", enter.__file__, f"{file.fileno()}", *command],
            env={name: os.environ[name] for name in INTERPRETER_VARIABLES if name in os.environ},
            pass_fds=(file.fileno(),),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )


def give_to(path: Path, account: Account | None) -> None:
    """Give a file or folder to the account. Raises OSError."""
    if account is not None:
        os.chown(path, account.uid, account.gid)
