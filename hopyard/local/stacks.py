"""Finds the stack for a command that names none: only a stack that this user runs on this machine.

It is the stack of the nearest folder .hopyard, here or further up, that one runs on; else the only stack of
this user that runs. But where the stack of the nearest .hopyard has ended, a stack of another place is not
meant: what was to restart the one must not restart the other. `hopyard up` lists its stack in a folder of the
user: a file named by its process id, which holds the path of the data folder.
"""

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from hopyard.failures import Unreachable
from hopyard.local.data_folder import DEFAULT, StackFile, read_stack_file
from hopyard.local.pids import alive
from shared.runtime import owner_only
from shared.runtime.state_folder import state_folder

BY_API = "name one by --api or HOPYARD_API_URL"
BY_NATS = "set HOPYARD_NATS_URL"
BY_DATA = "name its folder by --data"
BESIDE_IT = "run this where the stack runs, as its user and in its folder"
"""ways to name a stack to a command, as an error words them"""

Mine = tuple[Path, StackFile]
"""a data folder, and the stack that runs on it"""


def my_stack(start: Path, *, instead: str = BY_API) -> StackFile:
    """The stack that a command in `start` means.

    Raises Unreachable if none or several come into question; its text ends with what to do `instead`.
    """
    return mine(start, instead)[1]


def my_folder(start: Path, *, instead: str) -> Path:
    """The data folder of `my_stack`; if that fails, the nearest data folder. Raises Unreachable."""
    try:
        return mine(start, instead)[0]
    except Unreachable:
        nearest = next((data for data in _folders(start) if (data / "lock").exists()), None)
        if nearest is None:
            raise
        return nearest


def folder_at(start: Path, served: Callable[[StackFile], bool]) -> Path | None:
    """The data folder of this user's stack for which `served` is true; None: there is none."""
    nearest = _near(start)
    mine = [*([nearest] if nearest else []), *_running().items()]
    return next((data for data, stack in mine if served(stack)), None)


def folder_of_api(url: str) -> Path | None:
    """The data folder of this user's stack with this address of its API; None: there is none."""
    return folder_at(Path.cwd(), lambda stack: url.rstrip("/") in stack.api_urls())


def mine(start: Path, instead: str = BY_API) -> Mine:
    """`my_stack`, with its data folder. Raises Unreachable."""
    nearest = _near(start)
    if nearest is not None:
        return nearest
    running = _running()
    if not running:
        if begun := starting():
            raise Unreachable(f"the stack on {begun[0]} is not up yet; try again once it is, or {instead}")
        raise Unreachable(f"no stack of yours runs on this machine; start one by `hopyard up`, or {instead}")
    if len(running) > 1:
        listed = ", ".join(f"{data} ({stack.api_url})" for data, stack in sorted(running.items()))
        raise Unreachable(f"{len(running)} stacks of yours run, none in this folder: {listed}; {instead}")
    data, stack = next(iter(running.items()))
    ended = next((data for data in _folders(start) if _mine(data / "lock")), None)
    if ended is not None and not data.resolve().is_relative_to(ended.parent.resolve()):
        how = "is not up yet" if ended.absolute() in starting() else "does not run"
        other = f"another of yours runs on {data} ({stack.api_url})"
        raise Unreachable(f"the stack on {ended} {how}; {other}; {instead}")
    return data, stack


def _folders(start: Path) -> Iterator[Path]:
    """Where a data folder .hopyard would be, the nearest first."""
    return (folder / DEFAULT for folder in (start, *start.parents))


def _near(start: Path) -> Mine | None:
    found = ((data, living(data)) for data in _folders(start))
    return next(((data, stack) for data, stack in found if stack is not None), None)


@contextlib.contextmanager
def listed(data: Path, say: Callable[[str], None]) -> Iterator[None]:
    """List this process's stack, from its start on, so that it is found from every folder once it is up.

    An account may have no folder for the list: a service's home need not exist.
    """
    entry = None
    try:
        entry = _list() / str(os.getpid())
        owner_only.make_folder(entry.parent)
        owner_only.write(entry, os.fsencode(data.absolute()), lasting=False)
    except OSError as error:
        reason = f"{error.filename}: {error.strerror.lower()}" if error.strerror else str(error)
        say(f"commands in other folders will not find this stack: {reason}")
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            if entry is not None:
                entry.unlink()


def starting() -> list[Path]:
    """Data folders of this user's stacks that are not up yet."""
    return sorted(data for data in _in_list() if living(data) is None)


def _running() -> dict[Path, StackFile]:
    """Running stacks by data folder."""
    return {data: stack for data in _in_list() if (stack := living(data)) is not None}


def _in_list() -> Iterator[Path]:
    """Data folders of the stacks in the list; forgets those that are gone."""
    for entry in _entries():
        try:
            data = Path(os.fsdecode(entry.read_bytes()))
        except FileNotFoundError:  # the stack has just ended
            continue
        if living(data) is not None or alive(int(entry.name)):
            yield data
        else:
            entry.unlink(missing_ok=True)


def _entries() -> list[Path]:
    try:
        return list(_list().glob("[0-9]*"))
    except OSError:
        return []


def living(data: Path) -> StackFile | None:
    """The stack of a data folder, if it runs. Ports of a killed stack may have other owners by now."""
    stack = read_stack_file(data)
    return stack if stack is not None and alive(stack.pid) and _mine(data / "stack.json") else None


def _mine(file: Path) -> bool:
    with contextlib.suppress(OSError):
        return file.stat().st_uid == os.geteuid()
    return False


def _list() -> Path:
    """Raises FileNotFoundError for an account without a home."""
    return state_folder() / "hopyard" / "stacks"
