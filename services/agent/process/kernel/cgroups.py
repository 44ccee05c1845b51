"""Control groups, of version 1 and 2: all processes of a worker are found, limited and ended by its group.

Nothing here asks who is root: what the kernel refuses is not there.
"""

import contextlib
import signal
import time
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

import msgspec

from services.agent.process.kernel.identities import identity_of, send

PERIOD_US, LONG_PERIOD_US, SLICE_MIN_US = 10_000, 100_000, 1_000
"""a long period makes iterations uneven; the kernel refuses a slice below the last number"""
EMPTY_LIMIT_S = 5.0
REMOVAL_LIMIT_S = 5.0
LOOK_EVERY_S = 0.01

Files = Iterable[tuple[str, str]]
"""names and what is written into them"""


class OutOfMemory(msgspec.Struct, frozen=True):
    kills: int = 0
    """processes of the group that the kernel ended for want of memory"""
    at_limit: int = 0
    """how often the group was at a limit of its own"""


class Group(msgspec.Struct, frozen=True):
    """The group of one worker: its folder in each hierarchy by controller; `""`: version 2."""

    folders: dict[str, Path]

    @property
    def enter(self) -> tuple[Path, ...]:
        """The files that a process writes `0` into to enter the group."""
        return tuple(folder / "cgroup.procs" for folder in self.folders.values())

    def limited(self, *, memory: float | None, cpus: float | None) -> tuple[str, ...]:
        """Set limits of memory (bytes) and CPU (cores); the names of those that this machine cannot set."""
        two = "" in self.folders
        wanted = []
        if memory is not None:
            wanted.append(("memory", "memory", _memory_files(int(memory), two=two)))
        if cpus is not None:
            wanted.append(("cpus", "cpu", _cpu_files(cpus, two=two)))
        return tuple(name for name, controller, files in wanted if not self._set(controller, files))

    def _set(self, controller: str, files: Files) -> bool:
        folder = self.folders.get(controller) or self.folders.get("")
        if folder is None or not written(folder, files):
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
        one, two = self.folders.get("memory"), self.folders.get("")
        if one is not None:
            kills = _numbers(one / "memory.oom_control").get("oom_kill", 0)
            return OutOfMemory(kills, _number(one / "memory.failcnt"))
        events = _numbers(two / "memory.events") if two else {}
        return OutOfMemory(events.get("oom_kill", 0), events.get("oom", 0))

    def kill(self) -> None:
        """Send SIGKILL to all processes until none is left, for a few seconds. Blocks."""
        then = time.monotonic() + EMPTY_LIMIT_S
        two = self.folders.get("")
        while (pids := self.pids()) and time.monotonic() < then:
            if two is None or not written(two, [("cgroup.kill", "1")]):
                for pid in pids:
                    self._kill_member(pid)
            time.sleep(LOOK_EVERY_S)

    def _kill_member(self, pid: int) -> None:
        """Kill a member; membership is checked again once its number can no longer be reused."""
        identity = identity_of(pid)
        if identity is not None and pid in self.pids():
            send(identity, signal.SIGKILL)

    def remove(self) -> None:
        """Blocks."""
        for folder in self.folders.values():
            removed(folder)


class Groups(msgspec.Struct, frozen=True):
    """The parent of an agent's groups: a folder in each hierarchy, by controller."""

    folders: dict[str, Path]

    def of(self, name: str) -> Group:
        """The group of this name, which need not be there."""
        return Group({controller: folder / name for controller, folder in self.folders.items()})

    def made(self, name: str) -> Group:
        """Raises OSError."""
        group = self.of(name)
        for folder in group.folders.values():
            folder.mkdir(parents=True, exist_ok=True)
        return group

    def clear(self, but: Collection[str]) -> None:
        """End what is in groups of other names, and remove them. Blocks."""
        found = {path.name for folder in self.folders.values() for path in folder.iterdir() if path.is_dir()}
        for name in found - set(but):
            group = self.of(name)
            group.kill()
            group.remove()

    def remove(self) -> None:
        """Where no group is left in it. Blocks as the removal of one does."""
        empty = {name: folder for name, folder in self.folders.items() if not _has_groups(folder)}
        Group(empty).remove()


def written(folder: Path, files: Files) -> bool:
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


def removed(folder: Path) -> bool:
    """Whether no such group is left. Blocks, for the kernel takes its time to see that one is empty."""
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
    """Switch swapping off for the group, if possible: at its limit it is killed, not slowed down."""
    written(folder, [("memory.swap.max", "0")]) or written(folder, [("memory.swappiness", "0")])


def _memory_files(size: int, *, two: bool) -> Files:
    return [("memory.max" if two else "memory.limit_in_bytes", str(size))]


def _cpu_files(cpus: float, *, two: bool) -> Files:
    period = PERIOD_US if cpus * PERIOD_US >= SLICE_MIN_US else LONG_PERIOD_US
    quota = max(int(cpus * period), SLICE_MIN_US)
    if two:
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
