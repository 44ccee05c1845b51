"""Where an agent may make control groups: beneath its own group, in every hierarchy that allows it."""

import contextlib
import os
from pathlib import Path

from services.agent.process.kernel.cgroups import Groups, removed, written

V1_CONTROLLERS = ("memory", "cpu", "pids")
"""the first one that can be had tells who belongs to a group"""
LEAF = "agent"
"""group of the agent itself, where version 2 wants processes in leaves only"""


def groups_of(name: str, own: dict[str, Path] | None = None) -> Groups | None:
    """A place of this name for groups; None: the kernel lets us make none.

    `own`: folders of our own group by controller, by default as this process finds them.
    """
    own = own_folders() if own is None else own
    one = {kind: own[kind] / name for kind in V1_CONTROLLERS if kind in own}
    two = {"": _inner(own[""]) / name} if "" in own else {}
    for folders in (one, two):
        usable = {kind: folder for kind, folder in folders.items() if _made(folder)}
        if usable:
            return Groups(usable)
    return None


def own_folders(mounts: str | None = None, mine: str | None = None) -> dict[str, Path]:
    """The folder of our own group by controller; `""`: version 2.

    `mounts`, `mine`: what /proc/self/mountinfo and /proc/self/cgroup say.
    """
    mounts = _read("/proc/self/mountinfo") if mounts is None else mounts
    paths = _own_paths(_read("/proc/self/cgroup") if mine is None else mine)
    found: dict[str, Path] = {}
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        kind, _, options = (*after.split(), "", "", "")[:3]
        root, mount = before.split()[3:5]
        names = [""] if kind == "cgroup2" else options.split(",") if kind == "cgroup" else []
        for controller in names:
            if controller in paths:
                found[controller] = Path(
                    os.path.normpath(f"{mount}/{os.path.relpath(paths[controller], root)}")
                )
    return found


def _own_paths(mine: str) -> dict[str, str]:
    paths: dict[str, str] = {}
    for line in mine.splitlines():
        _, controllers, path = line.split(":", 2)
        paths |= dict.fromkeys(controllers.split(","), path)
    return paths


def _inner(own: Path) -> Path:
    """An agent that has made way for groups is in a leaf itself."""
    return own.parent if own.name == LEAF else own


def _made(folder: Path) -> bool:
    try:
        folder.mkdir(exist_ok=True)
        if (folder.parent / "cgroup.controllers").exists():
            _hand_down(folder)
        probe = folder / "probe"
        probe.mkdir(exist_ok=True)  # of an agent that was killed here
    except OSError:
        removed(folder)
        return False
    return removed(probe)


def _hand_down(folder: Path) -> None:
    """Have the controllers of version 2 for the groups in the folder, as far as the kernel gives them."""
    base = folder.parent
    wanted = [("cgroup.subtree_control", f"+{name}") for name in ("memory", "cpu")]
    if not written(base, wanted):
        with contextlib.suppress(OSError):
            (base / LEAF).mkdir(exist_ok=True)
            (base / LEAF / "cgroup.procs").write_text("0")
        written(base, wanted)
    written(folder, wanted)


def _read(path: str) -> str:
    try:
        return Path(path).read_text("utf-8")
    except OSError:
        return ""
