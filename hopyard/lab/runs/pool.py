"""Trials run over all cores, a process each, and every outcome kept at once.

An outcome kept from before is not run again, so an interrupted experiment goes on where it stopped.
A run that fails is a result too: it is reported with its last words, and the others go on.
"""

import asyncio
import contextlib
import gzip
import os
import shutil
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from hopyard.lab.runs.cache import SUFFIX, kept_at, name_of
from hopyard.lab.runs.trials import Outcome, Trial
from hopyard.local.processes import Say
from hopyard.show.units import duration

LIMIT_S = 6 * 3600.0
"""for one run, of the wall clock"""
STDERR_LIMIT = 2_000
"""characters of a failed run's last words"""


class TrialRun(msgspec.Struct, frozen=True):
    """A trial and what became of it: an outcome, or the reason why there is none."""

    trial: Trial
    outcome: Outcome | None
    failure: str = ""


class TrialPool:
    """A folder of outcomes, and the processes that add to it."""

    def __init__(self, folder: Path, workers: int, say: Say, *, events: bool = False) -> None:
        self._folder = folder
        self._workers = workers
        self._say = say
        self._events = events

    async def run(self, trials: Sequence[Trial]) -> list[TrialRun]:
        """In the order of `trials`; the same trial twice is run once."""
        self._folder.mkdir(parents=True, exist_ok=True)
        paths = {self._path(trial): trial for trial in trials}
        missing = {path: trial for path, trial in paths.items() if self._lacks(path)}
        self._say(f"{len(paths)} runs, {len(paths) - len(missing)} of them kept from before")
        failures = await self._make(missing)
        return [_run(trial, self._path(trial), failures) for trial in trials]

    async def _make(self, missing: dict[Path, Trial]) -> dict[Path, str]:
        """The failures, by outcome."""
        slots = asyncio.Semaphore(self._workers)
        progress = _Progress(len(missing), self._say)

        async def one(path: Path, trial: Trial) -> str:
            async with slots:
                began = time.monotonic()
                failure = await self._process(path, trial)
                progress.done(str(trial), time.monotonic() - began, failure)
                return failure

        async with asyncio.TaskGroup() as group:
            tasks = {path: group.create_task(one(path, trial)) for path, trial in missing.items()}
        return {path: task.result() for path, task in tasks.items() if task.result()}

    async def _process(self, path: Path, trial: Trial) -> str:
        """Run one trial; the reason when it failed, else nothing."""
        events = path.with_suffix(".ndjson")
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", "hopyard.local.child", str(os.getpid()), "hopyard.lab.runs.worker"),
            *(str(path), *([str(events)] if self._events else [])),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        try:
            async with asyncio.timeout(LIMIT_S):
                _, said = await process.communicate(msgspec.json.encode(trial))
        except TimeoutError:
            return f"not done within {duration(LIMIT_S)}"
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                await process.wait()
        if process.returncode == 0:
            if self._events:
                _compress(events)
            return ""
        return f"ended with {process.returncode}: {said.decode(errors='replace')[-STDERR_LIMIT:].strip()}"

    def _path(self, trial: Trial) -> Path:
        return self._folder / (name_of(trial) + SUFFIX)

    def _lacks(self, path: Path) -> bool:
        has_events = not self._events or path.with_suffix(".ndjson.gz").exists()
        return kept_at(path) is None or not has_events


class _Progress:
    """A line for every run that is over."""

    def __init__(self, total: int, say: Say) -> None:
        self._total = total
        self._say = say
        self._done = 0
        self._began = time.monotonic()

    def done(self, name: str, took_s: float, failure: str) -> None:
        self._done += 1
        left_s = (time.monotonic() - self._began) / self._done * (self._total - self._done)
        rest = f", about {duration(left_s)} left" if self._done < self._total else ""
        what = f"failed: {failure.splitlines()[-1]}" if failure else f"took {duration(took_s)}"
        self._say(f"[{self._done}/{self._total}] {name} {what}{rest}")


def _run(trial: Trial, path: Path, failures: dict[Path, str]) -> TrialRun:
    kept = kept_at(path) if path not in failures else None
    reason = failures.get(path, "its outcome cannot be read")
    return TrialRun(trial, None, reason) if kept is None else TrialRun(trial, kept.outcome)


def _compress(path: Path) -> None:
    with path.open("rb") as plain, gzip.open(path.with_suffix(".ndjson.gz"), "wb") as packed:
        shutil.copyfileobj(plain, packed)
    path.unlink()
