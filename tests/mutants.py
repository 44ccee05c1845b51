"""Whether the tests of a module would notice if it were wrong: `python -m tests.mutants NAME …`.

cosmic-ray changes one operator, number or condition at a time and runs the module's own tests; a change that
no test notices survives. Which tests are whose, `[tool.mutants]` of pyproject.toml says. It works in a
copy: what is edited meanwhile is left alone. Needs the dependency group `mutants`.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from tests.paths import ROOT
from tests.programs import run

TIMEOUT_S = 60.0
"""of the tests of one mutant; slower: it is noticed"""
OURS = ("schemas", "shared", "services", "loadgen", "hopyard", "hopjob", "tests", "pyproject.toml")
CONFIGURATION = """
[cosmic-ray]
module-path = "{module}"
timeout = {timeout}
excluded-modules = []
test-command = "{command}"
distributor.name = "local"
"""
KILLED = ("killed", "incompetent")


class Target(msgspec.Struct, frozen=True):
    module: str
    tests: list[str]


class Mutant(msgspec.Struct, frozen=True):
    line: int
    operator: str
    killed: bool


def targets() -> Mapping[str, Target]:
    table = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["mutants"]
    return msgspec.convert(table, dict[str, Target])


def tried(target: Target, work: Path) -> list[Mutant]:
    """Every mutant of the module, in a copy of the tree below `work`."""
    for name in OURS:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, work / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, work / name)
    command = f"{sys.executable} -m pytest -q -x -n 0 -p no:cacheprovider {' '.join(target.tests)}"
    (work / "mutants.toml").write_text(
        CONFIGURATION.format(module=target.module, timeout=TIMEOUT_S, command=command), "utf-8"
    )
    _run(work, "cosmic-ray", "baseline", "mutants.toml")
    _run(work, "cosmic-ray", "init", "mutants.toml", "session.sqlite")
    _run(work, "cr-filter-pragma", "session.sqlite")
    _run(work, "cosmic-ray", "exec", "mutants.toml", "session.sqlite")
    return list(_mutants(_run(work, "cosmic-ray", "dump", "session.sqlite")))


def _run(work: Path, tool: str, *words: str) -> str:
    """Raises CalledProcessError."""
    environment = {**os.environ, "PYTHONPATH": str(work), "PYTHONDONTWRITEBYTECODE": "1"}
    path = str(Path(sys.executable).parent / tool)
    done = subprocess.run(
        [path, *words], cwd=work, env=environment, check=True, stdout=subprocess.PIPE, text=True
    )
    return done.stdout


def _mutants(dump: str) -> Iterator[Mutant]:
    for line in dump.splitlines():
        item, result = msgspec.json.decode(line)
        for mutation in item["mutations"]:
            outcome = (result or {}).get("test_outcome") or "survived"
            if (result or {}).get("worker_outcome") != "skipped":
                yield Mutant(mutation["start_pos"][0], mutation["operator_name"], outcome in KILLED)


def report(name: str, target: Target, found: Sequence[Mutant]) -> Iterator[str]:
    killed = sum(mutant.killed for mutant in found)
    yield f"{name}: {killed} of {len(found)} mutants of {target.module} are noticed"
    source = (ROOT / target.module).read_text("utf-8").splitlines()
    for mutant in found:
        if not mutant.killed:
            yield f"  {target.module}:{mutant.line} {mutant.operator}: {source[mutant.line - 1].strip()}"


def main() -> None:
    names: Sequence[str] = sys.argv[1:]
    known = targets()
    unknown = [name for name in names if name not in known]
    if unknown or not names:
        raise SystemExit(f"usage: python -m tests.mutants NAME …, of {', '.join(known)}")
    for name in names:
        with tempfile.TemporaryDirectory(prefix="mutants-") as work:
            found = tried(known[name], Path(work))
        print("\n".join(report(name, known[name], found)), flush=True)


if __name__ == "__main__":
    run(main)
