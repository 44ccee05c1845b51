"""The data folder of an embedded stack: who holds it, where its services listen, where its clock stands.

Only its owner may read it: it holds credentials and the output of jobs.
"""

import contextlib
import fcntl
import stat
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from hopyard.failures import Claimed, Invalid
from hopyard.local.pids import alive
from schemas.base import Message
from schemas.cluster import ClusterFile
from schemas.instances import instance_name, instances_of
from shared.runtime import owner_only

DEFAULT = Path(".hopyard")
LEFTOVERS_LIMIT_S = 10.0
CLOCK = "clock.json"
CLUSTER = "cluster.json"
"""the emulated cluster with which the stack began last"""
PORT = "api-port"
PORTS = 2**16
MARKS = ("lock", CLOCK, CLUSTER, "nats")
"""a folder that holds one of these is a stack's"""
CLOSED = ("credentials", "logs", "nats", "output")
"""folders in the data folder that no job of another account passes through"""
REMEDY = (
    'write {"origin": O, "speed": S} into it, with the two from a backup: tar -xOf BACKUP backup.json; '
    "or restore the backup (`hopyard restore`)"
)
"""for a clock file that cannot be read"""


class StackFile(Message, frozen=True, kw_only=True):
    """How other commands find a running stack: DIR/stack.json, written by `hopyard up`."""

    api_url: str
    nats_url: str
    pid: int
    """process id of `hopyard up` itself"""
    pids: dict[str, int]
    """process ids of the services, by name"""
    ports: dict[str, int]
    """web ports of the services, by name"""
    restarts: dict[str, int] = {}
    """number of restarts of each service that ended by itself"""
    last_errors: dict[str, str] = {}
    """how each of these services ended last"""
    accounts: int | None = None
    """stamp of the accounts that NATS has taken; None: of a version that does not say"""
    accounts_refused: str = ""
    """why NATS has not taken the accounts of now; empty: it has, or will in a moment"""

    def api_urls(self) -> list[str]:
        """The API's addresses, one for each instance of admission."""
        parts = urlsplit(self.api_url)
        ports = [self.ports[name] for name in instances_of("admission") if name in self.ports]
        others = [f"{parts.scheme}://{parts.hostname}:{port}" for port in ports if port != parts.port]
        return [self.api_url, *others]


class ClockFile(Message, frozen=True, kw_only=True):
    """Cluster second 0 and how fast it has gone since: DIR/clock.json."""

    origin: float
    speed: float


@contextlib.contextmanager
def claimed(data: Path) -> Iterator[None]:
    """Hold the folder for as long as this process lives, at most. Raises Claimed, Invalid."""
    _check_name(data)
    close_to_others(data, owner_only.PASSED)
    with owner_only.appended(data / "lock") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Claimed(f"another stack runs on {data}; stop it, or choose another --data") from None
        _await_leftovers(data)
        try:
            yield
        finally:
            (data / "stack.json").unlink(missing_ok=True)


def last_cluster(data: Path) -> str:
    """Name of the emulated cluster with which the folder's stack began last; empty if no file says."""
    try:
        return msgspec.json.decode((data / CLUSTER).read_bytes(), type=ClusterFile).name
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return ""


def _check_name(data: Path) -> None:
    """Raises Invalid for a path that is not UTF-8 text, as settings and messages are."""
    try:
        str(data.absolute()).encode()
    except UnicodeEncodeError:
        raise Invalid(f"{str(data.absolute())!a} is not UTF-8 text; choose another --data") from None


def close_to_others(data: Path, mode: int = owner_only.FOLDER) -> None:
    """Close the folder to other accounts.

    Raises Invalid if it is another account's, or no stack's folder; OSError if it cannot be made.
    """
    with contextlib.suppress(FileNotFoundError):
        open_to_others = data.stat().st_mode & owner_only.OTHERS & ~mode
        found = {each.name for each in data.iterdir()}
        if open_to_others and found and found.isdisjoint(MARKS):
            raise Invalid(
                f"{data} is open to others, and holds files that no stack made: "
                f"chmod 700 {data}, or choose another --data"
            )
    try:
        owner_only.make_folder(data, mode)
    except owner_only.Exposed as error:
        raise Invalid(str(error)) from None


def close_contents(data: Path) -> None:
    """Close what an older version left open to other accounts, which may still pass through to their jobs.

    Links are left alone: their targets are not the stack's.
    """
    for path in data.iterdir():
        mode = path.lstat().st_mode
        if not mode & owner_only.OTHERS:
            continue
        if stat.S_ISREG(mode):
            path.chmod(owner_only.FILE)
        elif stat.S_ISDIR(mode) and path.name in CLOSED:
            path.chmod(owner_only.FOLDER)


@contextlib.contextmanager
def empty_folder(keep: Path | None) -> Iterator[Path]:
    """A folder that stays, or a temporary one. Raises Invalid if it is not empty."""
    if keep is not None:
        if keep.exists() and any(keep.iterdir()):
            raise Invalid(f"{keep} is not empty, and a run begins with an empty event log")
        yield keep
        return
    with tempfile.TemporaryDirectory(prefix="hopyard-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


def store_of(data: Path, instance: int = 1) -> Path:
    """The store of an instance of the estimator. Each has its own: a stopped process keeps it locked."""
    return data / f"{instance_name('estimator', instance)}.duckdb"


def write_stack_file(data: Path, stack: StackFile) -> None:
    owner_only.write(data / "stack.json", _line(stack), lasting=False)


def read_stack_file(data: Path) -> StackFile | None:
    try:
        return msgspec.json.decode((data / "stack.json").read_bytes(), type=StackFile)
    except (OSError, msgspec.DecodeError):
        return None


def write_port(data: Path, port: int) -> None:
    owner_only.write(data / PORT, f"{port}\n".encode(), lasting=False)


def last_port(data: Path) -> int:
    """Port of the API when a stack last ran on the folder; 0: any will do."""
    try:
        port = int((data / PORT).read_bytes())
    except (OSError, ValueError):
        return 0
    return port if 0 < port < PORTS else 0


def clock_origin(data: Path, speed: float, now: float) -> float:
    """Unix time of cluster second 0, so that the clock of a folder never goes back, at whatever speed.

    `now` is Unix time, and where a new folder's clock starts.
    """
    clock = _clock_in(data)
    reached = 0.0 if clock is None else (now - clock.origin) * clock.speed
    origin = now - reached / speed
    write_clock(data, origin, speed)
    return origin


def write_clock(data: Path, origin: float, speed: float) -> None:
    owner_only.write(data / CLOCK, _line(ClockFile(origin=origin, speed=speed)))


def cluster_time(data: Path) -> float:
    """What the folder's clock says now; infinite where it has none. Raises Invalid if it cannot be read."""
    clock = _clock_in(data)
    return float("inf") if clock is None else (time.time() - clock.origin) * clock.speed


def _clock_in(data: Path) -> ClockFile | None:
    """None: the folder is new. Raises Invalid if the file cannot be read: nothing else says it."""
    path = data / CLOCK
    try:
        return msgspec.json.decode(path.read_bytes(), type=ClockFile)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Invalid(f"{path}: {error}; {REMEDY}") from None


def _await_leftovers(data: Path) -> None:
    """Wait for the services of a stack that was killed: they hold its files for a few seconds more."""
    left = read_stack_file(data)
    pids = [] if left is None else list(left.pids.values())
    until = time.monotonic() + LEFTOVERS_LIMIT_S
    while any(map(alive, pids)) and time.monotonic() < until:
        time.sleep(0.1)


def _line(message: Message) -> bytes:
    return msgspec.json.encode(message) + b"\n"
