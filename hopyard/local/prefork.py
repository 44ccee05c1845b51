"""Starts many programs for the price of one import: as forks of a process that has imported their modules.

`python -m hopyard.local.prefork PARENT_PID` reads requests from stdin until its end: a `Forks` a line. It
imports the modules of the first request. It answers each request by forking a process for each program, and
printing a line with the program's place in the request and the process id; then END. The forks become
children of PARENT_PID, which adopts orphans meanwhile (`adopting`). Each runs as if `hopyard.local.child`
had started it, and shows the same command line.

A program that is started again runs the code that is installed then: if a module's file has changed since
the imports, this process ends without an answer, and the next one imports again.
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
"""an argument that reserves room in the command line for a longer one"""
PR_SET_CHILD_SUBREAPER = 36
ARGUMENTS_BEGIN, ARGUMENTS_END = 48 - 3, 49 - 3
"""indices of fields of `/proc/PID/stat` after the name, which may hold spaces; index 0 is field 3"""

END = "."

_open_for = 0
"""how many blocks of `adopting` are running"""


Stamp = tuple[int, int, int]
Stamps = dict[str, Stamp | None]
"""stamps by path of the file; None: the file is gone"""


class Forks(msgspec.Struct, frozen=True):
    imports: tuple[str, ...]
    """modules to import; one that fails to import is left to the program that needs it"""
    programs: tuple[Program, ...]

    def encode(self) -> bytes:
        return msgspec.json.encode(self, enc_hook=str) + b"\n"


@contextlib.contextmanager
def adopting() -> Iterator[None]:
    """In this block, orphans among this process's descendants become its children.

    Only there, since an agent's workers may outlive the agent, and must not be reaped by this process.
    """
    _open(+1)
    try:
        yield
    finally:
        _open(-1)


def _open(more: int) -> None:
    global _open_for  # noqa: PLW0603 - the kernel has one such flag for a process
    _open_for += more
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, int(_open_for > 0), 0, 0, 0)


def main() -> None:
    parent = int(sys.argv[1])
    fork = _serve()
    if fork is None:
        return
    program, intermediate = fork
    _become(program, parent, intermediate)
    sys.argv = [program.module, program.name]
    run(program.module)


def _serve() -> tuple[Program, int] | None:
    """Returns in each fork: its program, and the id of the intermediate process. None: serving has ended."""
    imported: Stamps = {}
    for line in sys.stdin.buffer:
        request = msgspec.json.decode(line, type=Forks, dec_hook=_decode)
        if any(_stamp(file) != stamp for file, stamp in imported.items()):
            return None
        if not imported:
            _import(request.imports)
            imported = _stamps()
        if _threads() > 1:  # a fork would lack the other threads, and keep the locks that they hold
            sys.exit("cannot fork: a library started a thread when it was imported")
        intermediate = os.fork()
        if intermediate == 0:
            return _fork_each(request.programs)
        os.waitpid(intermediate, 0)
        os.write(sys.stdout.fileno(), f"{END}\n".encode())
    return None


def _decode(kind: type[Path], text: str) -> Path:
    return kind(text)


def _import(names: Sequence[str]) -> None:
    """Import the modules, and exclude all present objects from garbage collection, here and in the forks."""
    gc.disable()
    with unread():
        for name in names:
            with contextlib.suppress(Exception):
                importlib.import_module(name)
    gc.freeze()
    gc.enable()


def _stamps() -> Stamps:
    """Signatures of every module's file, and of the folders in which new installations would appear."""
    files = {getattr(module, "__file__", None) for module in list(sys.modules.values())} | {*sys.path}
    return {file: _stamp(file) for file in files if file}


def _stamp(file: str) -> Stamp | None:
    """A signature that changes with the file; None: the file is gone."""
    try:
        found = os.stat(file)  # noqa: PTH116 - hundreds of files, at every start
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


def _threads() -> int:
    return len(list(Path("/proc/self/task").iterdir()))


def _fork_each(programs: Sequence[Program]) -> tuple[Program, int]:
    """Returns in each fork; the intermediate process ends here, which makes its children orphans."""
    intermediate = os.getpid()
    with contextlib.suppress(OSError):  # no more can be forked: the rest are started without a template
        for place, program in enumerate(programs):
            pid = os.fork()
            if pid == 0:
                return program, intermediate
            os.write(sys.stdout.fileno(), f"{place} {pid}\n".encode())
    os._exit(0)


def _become(program: Program, parent: int, intermediate: int) -> None:
    """Give a fork what a separately started process has: session, umask, log, environment, arguments."""
    os.setsid()
    if program.umask >= 0:
        os.umask(program.umask)
    with Path(os.devnull).open("rb") as nothing:  # so the pipe's reader does not wait for the log's disk
        for number in (0, 1):
            os.dup2(nothing.fileno(), number)
    with owner_only.appended(program.log) as log:
        for number in (1, 2):
            os.dup2(log.fileno(), number)
    os.environ.clear()
    os.environ.update(program.environ)
    importlib.invalidate_caches()  # folders may have appeared since the imports
    _show(command_line(program, parent))
    _outlive(intermediate)
    leave_with(parent)


def _show(words: Sequence[str]) -> None:
    """Overwrite this process's command line, as other processes see it."""
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    begin, end = (int(fields[field]) for field in (ARGUMENTS_BEGIN, ARGUMENTS_END))
    line = "\0".join(words).encode()[: end - begin - 1]
    ctypes.memset(begin, 0, end - begin)
    ctypes.memmove(begin, line, len(line))


def _outlive(intermediate: int) -> None:
    """Wait until the intermediate process has ended, so that this process has its lasting parent."""
    with contextlib.suppress(ProcessLookupError):
        descriptor = os.pidfd_open(intermediate)
        select.select([descriptor], [], [])
        os.close(descriptor)


if __name__ == "__main__":
    main()
