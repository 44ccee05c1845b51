"""Lets processes of this version work with a NATS server that an earlier version of `hopyard up` started.

What each account may publish and receive depends on the version. A running server is given what either
version allows, until `hopyard up` is started again and gives it what the new version allows.
"""

import contextlib
import os
import signal
import time
from pathlib import Path
from typing import Any

import msgspec

from hopyard.failures import Failure
from hopyard.local.accounts import accounts_in
from shared.runtime import owner_only
from shared.runtime.bus.accounts import server_accounts

READ_AGAIN_AFTER_S = 1.0
"""seconds; a server connects accounts to each other only when it reads its configuration a second time"""
STOP_FIRST = (
    "NATS of this stack has accounts of a version that this one cannot run beside: stop `hopyard up` "
    "(Ctrl-C), and start it again; jobs go on from their checkpoints"
)


def widen_permissions(data: Path, up: int) -> bool:
    """Returns whether anything had to be changed. `up`: process id of `hopyard up`.

    Raises Failure if the two versions cannot run side by side.
    """
    files = [file for file in data.glob("nats*/nats-server.conf") if _widened(file, data)]
    for _ in range(2 if files else 0):
        for server in _servers(up):
            with contextlib.suppress(ProcessLookupError):  # `hopyard up` starts it with the new file
                os.kill(server, signal.SIGHUP)
        time.sleep(READ_AGAIN_AFTER_S)
    return bool(files)


def _widened(file: Path, data: Path) -> bool:
    """Whether the configuration in a server's file had to be widened, which is done. Raises Failure."""
    config = msgspec.json.decode(owner_only.read_secret(file), type=dict[str, Any])
    if "users" in config.get("authorization", {}):
        raise Failure(STOP_FIRST)
    if "accounts" not in config:
        return False  # one account for all, which may do everything
    wide = merged(config["accounts"], msgspec.to_builtins(server_accounts(accounts_in(data))))
    if wide == config["accounts"]:
        return False
    owner_only.write(file, msgspec.json.encode(config | {"accounts": wide}))
    return True


def merged(one: Any, other: Any) -> Any:  # noqa: ANN401 - any part of a configuration
    """Permissions of both configurations; those of users with one name are merged."""
    if isinstance(one, dict) and isinstance(other, dict):
        shared = {key: merged(one[key], other[key]) for key in one.keys() & other.keys()}
        return {**one, **other, **shared}
    if isinstance(one, list) and isinstance(other, list):
        users = {user["user"]: user for user in one if isinstance(user, dict) and "user" in user}
        if users:
            named = {user["user"]: user for user in other}
            return list(merged(users, named).values())
        return [*one, *(each for each in other if each not in one)]
    return other


def _servers(up: int) -> list[int]:
    """Process ids of the NATS servers that `hopyard up` runs."""
    children = Path(f"/proc/{up}/task/{up}/children").read_text().split()
    return [int(pid) for pid in children if b"nats-server.conf" in _command_line(pid)]


def _command_line(pid: str) -> bytes:
    """Empty for a process that has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""
