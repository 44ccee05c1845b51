"""A process of the embedded stack: any module, run so that it does not outlive its parent.

`python -m hopyard.local.child PARENT_PID MODULE [NAME]` is `python -m MODULE` that gets SIGTERM when its
parent is gone, however the parent went, and is killed with its whole process group a little later.
"""

import atexit
import contextlib
import ctypes
import importlib
import os
import runpy
import signal
import sys
import threading
import time
from pathlib import Path
from typing import NoReturn

import msgspec

from hopyard.failures import MISCONFIGURED, NOT_INSTALLED, not_installed
from hopyard.local.certificates import unread
from shared.runtime import owner_only
from shared.runtime.settings import Misconfigured

PR_SET_PDEATHSIG = 1
LOOK_EVERY_S = 0.5
KILL_AFTER_S = 5.0
KILL_SAVING_AFTER_S = 60.0
"""seconds until a process is killed that may be an agent with jobs' processes, which save before they end"""


class Program(msgspec.Struct, frozen=True, kw_only=True):
    """A Python module to run as a process."""

    name: str
    module: str
    environ: dict[str, str]
    log: Path
    umask: int = owner_only.UMASK
    """umask of the process; -1: that of the process that starts it"""


def command_line(program: Program, parent: int) -> list[str]:
    """Run the module. The name in the arguments is only for people who list processes."""
    return [sys.executable, "-P", "-m", "hopyard.local.child", str(parent), program.module, program.name]


def main() -> None:
    parent, module = int(sys.argv[1]), sys.argv[2]
    leave_with(parent)
    sys.argv = sys.argv[2:]
    run(module)


def run(module: str) -> None:
    """Run a module as `python -m MODULE` does, with the arguments in `sys.argv`."""
    try:
        if module.startswith("services."):  # no HTTPS requests; the NATS client reads certificates itself
            with unread():
                importlib.import_module("aiohttp")
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except (ModuleNotFoundError, BaseExceptionGroup) as error:
        lacking = not_installed(error)
        if lacking is None:
            raise
        sys.stderr.write(f"{lacking}\n")
        sys.exit(NOT_INSTALLED)
    except Misconfigured as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(MISCONFIGURED)
    _end()


def _end() -> NoReturn:
    """Exit without freeing every object, which in a fork would copy their memory first."""
    threading._shutdown()  # type: ignore[attr-defined] # noqa: SLF001 - multiprocessing ends its forks so
    atexit._run_exitfuncs()  # noqa: SLF001 - as above
    with contextlib.suppress(OSError):  # of a disk that is full
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(0)


def leave_with(parent: int) -> None:
    """Make this process end soon after process `parent` has."""
    asked = _ask_kernel()
    threading.Thread(target=_watch, args=(parent, asked), daemon=True, name="parent-watch").start()


def _ask_kernel() -> bool:
    """Have Linux send SIGTERM at the parent's death; false on systems that cannot."""
    if sys.platform != "linux":
        return False
    return ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM) == 0  # type: ignore[no-any-return]


def _watch(parent: int, asked: bool) -> None:  # noqa: FBT001 - the target of a thread
    """Watch the parent: it may have died before the kernel was asked; grandchildren get no SIGTERM."""
    late = os.getppid() != parent
    while os.getppid() == parent:
        time.sleep(LOOK_EVERY_S)
    if late or not asked:
        os.kill(os.getpid(), signal.SIGTERM)
    emulates = os.environ.get("HOPYARD_RUNNER", "emulated") == "emulated"
    time.sleep(KILL_AFTER_S if emulates else KILL_SAVING_AFTER_S)
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    main()
