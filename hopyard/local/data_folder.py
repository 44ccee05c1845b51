"""The data folder of an embedded stack: who holds it, where its services listen, where its clock stands."""

import contextlib
import fcntl
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from hopyard.failures import Claimed, Invalid
from hopyard.local.pids import alive
from schemas.base import Message

DEFAULT = Path(".hopyard")
LEFTOVERS_LIMIT_S = 10.0


class StackFile(Message, frozen=True, kw_only=True):
    """What `hopyard up` writes for the other commands to find it by: DIR/stack.json."""

    api_url: str
    nats_url: str
    pid: int
    """of `hopyard up` itself"""
    pids: dict[str, int]
    """of the services, by name"""
    ports: dict[str, int]
    """web ports of the services, by name"""
    restarts: dict[str, int] = {}
    """number of restarts by service, of those that ended by themselves"""
    last_errors: dict[str, str] = {}
    """how each of these services ended last"""


class ClockFile(Message, frozen=True, kw_only=True):
    """Cluster second 0 and how fast it has gone since: DIR/clock.json."""

    origin: float
    speed: float


@contextlib.contextmanager
def claimed(data: Path) -> Iterator[None]:
    """Hold the folder for as long as this process lives, at most. Raises Claimed."""
    data.mkdir(parents=True, exist_ok=True)
    with (data / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Claimed(f"another stack runs on {data}; stop it, or choose another --data") from None
        _await_leftovers(data)
        try:
            yield
        finally:
            (data / "stack.json").unlink(missing_ok=True)


@contextlib.contextmanager
def empty_folder(keep: Path | None) -> Iterator[Path]:
    """A folder that stays, or one that goes with the run. Raises Invalid when it holds something already."""
    if keep is not None:
        if keep.exists() and any(keep.iterdir()):
            raise Invalid(f"{keep} is not empty, and a run begins with an empty event log")
        yield keep
        return
    with tempfile.TemporaryDirectory(prefix="hopyard-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


def write_stack_file(data: Path, stack: StackFile) -> None:
    _write(data / "stack.json", stack)


def read_stack_file(data: Path) -> StackFile | None:
    try:
        return msgspec.json.decode((data / "stack.json").read_bytes(), type=StackFile)
    except (OSError, msgspec.DecodeError):
        return None


def clock_origin(data: Path, speed: float, now: float) -> float:
    """Unix time of cluster second 0, so that the clock of a folder never goes back, at whatever speed.

    `now` is Unix time, and where a new folder's clock starts.
    """
    path = data / "clock.json"
    try:
        clock = msgspec.json.decode(path.read_bytes(), type=ClockFile)
        reached = (now - clock.origin) * clock.speed
    except FileNotFoundError:
        reached = 0.0
    origin = now - reached / speed
    _write(path, ClockFile(origin=origin, speed=speed))
    return origin


def _await_leftovers(data: Path) -> None:
    """Services of a stack that was killed leave a few seconds later; until then they hold its files."""
    left = read_stack_file(data)
    pids = [] if left is None else list(left.pids.values())
    until = time.monotonic() + LEFTOVERS_LIMIT_S
    while any(map(alive, pids)) and time.monotonic() < until:
        time.sleep(0.1)


def _write(path: Path, message: Message) -> None:
    """All or nothing: a reader never sees half a file."""
    draft = path.with_suffix(".draft")
    draft.write_bytes(msgspec.json.encode(message) + b"\n")
    draft.replace(path)
