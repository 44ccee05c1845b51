import sys
from pathlib import Path

import pytest

from shared.runtime.plugins import POLICIES, WORLDS, Group, UnknownPlugin


def test_names_are_listed_without_importing_anything() -> None:
    sys.modules.pop("services.planner.policies.classical.las", None)
    assert "las" in POLICIES.names()
    assert list(POLICIES.names()) == sorted(POLICIES.names())
    assert "services.planner.policies.classical.las" not in sys.modules


def test_an_installed_name_stands_for_its_entry_point() -> None:
    assert WORLDS.target("emulated") == "loadgen.world:emulated"
    assert WORLDS.load("emulated").__name__ == "emulated"


def test_a_module_and_attribute_need_not_be_installed() -> None:
    assert Group("path", "hopyard.nothing").load("pathlib:Path.cwd")() == Path.cwd()


@pytest.mark.parametrize("name", ["atlantis", "", ":", "json:", ":loads", "json"])
def test_an_unknown_name_is_refused_with_the_names_there_are(name: str) -> None:
    with pytest.raises(UnknownPlugin, match=r"is unknown; there are .*emulated"):
        WORLDS.load(name)


def test_an_empty_group_says_so() -> None:
    with pytest.raises(UnknownPlugin, match="path x is unknown; there are none"):
        Group("path", "hopyard.nothing").load("x")


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("import no_such_module", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("1 / 0", "ZeroDivisionError"),
        ("def (", "SyntaxError"),
        ("thing = 1", "foreign_plugin has no world$"),
        ("worlds = 1", r"foreign_plugin has no world; did you mean worlds\?$"),
    ],
)
def test_a_module_that_cannot_be_loaded_is_one_kind_of_error(
    source: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "foreign_plugin.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "foreign_plugin", raising=False)
    with pytest.raises(UnknownPlugin, match=f"world foreign_plugin:world: {reason}"):
        WORLDS.load("foreign_plugin:world")


def test_a_missing_attribute_of_a_file_is_reported_with_its_path(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("class Mine: ...\n")
    with pytest.raises(UnknownPlugin, match=r"/mine\.py has no Own$"):
        WORLDS.load(f"{tmp_path}/mine.py:Own")
    with pytest.raises(UnknownPlugin, match=r"/mine\.py has no deep$"):
        WORLDS.load(f"{tmp_path}/mine.py:Mine.deep")


def test_a_file_is_run_once_and_its_folder_is_not_searched(tmp_path: Path) -> None:
    (tmp_path / "schemas.py").write_text("raise AssertionError")
    (tmp_path / "mine.py").write_text("import schemas.ids\nclass Own: ...\n")
    found = WORLDS.load(f"{tmp_path}/mine.py:Own")
    assert found is WORLDS.load(f"{tmp_path}/../{tmp_path.name}/mine.py:Own")
    assert str(tmp_path) not in sys.path


def test_a_file_that_fails_is_tried_again(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    with pytest.raises(UnknownPlugin, match=r"mine.py:Own: there is no file .*mine.py"):
        WORLDS.load(f"{file}:Own")
    file.write_text("1 / 0")
    with pytest.raises(UnknownPlugin, match="ZeroDivisionError"):
        WORLDS.load(f"{file}:Own")
    file.write_text("Own = 3")
    assert WORLDS.load(f"{file}:Own") == 3
