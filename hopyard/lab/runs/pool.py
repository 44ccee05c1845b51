"""Trials run over all cores, a process each, and every outcome kept at once.

An outcome kept from before is not run again, so an interrupted experiment goes on where it stopped.
A run that fails is a result too: it is reported with its last words, and the others go on.
"""

import asyncio
import contextlib
import fcntl
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from hopyard.lab.runs.cache import SUFFIX, kept_at, name_of
from hopyard.lab.runs.trials import Outcome, Simulation, Trial
from hopyard.show.ticker import Ticker
from hopyard.show.units import duration
from shared.runtime.damage import leaf_of
from shared.runtime.disk import make_folder

LIMIT_S = 6 * 3600.0
"""seconds of the wall clock for one run"""
EVENTS = ".ndjson.gz"
"""of an outcome's event log"""
MAKING = ".making-"
"""begins the names of folders with what is being made"""
STDERR_LIMIT = 2_000
"""characters of a failed run's last words"""
READ_BYTES = 65_536
"""of what a run prints, at once"""


class TrialRun(msgspec.Struct, frozen=True):
    """A trial and what became of it: an outcome, or the reason why there is none."""

    trial: Trial
    outcome: Outcome | None
    failure: str = ""


class TrialPool:
    """A folder of outcomes, and the processes that add to it."""

    def __init__(self, folder: Path, workers: int, ticker: Ticker, *, events: bool = False) -> None:
        self._folder = folder
        self._workers = workers
        self._ticker = ticker
        self._events = events

    async def run(self, trials: Sequence[Trial]) -> list[TrialRun]:
        """Run the trials; results come in their order, and equal trials are run once."""
        make_folder(self._folder)
        paths = {self._path(trial): trial for trial in trials}
        missing = {path: trial for path, trial in paths.items() if self._lacks(path, trial)}
        self._ticker.say(f"{len(paths)} runs, {len(paths) - len(missing)} of them kept from before")
        failures = await self._make(missing) if missing else {}
        return [_run(trial, self._path(trial), failures) for trial in trials]

    async def _make(self, missing: dict[Path, Trial]) -> dict[Path, str]:
        """The failures, by outcome.

        Runs are made in a folder of this pool's own, since another one may make the same in the same folder.
        """
        slots = asyncio.Semaphore(self._workers)
        progress = _Progress(missing, self._ticker)

        async def one(path: Path, trial: Trial) -> str:
            async with slots:
                began = time.monotonic()
                progress.show(path, 0.0)
                made = scratch / path.name
                failure = await self._process(made, trial, lambda share: progress.show(path, share))
                for file in (made.with_suffix(EVENTS), made):
                    if not failure and file.exists():
                        file.replace(path.with_name(file.name))
                progress.done(path, time.monotonic() - began, failure)
                return failure

        with _scratch(self._folder) as scratch:
            try:
                async with asyncio.TaskGroup() as group:
                    tasks = {path: group.create_task(one(path, trial)) for path, trial in missing.items()}
            except BaseExceptionGroup as several:  # such as of a disk that takes no outcome
                raise leaf_of(several) from None
            finally:
                self._ticker.clear()
        return {path: task.result() for path, task in tasks.items() if task.result()}

    async def _process(self, path: Path, trial: Trial, show: Callable[[float], None]) -> str:
        """Run one trial; the reason when it failed, else nothing. `show`: the share of it that is done."""
        events = [str(path.with_suffix(EVENTS))] if self._has_events(trial) else []
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", "hopyard.local.child", str(os.getpid()), "hopyard.lab.runs.worker"),
            *(str(path), *events),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        try:
            async with asyncio.timeout(LIMIT_S):
                said = await _heard(process, msgspec.json.encode(trial), show)
        except TimeoutError:
            return f"not done within {duration(LIMIT_S)}"
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                await process.wait()
        if process.returncode == 0:
            return ""
        last_words = said.decode(errors="replace")[-STDERR_LIMIT:].strip()
        return f"ended with {process.returncode}" + (f": {last_words}" if last_words else "")

    def _path(self, trial: Trial) -> Path:
        return self._folder / (name_of(trial) + SUFFIX)

    def _lacks(self, path: Path, trial: Trial) -> bool:
        complete = not self._has_events(trial) or path.with_suffix(EVENTS).exists()
        return kept_at(path) is None or not complete

    def _has_events(self, trial: Trial) -> bool:
        return self._events and isinstance(trial, Simulation)


async def _heard(process: asyncio.subprocess.Process, trial: bytes, show: Callable[[float], None]) -> bytes:
    """What the process said on stderr; the numbers on its stdout are shares of its work."""
    assert process.stdin
    assert process.stdout
    assert process.stderr
    said = asyncio.ensure_future(process.stderr.read())
    with contextlib.suppress(ConnectionError):  # it has ended; its last words say why
        process.stdin.write(trial)
        await process.stdin.drain()
        process.stdin.close()
    rest = b""
    while more := await process.stdout.read(READ_BYTES):
        *lines, rest = (rest + more).split(b"\n")
        rest = rest[-READ_BYTES:]  # a policy may print a line of any length
        for share in map(_share, lines):
            if share is not None:
                show(share)
    await process.wait()
    return await said


def _share(line: bytes) -> float | None:
    """None where a policy printed the line."""
    try:
        share = float(line)
    except ValueError:
        return None
    return share if 0.0 <= share <= 1.0 else None


class _Progress:
    """How much is done of each run that is to be made."""

    def __init__(self, missing: Mapping[Path, Trial], ticker: Ticker) -> None:
        self._names = {path: str(trial) for path, trial in missing.items()}
        self._shares = dict.fromkeys(missing, 0.0)
        self._begun: set[Path] = set()
        self._done = 0
        self._ticker = ticker

    def show(self, path: Path, share: float) -> None:
        """Show the share of a run that is done; called when the run begins, too."""
        self._begun.add(path)
        self._shares[path] = share
        total = len(self._shares)
        under_way = len(self._begun) - self._done
        self._ticker.show(
            f"{self._done} of {total} runs done, {under_way} under way", sum(self._shares.values()) / total
        )

    def done(self, path: Path, took_s: float, failure: str) -> None:
        self._done += 1
        name = f"[{self._done}/{len(self._shares)}] {self._names[path]}"
        if failure:
            self._ticker.say(f"{name} failed: {failure.splitlines()[-1]}")
        else:
            self._ticker.step(f"{name} took {duration(took_s)}")
        self.show(path, 1.0)


def _run(trial: Trial, path: Path, failures: dict[Path, str]) -> TrialRun:
    kept = kept_at(path) if path not in failures else None
    reason = failures.get(path, "its outcome cannot be read")
    return TrialRun(trial, None, reason) if kept is None else TrialRun(trial, kept.outcome)


@contextlib.contextmanager
def _scratch(folder: Path) -> Iterator[Path]:
    """A folder in `folder` for what is made. Deletes those that processes left when they were killed.

    A lock, which ends with its process, tells which are in use; while one is made, nobody looks for others.
    """
    with contextlib.ExitStack() as held:
        with _locked(folder):
            for left in folder.glob(f"{MAKING}*"):
                with contextlib.suppress(OSError), _locked(left, fcntl.LOCK_NB):
                    shutil.rmtree(left)
            scratch = Path(tempfile.mkdtemp(prefix=MAKING, dir=folder))
            held.enter_context(_locked(scratch))
        try:
            yield scratch
        finally:
            shutil.rmtree(scratch, ignore_errors=True)


@contextlib.contextmanager
def _locked(folder: Path, how: int = 0) -> Iterator[None]:
    """Hold a folder's lock, or none where the file system has none for folders, as some of networks.

    With LOCK_NB it raises OSError where the lock is held, or there is none.
    """
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | how)
        except OSError:
            if how:
                raise
        yield
    finally:
        os.close(descriptor)
