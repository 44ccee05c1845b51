"""What a command says where a library is not installed: one line, with what to install."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from hopyard.failures import NotInstalled, not_installed
from shared.runtime import installing
from shared.runtime.installing import not_there

ABSENT = "raise ModuleNotFoundError(f'No module named {__name__!r}', name=__name__)"
LIMIT_S = 300.0
INTO_THIS = not_there("", "").partition(": ")[2].rstrip()
LAB = (" (extra lab)", "markdown-it-py matplotlib")


def ran_without(library: str, *words: str, cwd: Path) -> tuple[int, str]:
    """Exit code and stderr of a command that cannot import the library, nor can any process it starts."""
    absent = cwd / "absent"
    absent.mkdir()
    (absent / f"{library}.py").write_text(ABSENT)
    environ = {name: value for name, value in os.environ.items() if not name.startswith("HOPYARD_")}
    path = os.pathsep.join([str(absent), *filter(None, [environ.get("PYTHONPATH")])])
    ran = subprocess.run(
        [sys.executable, "-P", "-m", "hopyard.cli", *words],
        cwd=cwd,
        env=environ | {"PYTHONPATH": path, "XDG_STATE_HOME": str(cwd / "state")},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    return ran.returncode, ran.stderr


@pytest.mark.parametrize(
    ("library", "words", "found_in"),
    [
        ("matplotlib", ["compare", "--scenario", "tiny"], LAB),
        ("matplotlib", ["experiment", "table3", "--quick"], LAB),
        ("highspy", ["simulate", "--scenario", "tiny", "--policy", "gavel"], ("", "highspy")),
        ("aiohttp", ["ps", "--watch", "--api", "http://127.0.0.1:9"], ("", "aiohttp")),
    ],
)
def test_a_command_says_what_to_install(
    library: str, words: list[str], found_in: tuple[str, str], tmp_path: Path
) -> None:
    code, said = ran_without(library, *words, cwd=tmp_path)
    extra, packages = found_in
    assert (code, said) == (1, f"hopyard: {library} is not installed{extra}: {INTO_THIS} {packages}\n")


@pytest.mark.parametrize(
    ("there", "command"),
    [
        ({"pip", "uv"}, "'/own place/python' -m pip install b"),
        ({"uv"}, "uv pip install --python '/own place/python' b"),
        (set(), "'/own place/python' -m ensurepip && '/own place/python' -m pip install b"),
    ],
)
def test_the_command_names_an_installer_that_is_there(
    there: set[str], command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An environment that uv has made has no pip, and plain `pip` there is that of another environment. The
    uv that made it need not be on the path."""
    monkeypatch.setattr(installing, "find_spec", lambda name: name if name in there else None)
    monkeypatch.setattr(shutil, "which", lambda name: name if name in there else None)
    monkeypatch.setattr(sys, "executable", "/own place/python")
    assert not_there("a", "b", "c") == f"a is not installed (extra c): {command}"


@pytest.mark.parametrize("words", [["compare"], ["experiment", "table3"]])
def test_a_mistake_is_named_before_what_is_not_installed(words: list[str], tmp_path: Path) -> None:
    code, said = ran_without("matplotlib", *words, "--policies", "hops,nonesuch", cwd=tmp_path)
    assert code == 2
    assert "nonesuch" in said
    assert "not installed" not in said


def test_a_benchmark_says_it_before_others_are_measured(tmp_path: Path) -> None:
    code, said = ran_without("selenium", "bench", "latency", "page", cwd=tmp_path)
    assert (code, said) == (1, f"hopyard: selenium is not installed: {INTO_THIS} selenium\n")


def test_a_stack_ends_with_the_service_that_lacks_a_library(tmp_path: Path) -> None:
    """The service would lack the library the next time too."""
    code, said = ran_without("duckdb", "up", "--cluster", "tiny", cwd=tmp_path)
    lacks = [
        f"hopyard: {one}: duckdb is not installed: {INTO_THIS} duckdb\n" for one in ("estimator", "monitor")
    ]
    assert code == 1
    assert said in lacks


def test_a_module_that_is_no_library_of_ours_is_a_fault() -> None:
    fault = ModuleNotFoundError("No module named 'services.nonesuch'", name="services.nonesuch")
    assert not_installed(fault) is None
    inner = ModuleNotFoundError("No module named 'ortools.sat.nonesuch'", name="ortools.sat.nonesuch")
    assert isinstance(not_installed(inner), NotInstalled)
