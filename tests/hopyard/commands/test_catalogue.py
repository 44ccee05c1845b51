"""The catalogue, as it is shown."""

import json

import pytest

from loadgen.catalogue.specs import models
from loadgen.world.emulated import EmulatedWorld
from tests.hopyard.cli_line import Hopyard, command_line


@pytest.fixture
def hopyard(capsys: pytest.CaptureFixture[str]) -> Hopyard:
    return command_line(capsys)


def test_it_lists_what_the_emulated_world_knows(hopyard: Hopyard) -> None:
    shown = hopyard("catalogue", "--json")
    found = json.loads(shown.out)
    pairs = {(row["model"], row["dataset"]) for row in found["models"]}
    assert pairs == set(models())
    assert {f"{model} on {dataset}" for model, dataset in pairs} == set(EmulatedWorld(1).workloads)
    assert {"h100", "h200", "a10", "l4", "l40s", "mi300x"} <= set(found["gpus"])
    assert all(row["source"] for row in found["gpus"].values())


def test_one_kind_is_a_table(hopyard: Hopyard) -> None:
    shown = hopyard("catalogue", "gpus")
    assert "h100" in shown.out
    assert "resnet18" not in shown.out
    assert hopyard("catalogue", "gpuss").code == 2
