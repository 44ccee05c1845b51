"""`hopyard restart`: ends the processes of a stack in order, one by one; `hopyard up` starts each again.

A process runs the code that is installed when it starts. So a restart brings a stack to another version.
"""

import contextlib
import os
import signal
import ssl
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path

from hopyard.failures import Invalid, NotReady, Unreachable
from hopyard.local.data_folder import StackFile, read_stack_file
from hopyard.local.nats_upgrade import widen_permissions
from hopyard.local.pids import alive
from schemas.base import Message
from services.table import TABLE

HOST = "127.0.0.1"
LAST = "admission"
"""restarted last: it stores which protocol the stack speaks from then on"""
LIMIT_S = 180.0
"""seconds for one process to end and to be ready again"""
END_LIMIT_S = 60.0
"""seconds to end in good order, for agents after jobs have saved; then the process is killed"""
LOOK_EVERY_S = 0.2
ASK_LIMIT_S = 5.0
READY = 200


class Restarted(Message, frozen=True, kw_only=True):
    name: str
    took_s: float
    """seconds from the signal until the restarted process was ready"""
    killed: bool
    """whether it was killed, since it did not end at SIGTERM"""


def restart(
    data: Path, chosen: Sequence[str], limit_s: float = LIMIT_S, end_limit_s: float = END_LIMIT_S
) -> Iterator[Restarted]:
    """Restart the named processes one by one; the name of a service means all of its processes, none: all.

    A process that hangs is killed: all that it needs is stored, and jobs outlive their agent.

    Raises Invalid for a name that no process has, Unreachable without a stack, NotReady, and Failure if
    the accounts of the stack's NATS are of too old a version; then nothing was restarted.
    """
    stack = running_on(data)
    names = ordered(named(chosen, stack.pids))
    widen_permissions(data, stack.pid)
    for name in names:
        began = time.monotonic()
        killed = _restart_one(data, name, limit_s, end_limit_s)
        yield Restarted(name=name, took_s=time.monotonic() - began, killed=killed)


def named(chosen: Sequence[str], there: Iterable[str]) -> list[str]:
    """Raises Invalid."""
    names = list(there)
    wrong = [one for one in chosen if not any(_is(name, one) for name in names)]
    if wrong:
        raise Invalid(f"there is no process {', '.join(wrong)}; there are {', '.join(names)}")
    return [name for name in names if not chosen or any(_is(name, one) for one in chosen)]


def _is(name: str, chosen: str) -> bool:
    return chosen in {name, service_of(name)}


def service_of(name: str) -> str:
    """The service of a process: `planner-2` is another planner, `agent-n1` the agent of node `n1`."""
    return name.partition("-")[0]


def ordered(names: Iterable[str]) -> list[str]:
    """The order of restarts: along the flow of data, with admission last."""
    places = {entry.name: place for place, entry in enumerate(TABLE)} | {LAST: len(TABLE)}
    return sorted(names, key=lambda name: places[service_of(name)])


def running_on(data: Path) -> StackFile:
    """Raises Unreachable if no stack runs on this data folder."""
    found = read_stack_file(data)
    if found is None or not alive(found.pid):
        raise Unreachable(f"no stack runs on {data}; `hopyard up` starts the version that is installed")
    return found


def _restart_one(data: Path, name: str, limit_s: float, end_limit_s: float) -> bool:
    """Restart one process; returns whether it had to be killed."""
    deadline = time.monotonic() + limit_s
    before = running_on(data)
    old = before.pids[name]
    with contextlib.suppress(ProcessLookupError):  # it ended by itself, and is being started again
        os.kill(old, signal.SIGTERM)
    ended = _within(end_limit_s, lambda: running_on(data).pids.get(name) != old or not alive(old))
    if not ended:
        with contextlib.suppress(ProcessLookupError):
            os.kill(old, signal.SIGKILL)

    def ready() -> bool:
        return running_on(data).pids.get(name) not in {None, old} and _ready(before, name)

    if not _within(deadline - time.monotonic(), ready):
        said = running_on(data).last_errors.get(name, "it does not start, or does not say why it waits")
        raise NotReady(
            f"{name} is not ready yet: {said} (log: {data / 'logs' / name}.log); "
            "those after it go on as they were"
        )
    return not ended


def _within(limit_s: float, done: Callable[[], bool]) -> bool:
    """Wait until `done`; returns false if that takes longer than the limit."""
    deadline = time.monotonic() + limit_s
    while not done():
        if time.monotonic() > deadline:
            return False
        time.sleep(LOOK_EVERY_S)
    return True


def _ready(stack: StackFile, name: str) -> bool:
    """Whether the service says that it is ready; on this machine its certificate is not checked."""
    port = stack.ports[name]
    connection = (
        HTTPSConnection(HOST, port, timeout=ASK_LIMIT_S, context=ssl._create_unverified_context())  # noqa: S323, SLF001
        if stack.api_url.startswith("https:")
        else HTTPConnection(HOST, port, timeout=ASK_LIMIT_S)
    )
    try:
        connection.request("GET", "/readyz")
        return connection.getresponse().status == READY
    except (OSError, HTTPException):
        return False
    finally:
        connection.close()
