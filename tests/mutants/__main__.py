"""Whether the tests of a module would notice if it were wrong: `python -m tests.mutants NAME …`.

One operator, number or condition is changed at a time, and the module's own tests run (`trials`); a change
that no test notices survives, and is shown. Which tests are whose, `[tool.mutants]` of pyproject.toml says.
It works in a copy of the tree: what is edited meanwhile is left alone. Needs the dependency group `mutants`.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from tests.mutants.trials import Trial
from tests.paths import ROOT
from tests.programs import run

OURS = ("schemas", "shared", "services", "loadgen", "hopyard", "hopjob", "tests", "pyproject.toml")


class Target(msgspec.Struct, frozen=True):
    module: str
    tests: list[str]


def targets() -> Mapping[str, Target]:
    table = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["mutants"]
    return msgspec.convert(table, dict[str, Target])


def tried(target: Target, work: Path) -> Iterator[Trial]:
    """Every mutant of the module, in a copy of the tree below `work`. Raises CalledProcessError."""
    for name in OURS:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, work / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, work / name)
    command = [sys.executable, "-m", "tests.mutants.trials", target.module, *target.tests]
    environment = {**os.environ, "PYTHONPATH": str(work)}
    with subprocess.Popen(command, cwd=work, env=environment, stdout=subprocess.PIPE) as trials:
        assert trials.stdout is not None
        yield from (msgspec.json.decode(line, type=Trial) for line in trials.stdout)
    if trials.returncode:
        raise subprocess.CalledProcessError(trials.returncode, command)


def report(target: Target, trials: Iterable[Trial]) -> Iterator[str]:
    """What survives, as it is found; in the end the score."""
    source = (ROOT / target.module).read_text("utf-8").splitlines()
    outcomes: list[bool] = []
    for trial in trials:
        outcomes.append(trial.noticed)
        if not trial.noticed:
            yield f"{target.module}:{trial.line}: {source[trial.line - 1].strip()}\n    {trial.becomes}"
    yield f"{sum(outcomes)} of {len(outcomes)} mutants of {target.module} are noticed"


def main() -> None:
    names: Sequence[str] = sys.argv[1:]
    known = targets()
    unknown = [name for name in names if name not in known]
    if unknown or not names:
        raise SystemExit(f"usage: python -m tests.mutants NAME …, of {', '.join(known)}")
    for name in names:
        with tempfile.TemporaryDirectory(prefix="mutants-") as work:
            for line in report(known[name], tried(known[name], Path(work))):
                print(line, flush=True)


if __name__ == "__main__":
    run(main)
