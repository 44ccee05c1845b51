"""Which interpreter real jobs get: the named one, else the first around that has torch."""

import sys
from pathlib import Path

import pytest

from hopyard.failures import Failure, Invalid
from hopyard.local.torch_python import torch_python

REAL = Path(sys.executable)


def interpreter(folder: Path, says: str, code: int = 0, name: str = "python") -> Path:
    """A program that answers as an interpreter would."""
    (folder / "bin").mkdir(parents=True)
    path = folder / "bin" / name
    path.write_text(f'#!/bin/sh\n{"echo" if code == 0 else "echo >&2"} "{says}"\nexit {code}\n')
    path.chmod(0o755)
    return path


def without_torch(folder: Path, name: str = "python") -> Path:
    return interpreter(folder, "ModuleNotFoundError: No module named 'torch'", 1, name)


@pytest.fixture(autouse=True)
def no_torch_of_our_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "executable", str(without_torch(tmp_path / "own")))


def test_a_named_interpreter_wins_over_all_others(tmp_path: Path) -> None:
    named = interpreter(tmp_path / "a", "3 12 2.11.0+cu130")
    other = interpreter(tmp_path / "b", "3 11 2.0.0")
    found = torch_python(named, {"VIRTUAL_ENV": str(other.parent.parent)})
    assert (found.python, found.torch) == (named, "2.11.0+cu130")


def test_a_named_interpreter_without_torch_says_what_to_install(tmp_path: Path) -> None:
    named = without_torch(tmp_path / "a")
    with pytest.raises(Failure) as caught:
        torch_python(named, {})
    assert str(caught.value).endswith(f"No module named 'torch'; {named} -m pip install torch numpy")


@pytest.mark.parametrize("named", ["nowhere/python", "."])
def test_a_file_that_is_no_interpreter_is_refused(tmp_path: Path, named: str) -> None:
    with pytest.raises(Invalid, match="is not an interpreter"):
        torch_python(tmp_path / named, {})


@pytest.mark.parametrize("says", ["", "this is perl 5, version 36"])
def test_a_program_that_is_no_python_is_refused(tmp_path: Path, says: str) -> None:
    named = interpreter(tmp_path / "a", says)
    with pytest.raises(Failure, match="does not answer as Python does"):
        torch_python(named, {})


def test_a_file_that_the_system_cannot_run_is_refused_in_words(tmp_path: Path) -> None:
    named = tmp_path / "python"
    named.write_text("print('no first line that names an interpreter')\n")
    named.chmod(0o755)
    with pytest.raises(Failure) as caught:
        torch_python(named, {})
    assert str(caught.value) == f"{named}: exec format error"


def test_an_interpreter_that_does_not_answer_is_refused_in_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = interpreter(tmp_path / "a", "")
    named.write_text("#!/bin/sh\nexec sleep 60\n")
    monkeypatch.setattr("hopyard.local.torch_python.LOOK_LIMIT_S", 0.1)
    with pytest.raises(Failure) as caught:
        torch_python(named, {})
    assert str(caught.value) == f"{named} has not imported torch within 0.1 s"


def test_a_link_into_an_environment_stays_a_link(tmp_path: Path) -> None:
    """An interpreter knows its environment by where it is called."""
    real = interpreter(tmp_path / "real", "3 11 2.6.0")
    link = tmp_path / "env" / "bin" / "python"
    link.parent.mkdir(parents=True)
    link.symlink_to(real)
    assert torch_python(link, {}).python == link


def test_the_folder_here_hides_no_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder, version in {"site": "2.6.0", "here": "1.0.0"}.items():
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "torch.py").write_text(f"__version__ = {version!r}")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site"))
    monkeypatch.chdir(tmp_path / "here")
    assert torch_python(REAL, {}).torch == "2.6.0"


def test_an_interpreter_is_found_by_its_whole_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job that gets it runs in another folder."""
    found = interpreter(tmp_path / "a", "3 11 2.6.0", name="python3")
    monkeypatch.chdir(tmp_path)
    assert torch_python(None, {"PATH": "a/bin"}).python == found


def test_the_active_environment_comes_before_the_path(tmp_path: Path) -> None:
    active = interpreter(tmp_path / "active", "3 11 2.6.0")
    on_path = interpreter(tmp_path / "system", "3 11 1.13.1", name="python3")
    environ = {"VIRTUAL_ENV": str(tmp_path / "active"), "PATH": str(on_path.parent)}
    assert torch_python(None, environ).python == active
    assert torch_python(None, {"PATH": str(on_path.parent)}).torch == "1.13.1"


def test_every_python3_of_the_path_is_tried(tmp_path: Path) -> None:
    """The first may be that of an environment which hides the system's."""
    first, second = (
        without_torch(tmp_path / "a", "python3"),
        interpreter(tmp_path / "b", "3 11 2.6.0", name="python3"),
    )
    found = torch_python(None, {"PATH": f"{first.parent}:/nowhere::{second.parent}"})
    assert found.python == second


def test_without_any_interpreter_one_line_says_what_to_install(tmp_path: Path) -> None:
    with pytest.raises(Failure) as caught:
        torch_python(None, {"PATH": str(without_torch(tmp_path / "a", "python3").parent)})
    text = str(caught.value)
    assert "\n" not in text
    assert "pip install torch" in text
    assert "--python" in text


@pytest.mark.parametrize(
    ("says", "bad"),
    [("3 8 2.0.0", True), ("3 9 1.13.0a0+git", False), ("3 11 1.12.1", True), ("3 13 2.15.0", False)],
)
def test_versions_that_jobs_cannot_run_on_are_refused(tmp_path: Path, says: str, *, bad: bool) -> None:
    named = interpreter(tmp_path / "a", says)
    if bad:
        with pytest.raises(Failure, match=r"jobs need 3\.9 and 1\.13 at least"):
            torch_python(named, {})
    else:
        assert torch_python(named, {}).python == named


def test_noise_before_the_answer_does_no_harm(tmp_path: Path) -> None:
    assert torch_python(interpreter(tmp_path / "a", "a warning\n3 11 2.6.0"), {}).torch == "2.6.0"
