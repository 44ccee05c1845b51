"""What is installed is what `pyproject.toml` declares: tests of every policy take their names from there."""

import tomllib

import pytest

from shared.runtime.plugins import NODES, POLICIES, PREDICTORS, RUNNERS, WORLDS, Group
from tests.paths import ROOT

DECLARED = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["entry-points"]
GROUPS = (POLICIES, WORLDS, RUNNERS, NODES, PREDICTORS)


@pytest.mark.parametrize("group", GROUPS, ids=lambda group: group.kind)
def test_the_names_are_those_declared(group: Group) -> None:
    declared = DECLARED[group.entry_points]
    found = {name: group.target(name) for name in group.names()}
    assert found == declared, "an old install: `uv sync --reinstall-package hopyard`"


def test_every_group_is_known() -> None:
    assert set(DECLARED) == {group.entry_points for group in GROUPS}
