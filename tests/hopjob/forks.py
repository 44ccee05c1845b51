"""Ranks as forks of one process that has imported torch: as an agent starts them by default."""

import atexit
import json
import os
import queue
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from tests.torch_python import torch_python

FORK_LIMIT_S = 240.0


def begun(environment: Mapping[str, object]) -> subprocess.Popen[bytes]:
    """A template. Words both ways are JSON lines: see `hopjob.template`."""
    return subprocess.Popen(
        [torch_python(), "-m", "hopjob.template"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={key: str(value) for key, value in environment.items()},
        start_new_session=True,
    )


class Fork:
    """What is used of `subprocess.Popen`, of a process that is the child of another."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._code = 0
        self._ended = threading.Event()

    def poll(self) -> int | None:
        return self._code if self._ended.is_set() else None

    def wait(self, timeout: float | None = None) -> int:
        if not self._ended.wait(timeout):
            raise TimeoutError(f"process {self.pid} runs on after {timeout} s")
        return self._code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def gone(self, code: int) -> None:
        self._code = code
        self._ended.set()


class Forks:
    """One template, and who was forked from it."""

    def __init__(self, environment: Mapping[str, object]) -> None:
        self._template = begun(environment)
        self._forks: dict[int, Fork] = {}
        self._forked: queue.Queue[Fork] = queue.Queue()
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()

    def fork(self, argv: Sequence[str], environment: Mapping[str, str], *, folder: Path, log: Path) -> Fork:
        """A process that does what `python -m hopjob ARGV` would."""
        order = {"id": 1, "argv": argv, "env": environment, "cwd": str(folder), "log": str(log)}
        assert self._template.stdin is not None
        self._template.stdin.write(json.dumps({"fork": order}).encode() + b"\n")
        self._template.stdin.flush()
        return self._forked.get(timeout=FORK_LIMIT_S)

    def close(self) -> None:
        assert self._template.stdin is not None
        self._template.stdin.close()
        self._template.wait()
        self._reading.join()
        assert self._template.stdout is not None
        self._template.stdout.close()

    def _read(self) -> None:
        assert self._template.stdout is not None
        for line in self._template.stdout:
            self._heard(json.loads(line))

    def _heard(self, word: dict[str, Any]) -> None:
        match word:
            case {"forked": {"pid": pid}}:
                self._forks[pid] = Fork(pid)
                self._forked.put(self._forks[pid])
            case {"gone": {"pid": pid, "code": code}}:
                self._forks.pop(pid).gone(code)


@cache
def forks(**environment: object) -> Forks:
    """A template for the whole run of tests: importing torch costs more than most of what ranks do here."""
    found = Forks(environment)
    atexit.register(found.close)
    return found
