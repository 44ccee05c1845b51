"""Finds where the agent may make control groups: below its own group, in each hierarchy that allows it."""

import contextlib
import os
from pathlib import Path

from services.agent.process.kernel.cgroups import Groups, remove_folder, write_files

V1_CONTROLLERS = ("memory", "cpu", "pids")
"""controllers of version 1 that are used; the first that is available lists a group's processes"""
LEAF = "agent"
"""name of the group into which the agent moves itself: version 2 allows processes in leaf groups only"""


def groups_of(name: str, own: dict[str, Path] | None = None) -> Groups | None:
    """A group of this name that holds the agent's groups; None: the kernel lets the agent make none.

    `own`: folders of the agent's own group by controller; None: they are looked up.
    """
    own = own_folders() if own is None else own
    v1 = {kind: own[kind] / name for kind in V1_CONTROLLERS if kind in own}
    v2 = {"": _parent_group(own[""]) / name} if "" in own else {}
    for folders in (v1, v2):
        usable = {kind: folder for kind, folder in folders.items() if _is_usable(folder)}
        if usable:
            return Groups(usable)
    return None


def own_folders(mounts: str | None = None, mine: str | None = None) -> dict[str, Path]:
    """The folders of this process's own group, by controller; key `""`: version 2.

    `mounts`, `mine`: contents of /proc/self/mountinfo and /proc/self/cgroup; None: they are read.
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


def _parent_group(own: Path) -> Path:
    """The group below which groups are made: the agent may have moved itself into a leaf of it before."""
    return own.parent if own.name == LEAF else own


def _is_usable(folder: Path) -> bool:
    try:
        folder.mkdir(exist_ok=True)
        if (folder.parent / "cgroup.controllers").exists():
            _enable_controllers(folder)
        probe = folder / "probe"
        probe.mkdir(exist_ok=True)  # an agent that was killed here may have left it
    except OSError:
        remove_folder(folder)
        return False
    return remove_folder(probe)


def _enable_controllers(folder: Path) -> None:
    """Enable the version 2 controllers for groups in the folder, as far as the kernel allows.

    The kernel allows it only where no process is in the parent group, so the agent moves itself into a leaf.
    """
    base = folder.parent
    wanted = [("cgroup.subtree_control", f"+{name}") for name in ("memory", "cpu")]
    if not write_files(base, wanted):
        with contextlib.suppress(OSError):
            (base / LEAF).mkdir(exist_ok=True)
            (base / LEAF / "cgroup.procs").write_text("0")
        write_files(base, wanted)
    write_files(folder, wanted)


def _read(path: str) -> str:
    try:
        return Path(path).read_text("utf-8")
    except OSError:
        return ""
