"""Many programs at the price of one import: forked from a process that has imported what they need.

`python -m hopyard.local.prefork PARENT_PID` reads a `Forks` from stdin, imports, forks a process for each
program, and ends. The parent takes in orphans meanwhile (`adopting`), and so has them as its children. Each
runs on as if `hopyard.local.child` had begun it, and under the same command line. Nothing is forked later: a
program that is started again is read from the disk anew.
"""

import contextlib
import ctypes
import gc
import importlib
import os
import select
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from hopyard.local.certificates import unread
from hopyard.local.child import Program, command_line, leave_with, run
from shared.runtime import owner_only

POSSIBLE = sys.platform == "linux" and hasattr(os, "pidfd_open")
ROOM = " " * 256
"""an argument that leaves a command line room for a longer one"""
PR_SET_CHILD_SUBREAPER = 36
ARGUMENTS_BEGIN, ARGUMENTS_END = 48 - 3, 49 - 3
"""fields of `/proc/PID/stat` behind the name, which may hold spaces; the first behind it is the third"""

_open_for = 0


class Forks(msgspec.Struct, frozen=True):
    imports: tuple[str, ...]
    """modules; one that cannot be imported is left to the program that needs it"""
    programs: tuple[Program, ...]

    def encode(self) -> bytes:
        return msgspec.json.encode(self, enc_hook=str)


@contextlib.contextmanager
def adopting() -> Iterator[None]:
    """Within, orphans among this process's descendants become its children.

    Only then: an agent's workers may outlive it, and are not this process's to bury.
    """
    _open(+1)
    try:
        yield
    finally:
        _open(-1)


def _open(more: int) -> None:
    global _open_for  # noqa: PLW0603 - the kernel has one such mark for a process
    _open_for += more
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, int(_open_for > 0), 0, 0, 0)


def main() -> None:
    parent, middle = int(sys.argv[1]), os.getpid()
    request = msgspec.json.decode(sys.stdin.buffer.read(), type=Forks, dec_hook=_decode)
    _import(request.imports)
    if _threads() > 1:  # a fork would not have them, and would have their locks
        sys.exit("no fork: a library has begun a thread on being imported")
    program = _fork_each(request.programs)
    if program is None:
        os._exit(0)
    _become(program, parent, middle)
    sys.argv = [program.module, program.name]
    run(program.module)


def _decode(kind: type[Path], text: str) -> Path:
    return kind(text)


def _import(names: Sequence[str]) -> None:
    """What is there then stays, in every fork, and is not looked through for garbage again."""
    gc.disable()
    with unread():
        for name in names:
            with contextlib.suppress(Exception):
                importlib.import_module(name)
    gc.freeze()
    gc.enable()


def _threads() -> int:
    return len(list(Path("/proc/self/task").iterdir()))


def _fork_each(programs: Sequence[Program]) -> Program | None:
    """Its program in each fork, which says its place and process id on stdout; None in the process itself."""
    for place, program in enumerate(programs):
        if os.fork() == 0:
            os.write(sys.stdout.fileno(), f"{place} {os.getpid()}\n".encode())
            return program
    return None


def _become(program: Program, parent: int, middle: int) -> None:
    """What a process that is begun by itself is from the start."""
    os.setsid()
    if program.umask >= 0:
        os.umask(program.umask)
    with owner_only.appended(program.log) as log, Path(os.devnull).open("rb") as nothing:
        for stream, number in ((nothing, 0), (log, 1), (log, 2)):
            os.dup2(stream.fileno(), number)
    os.environ.clear()
    os.environ.update(program.environ)
    _show(command_line(program, parent))
    _outlive(middle)
    leave_with(parent)


def _show(words: Sequence[str]) -> None:
    """Write over this process's command line, as others see it."""
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    begin, end = (int(fields[field]) for field in (ARGUMENTS_BEGIN, ARGUMENTS_END))
    line = "\0".join(words).encode()[: end - begin - 1]
    ctypes.memset(begin, 0, end - begin)
    ctypes.memmove(begin, line, len(line))


def _outlive(middle: int) -> None:
    """Wait until the process that forked this one has ended, and another is this one's parent."""
    with contextlib.suppress(ProcessLookupError):
        descriptor = os.pidfd_open(middle)
        select.select([descriptor], [], [])
        os.close(descriptor)


if __name__ == "__main__":
    main()
