"""The tests of a module run against each of its mutants: `python -m tests.mutants.trials MODULE TEST …`.

A process is forked for each, from one that has imported all that can be had without the module: only the
module, what rests on it and its tests are imported again, so that a mutant takes a fraction of a second. A
line of JSON is printed for each. Hypothesis has one seed: the same mutants survive every time. An example
that a test fails with is enough: no smaller one is looked for.
"""

import gc
import importlib
import os
import resource
import select
import signal
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from pathlib import Path
from types import CodeType

import hypothesis
import msgspec
import pytest

from tests.mutants.changes import changes
from tests.programs import run

ONE_EXAMPLE = "one example"
OPTIONS = (
    *("-q", "-x", "-n", "0", "-p", "no:cacheprovider", "--assert=plain"),
    *("--hypothesis-seed=0", f"--hypothesis-profile={ONE_EXAMPLE}"),
)
TIMES = 10.0
"""the CPU time of the tests as they are, and `LEAST_S`: one that takes longer is noticed"""
LEAST_S = 2.0
WALL_S = 600.0
MEMORY_BYTES = 4 * 1024**3
"""a mutant that fills the memory is noticed too"""


class Trial(msgspec.Struct, frozen=True):
    line: int
    becomes: str
    """the line, changed"""
    noticed: bool


class Served(MetaPathFinder):
    """Finds one module, with the source that it is given; with none, it is not to be had."""

    def __init__(self, path: Path) -> None:
        self.path = path
        parts = path.with_suffix("").parts
        self.name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        self.source: str | None = None

    def find_spec(self, fullname: str, *_: object) -> ModuleSpec | None:
        if fullname != self.name:
            return None
        if self.source is None:
            raise ModuleNotFoundError(fullname)
        loader = _Given(fullname, str(self.path.absolute()), self.source)
        return spec_from_file_location(fullname, self.path.absolute(), loader=loader)


class _Given(SourceFileLoader):
    def __init__(self, fullname: str, path: str, source: str) -> None:
        super().__init__(fullname, path)
        self._source = source

    def get_code(self, _: str) -> CodeType:
        return compile(self._source, self.path, "exec")  # what is stored of it is of another source


class Ended(msgspec.Struct, frozen=True):
    passed: bool
    cpu_s: float
    imported: list[str]
    """names of modules, ours and others'"""


def main() -> None:
    hypothesis.settings.register_profile(
        ONE_EXAMPLE,
        deadline=None,
        database=None,
        report_multiple_bugs=False,
        phases=[hypothesis.Phase.explicit, hypothesis.Phase.generate],
    )
    served, tests = Served(Path(sys.argv[1])), sys.argv[2:]
    sys.meta_path.insert(0, served)
    source = served.path.read_text("utf-8")
    for _ in ("to see what they import", "to see how long they take then"):
        asis = tried(served, source, tests, shown=True)
        if not asis.passed:
            raise SystemExit("the tests fail as they are")
        _prepare(served, asis.imported)
    for change in changes(source):
        ended = tried(served, change.source, tests, cpu_s=TIMES * asis.cpu_s + LEAST_S)
        trial = Trial(change.line, change.becomes, noticed=not ended.passed)
        print(msgspec.json.encode(trial).decode(), flush=True)


def _prepare(served: Served, names: Iterable[str]) -> None:
    """Import all of these that can be had without the module; pytest imports tests and their helpers."""
    served.source = None
    for name in names:
        if name.partition(".")[0] not in ("tests", "conftest", "__main__", "__mp_main__"):
            with suppress(Exception):
                importlib.import_module(name)
    gc.collect()
    gc.freeze()


def tried(
    served: Served, source: str, tests: Sequence[str], *, cpu_s: float = WALL_S, shown: bool = False
) -> Ended:
    """Run the tests with this source, in a process of their own."""
    reading, writing = os.pipe()
    pid = os.fork()
    if not pid:
        os.close(reading)
        served.source = source
        _test(tests, writing, cpu_s, shown=shown)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        if not select.select([pipe], [], [], WALL_S)[0]:
            os.kill(pid, signal.SIGKILL)
        imported = pipe.read().decode().split()
    _, status, usage = os.wait4(pid, 0)
    return Ended(status == 0, usage.ru_utime + usage.ru_stime, imported)


def _test(tests: Sequence[str], writing: int, cpu_s: float, *, shown: bool) -> None:
    """In the child; it ends here."""
    resource.setrlimit(resource.RLIMIT_CPU, (int(cpu_s) + 1, int(cpu_s) + 2))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    said = os.dup(sys.stderr.fileno()) if shown else os.open(os.devnull, os.O_WRONLY)
    os.dup2(said, sys.stdout.fileno())
    os.dup2(said, sys.stderr.fileno())
    code = 1
    try:
        code = int(pytest.main([*OPTIONS, *tests], plugins=[] if shown else [_AtOnce()]))
        os.write(writing, " ".join(sys.modules).encode())
    finally:
        os._exit(code)


class _AtOnce:
    """Nothing of a process is needed once its tests have an end."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, exitstatus: int) -> None:
        os._exit(exitstatus)


if __name__ == "__main__":
    run(main)
