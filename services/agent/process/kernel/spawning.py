"""Starts a process in its groups, under its account, in a session of its own. All of it blocks."""

import json
import os
import pwd
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from services.agent.process.kernel import enter

USER_MIN = 1_000
"""accounts below this number are the system's; nobody becomes one of them by naming it"""


class Account(msgspec.Struct, frozen=True):
    uid: int
    gid: int
    groups: tuple[int, ...]
    name: str
    home: str


class ToStart(msgspec.Struct, frozen=True, kw_only=True):
    command: Sequence[str]
    environment: Mapping[str, str]
    folder: str
    """that it works in; empty: the agent's"""
    log: Path
    """that it appends what it prints to"""
    groups: Sequence[Path] = ()
    account: Account | None = None
    """None: the agent's"""


class NoAccount(ValueError):
    """A job of this user runs nowhere on the node; the text says why."""


def account_of(user: str) -> Account | None:
    """The account of a job's user, where the agent may take it: as root. None: the agent's own, in two cases.

    It may take no other, or the user is the agent's. Raises NoAccount: nobody's job becomes root's.
    """
    if os.geteuid() != 0 or not user or user == pwd.getpwuid(os.geteuid()).pw_name:
        return None
    try:
        entry = pwd.getpwnam(user)
    except KeyError:
        raise NoAccount(f"this node has no account {user}, and a job of {user} runs as no other") from None
    if entry.pw_uid < USER_MIN:
        raise NoAccount(f"{user} is an account of the system on this node; no job runs as it")
    groups = os.getgrouplist(entry.pw_name, entry.pw_gid)
    return Account(entry.pw_uid, entry.pw_gid, tuple(groups), entry.pw_name, entry.pw_dir)


def started(start: ToStart) -> subprocess.Popen[bytes]:
    """Raises OSError, where not even the interpreter of the agent can be started."""
    plan = {
        "groups": [str(path) for path in start.groups],
        "account": start.account and (start.account.uid, start.account.gid, start.account.groups),
        "folder": start.folder,
    }
    with start.log.open("ab") as log:
        own(start.log, start.account)
        return subprocess.Popen(  # noqa: S603 - a job's command is what a job is
            [
                sys.executable,
                "-I",
                "-S",
                enter.__file__,
                json.dumps(plan),
                *start.command,
            ],
            env=start.environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


def own(path: Path, account: Account | None) -> None:
    """Give a file or folder to the account. Raises OSError."""
    if account is not None:
        os.chown(path, account.uid, account.gid)
