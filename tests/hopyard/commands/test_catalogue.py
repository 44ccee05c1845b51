"""The catalogue, as it is shown."""

import json
from pathlib import Path

import pytest

from loadgen.catalogue.specs import shipped
from loadgen.world.emulated import EmulatedWorld
from tests.hopyard.cli_line import Hopyard


def test_the_catalogue_lists_the_workloads_of_the_emulated_world(hopyard: Hopyard) -> None:
    shown = hopyard("catalogue", "--json")
    found = json.loads(shown.out)
    pairs = {(row["model"], row["dataset"]) for row in found["models"]}
    assert pairs == set(shipped().models)
    assert {f"{model} on {dataset}" for model, dataset in pairs} == set(EmulatedWorld(1).workloads)
    assert {"h100", "h200", "a10", "l4", "l40s", "mi300x"} <= set(found["gpus"])
    assert all(row["source"] for row in found["gpus"].values())


def test_one_kind_of_entries_can_be_listed(hopyard: Hopyard) -> None:
    shown = hopyard("catalogue", "gpus")
    assert "h100" in shown.out
    assert "resnet18" not in shown.out
    assert hopyard("catalogue", "gpuss").code == 2


def test_large_numbers_of_the_catalogue_are_written_out(hopyard: Hopyard, tmp_path: Path) -> None:
    scenario = tmp_path / "mine.yaml"
    scenario.write_text(
        "name: mine\ncluster: tiny\nworkload: {arrivals: poisson, count: 1, mix: short}\n"
        "catalogue: {gpus: {future: {fp32: 1.104e15, memory: 1.2e12, bandwidth: 7.7e12, sustained: 0.8}}}\n"
    )
    shown = hopyard("catalogue", "gpus", "--scenario", str(scenario)).out
    assert next(line for line in shown.splitlines() if "future" in line).split()[1:4] == [
        "1,200",
        "7,700",
        "1,104",
    ]
    assert "e+" not in hopyard("catalogue").out


def test_speeds_stand_beside_those_that_others_measured(hopyard: Hopyard) -> None:
    lines = hopyard("catalogue", "measured").out.splitlines()
    assert lines[0].split() == ["table", "model", "gpu", "batch", "ratio", "off", "held"]
    assert lines[1].split()[:6] == ["gavel", "resnet18", "cifar10", "v100", "16-256", "1.02"]
    assert lines[-1].split()[0] == "all"
    found = json.loads(hopyard("catalogue", "measured", "--json").out)["measured"]
    assert {row["measured"]["part"] for row in found} == {"fit", "held"}


OWN = "{fp32: 75e12, memory: 180e9, bandwidth: 7.7e12, sustained: 0.8}"


def test_entries_of_a_scenario_and_of_the_setting_are_listed(
    hopyard: Hopyard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scenario, own = tmp_path / "mine.yaml", tmp_path / "own.yaml"
    scenario.write_text(
        "name: mine\ncluster: tiny\nworkload: {arrivals: poisson, count: 1, mix: short}\n"
        f"catalogue: {{gpus: {{b200: {OWN}}}}}\n"
    )
    own.write_text(f"gpus: {{b300: {OWN}}}\n")
    shown = hopyard("catalogue", "gpus", "--scenario", str(scenario)).out
    assert "b200" in shown
    assert "b300" not in shown
    monkeypatch.setenv("HOPYARD_CATALOGUE", str(own))
    assert "b300" in hopyard("catalogue", "gpus").out
    assert {"b200", "b300", "h100"} <= set(
        json.loads(hopyard("catalogue", "gpus", "--scenario", str(scenario), "--json").out)["gpus"]
    )


def test_a_fault_of_the_catalogue_setting_s_file_is_printed(
    hopyard: Hopyard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "own.yaml"
    own.write_text(f"gpus:\n  b300: {OWN.replace('memory', 'memroy')}\n")
    monkeypatch.setenv("HOPYARD_CATALOGUE", str(own))
    refused = hopyard("catalogue", "gpus")
    assert refused.code == 2
    assert "own.yaml:2: $.gpus.b300.memroy: there is no such field; did you mean memory?" in refused.err
