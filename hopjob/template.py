"""`python -m hopjob.template`: starts ranks as forks of a process that has already imported torch.

It reads and writes lines of JSON. In: `{"fork": {"id", "argv", "env", "cwd", "log", "enter"}}`, or
`{"retire": {}}`, after which it forks no more and ends with its last fork. Out: once `{"ready": {"pid"}}`,
then `{"forked": {"id", "pid"}}` or `{"unforked": {"id", "reason"}}`, and `{"gone": {"pid", "code"}}`. Once
`{"outdated": {}}` if other libraries are installed than it has imported; then it retires by itself.

A fork becomes an ordinary process with its own session, environment, folder and output, and runs what
`python -m hopjob ARGV` would run. The template never uses a GPU. When its input ends, it ends; forks go on.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import select
import signal
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any, NoReturn

import torch
import torch.distributed
import torch.nn.parallel
import torch.utils.data

from hopjob import job, launch, process_title  # noqa: F401 - forks find them imported

with contextlib.suppress(ImportError):  # torch 1.13 lacks it; later versions import it when DDP is first used
    import torch._dynamo

BLOCK = 1 << 16
FAILED, CANNOT_START = 1, 127
"""exit codes; the second is that of the agent's `enter` too, if a job's folder or program is missing"""
OOM_SCORE = "500"
"""as in `enter`: the kernel kills jobs before the agent when memory runs out"""
MARK = "HOPJOB_LAST"
"""the variable by which the agent finds the processes of a worker"""
LIBRARIES = ("torch", "numpy")
"""modules whose files, and the folders in which they are installed, show whether something was installed"""


class Template:
    def __init__(self) -> None:
        self._imported = _stamps()
        self._retired = False
        self._forks: set[int] = set()
        """pids of the forks that run"""
        self._wake_read, self._wake_write = os.pipe()
        for end in (self._wake_read, self._wake_write):
            os.set_blocking(end, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.set_wakeup_fd(self._wake_write)

    def serve(self) -> None:
        """Fork on request, until the input ends."""
        gc.collect()
        gc.freeze()  # else the collector of a fork would write to memory that is shared, and so copy it
        _send("ready", pid=os.getpid())
        text = b""
        while True:
            ready, _, _ = select.select([0, self._wake_read], [], [])
            if self._wake_read in ready:
                os.read(self._wake_read, BLOCK)
                self._reap()
            if 0 in ready:
                read = os.read(0, BLOCK)
                if not read:
                    return
                *lines, text = (text + read).split(b"\n")
                for line in lines:
                    self._take(json.loads(line))
            if self._retired and not self._forks:
                return

    def _take(self, message: dict[str, Any]) -> None:
        if "fork" in message:
            self._fork(message["fork"])
        else:
            self._retired = True

    def _fork(self, order: dict[str, Any]) -> None:
        if not self._retired and _stamps() != self._imported:
            self._retired = True
            _send("outdated")
        if self._retired:
            _send("unforked", id=order["id"], reason="the template is out of use")
            return
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of threads; numerical libraries survive forks
                pid = os.fork()
        except OSError as error:
            _send("unforked", id=order["id"], reason=str(error))
            return
        if pid == 0:
            self._become(order)
        self._forks.add(pid)
        _send("forked", id=order["id"], pid=pid)

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            self._forks.discard(pid)
            _send("gone", pid=pid, code=os.waitstatus_to_exitcode(status))

    def _become(self, order: dict[str, Any]) -> NoReturn:
        code = FAILED
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            os.close(self._wake_read)
            os.close(self._wake_write)
            if not (reason := _why_not_moved(order)):
                launch.run(list(order["argv"]))
            code = CANNOT_START
            sys.stderr.write(f"hopyard: cannot be started: {reason}\n")
        except SystemExit as ended:
            code = launch.exit_code(ended)
        except BaseException:  # noqa: BLE001 - a fork must not go on in the template's code
            sys.excepthook(*sys.exc_info())
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _why_not_moved(order: dict[str, Any]) -> str:
    """Move the fork. Returns what it cannot reach, and why; empty if it can reach all."""
    try:
        _move(order)
    except OSError as error:
        return f"{error.filename}: {error.strerror}"
    return ""


def _move(order: dict[str, Any]) -> None:
    """Move a fork into the job's own cgroup, session, output, environment and folder."""
    for procs in order.get("enter", ()):
        with contextlib.suppress(OSError), open(procs, "w", encoding="ascii") as file:  # noqa: PTH123
            file.write("0")
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:  # noqa: PTH123
        file.write(OOM_SCORE)
    os.setsid()
    log = os.open(order["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    null = os.open(os.devnull, os.O_RDONLY)
    for target, source in ((0, null), (1, log), (2, log)):
        os.dup2(source, target)
    os.close(log)
    os.close(null)
    environment = {str(key): str(value) for key, value in order["env"].items()}
    os.environ.clear()
    os.environ.update(environment)
    process_title.set_title(_title(environment, order["argv"]), f"{MARK}={environment.get(MARK, '')}")
    os.chdir(order["cwd"])
    tempfile.tempdir = None  # looked up again, since the job may set TMPDIR
    sys.path[1:1] = [entry for entry in environment.get("PYTHONPATH", "").split(os.pathsep) if entry]
    if environment.get("OMP_NUM_THREADS", "").isdecimal():
        torch.set_num_threads(int(environment["OMP_NUM_THREADS"]))
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed()  # otherwise all forks would draw the same numbers


def _title(environment: dict[str, str], argv: list[str]) -> str:
    placement = environment.get("HOPJOB_PLACEMENT", "")
    return " ".join(["hopjob", *placement.split(), f"rank {environment.get('RANK', '0')}:", *argv])


def _stamps() -> dict[str, tuple[int, ...]]:
    """Signatures of the libraries and of their folders, by path; (): there is no such file."""
    files = (getattr(sys.modules.get(name), "__file__", None) for name in LIBRARIES)
    paths = [Path(file) for file in files if file]
    return {str(path): _stamp(path) for file in paths for path in (file, file.parents[1])}


def _stamp(path: Path) -> tuple[int, ...]:
    try:
        found = path.stat()
    except OSError:
        return ()
    return found.st_ino, found.st_mtime_ns, found.st_size


def _send(kind: str, **value: object) -> None:
    text = json.dumps({kind: value}).encode() + b"\n"
    while text:
        text = text[os.write(1, text) :]


if __name__ == "__main__":
    Template().serve()
    os._exit(0)
