"""Control groups, of version 1 and 2: they find, limit and kill all processes of a worker.

Nothing here checks for root: what the kernel refuses counts as not supported.
"""

import contextlib
import signal
import time
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

import msgspec

from services.agent.process.kernel.identities import identity_of, send

PERIOD_US, LONG_PERIOD_US, SLICE_MIN_US = 10_000, 100_000, 1_000
"""usual period of a CPU quota, a longer one, and the least quota that the kernel takes; with long periods a
job's iterations take uneven times"""
EMPTY_LIMIT_S = 5.0
"""how long a kill is repeated while processes are left"""
REMOVAL_LIMIT_S = 5.0
LOOK_EVERY_S = 0.01

Files = Iterable[tuple[str, str]]
"""(name, text to write into it) of files of a group"""


class OutOfMemory(msgspec.Struct, frozen=True):
    kills: int = 0
    """processes of the group that the kernel ended for want of memory"""
    at_limit: int = 0
    """how often the group reached its own memory limit"""


class Group(msgspec.Struct, frozen=True):
    """The group of one worker: its folder in each hierarchy by controller; `""`: version 2."""

    folders: dict[str, Path]

    @property
    def enter(self) -> tuple[Path, ...]:
        """The files that a process writes `0` into to enter the group."""
        return tuple(folder / "cgroup.procs" for folder in self.folders.values())

    def set_limits(self, *, memory: float | None, cpus: float | None) -> tuple[str, ...]:
        """Set limits of memory (bytes) and CPU (cores).

        Returns the names of those that cannot be set here.
        """
        v2 = "" in self.folders
        wanted = []
        if memory is not None:
            wanted.append(("memory", "memory", _memory_files(int(memory), v2=v2)))
        if cpus is not None:
            wanted.append(("cpus", "cpu", _cpu_files(cpus, v2=v2)))
        return tuple(name for name, controller, files in wanted if not self._set(controller, files))

    def _set(self, controller: str, files: Files) -> bool:
        folder = self.folders.get(controller) or self.folders.get("")
        if folder is None or not write_files(folder, files):
            return False
        if controller == "memory":
            _keep_from_swapping(folder)
        return True

    def pids(self) -> list[int]:
        folder = next(iter(self.folders.values()))
        with contextlib.suppress(OSError):
            return [int(pid) for pid in (folder / "cgroup.procs").read_text().split()]
        return []

    def out_of_memory(self) -> OutOfMemory:
        v1, v2 = self.folders.get("memory"), self.folders.get("")
        if v1 is not None:
            kills = _numbers(v1 / "memory.oom_control").get("oom_kill", 0)
            return OutOfMemory(kills, _number(v1 / "memory.failcnt"))
        events = _numbers(v2 / "memory.events") if v2 else {}
        return OutOfMemory(events.get("oom_kill", 0), events.get("oom", 0))

    def kill(self) -> None:
        """Send SIGKILL to all processes until none is left, for a few seconds. Blocks."""
        then = time.monotonic() + EMPTY_LIMIT_S
        v2 = self.folders.get("")
        while (pids := self.pids()) and time.monotonic() < then:
            if v2 is None or not write_files(v2, [("cgroup.kill", "1")]):
                for pid in pids:
                    self._kill_member(pid)
            time.sleep(LOOK_EVERY_S)

    def _kill_member(self, pid: int) -> None:
        """Kill a process of the group. It is checked again after its identity is taken: pids are reused."""
        identity = identity_of(pid)
        if identity is not None and pid in self.pids():
            send(identity, signal.SIGKILL)

    def remove(self) -> None:
        """Remove its folders. Blocks, as `remove_folder` does."""
        for folder in self.folders.values():
            remove_folder(folder)


class Groups(msgspec.Struct, frozen=True):
    """The group that holds all groups of an agent: a folder in each hierarchy, by controller."""

    folders: dict[str, Path]

    def of(self, name: str) -> Group:
        """The group of this name, which need not exist."""
        return Group({controller: folder / name for controller, folder in self.folders.items()})

    def make(self, name: str) -> Group:
        """Make the group, unless it exists. Raises OSError."""
        group = self.of(name)
        for folder in group.folders.values():
            folder.mkdir(parents=True, exist_ok=True)
        return group

    def clear(self, but: Collection[str]) -> None:
        """Kill all processes in the groups that `but` does not name, and remove those groups. Blocks."""
        found = {path.name for folder in self.folders.values() for path in folder.iterdir() if path.is_dir()}
        for name in found - set(but):
            group = self.of(name)
            group.kill()
            group.remove()

    def remove(self) -> None:
        """Remove the agent's own group wherever no group is left in it. Blocks, as `remove_folder` does."""
        empty = {name: folder for name, folder in self.folders.items() if not _has_groups(folder)}
        Group(empty).remove()


def write_files(folder: Path, files: Files) -> bool:
    """Write into files that the kernel made; false if one is missing or refuses."""
    try:
        for name, text in files:
            with (folder / name).open("r+b", buffering=0) as file:
                file.write(text.encode())
    except OSError:
        return False
    return True


def _has_groups(folder: Path) -> bool:
    try:
        return any(path.is_dir() for path in folder.iterdir())
    except OSError:
        return False


def remove_folder(folder: Path) -> bool:
    """Remove a group's folder; whether it is gone.

    Blocks: the kernel takes a while to see that it is empty.
    """
    then = time.monotonic() + REMOVAL_LIMIT_S
    while folder.exists():
        with contextlib.suppress(OSError):
            folder.rmdir()
            return True
        if time.monotonic() > then:
            return False
        time.sleep(LOOK_EVERY_S)
    return True


def _keep_from_swapping(folder: Path) -> None:
    """Switch swapping off for the group, if possible: at its limit a job shall be killed, not slow down."""
    write_files(folder, [("memory.swap.max", "0")]) or write_files(folder, [("memory.swappiness", "0")])


def _memory_files(size: int, *, v2: bool) -> Files:
    return [("memory.max" if v2 else "memory.limit_in_bytes", str(size))]


def _cpu_files(cpus: float, *, v2: bool) -> Files:
    period = PERIOD_US if cpus * PERIOD_US >= SLICE_MIN_US else LONG_PERIOD_US
    quota = max(int(cpus * period), SLICE_MIN_US)
    if v2:
        return [("cpu.max", f"{quota} {period}")]
    return [("cpu.cfs_period_us", str(period)), ("cpu.cfs_quota_us", str(quota))]


def _numbers(path: Path) -> Mapping[str, int]:
    with contextlib.suppress(OSError, ValueError):
        pairs = [line.split() for line in path.read_text().splitlines()]
        return {name: int(number) for name, number in pairs}
    return {}


def _number(path: Path) -> int:
    with contextlib.suppress(OSError, ValueError):
        return int(path.read_text())
    return 0
