"""Which settings of a shell hold in a simulation: each does something, is named, or is of other commands."""

import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from loadgen import simulation
from loadgen.effective_settings import LIVE_ONLY, effective_settings
from loadgen.scenarios import load_scenario
from schemas.settings import Settings
from shared.domain.conflicting_settings import ConflictingSettings
from shared.runtime.files import InvalidFile
from tests.hopyard.lab.experiment_builders import small

READ: set[str] = set()
NO_READERS = ("loadgen/results", "shared/domain/conflicting_settings")


class Noted(Settings, frozen=True, kw_only=True):
    """Settings that remember which of them a run reads, but to report them or to hold them together."""

    def __getattribute__(self, name: str) -> Any:  # noqa: ANN401 - any field
        file = sys._getframe(1).f_code.co_filename
        if name in Settings.__struct_fields__ and not any(each in file for each in NO_READERS):
            READ.add(name)
        return super().__getattribute__(name)


def test_a_setting_that_no_simulation_reads_is_named_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    READ.clear()
    monkeypatch.setattr(simulation, "Settings", Noted)
    simulation.simulate(small(), policy="fifo")
    learnt = msgspec.structs.replace(small(), settings={**small().settings, "world": "learnt"})
    with pytest.raises(InvalidFile, match="learnt_from"):
        simulation.simulate(learnt, policy="fifo")
    assert set(Settings.__struct_fields__) - READ <= LIVE_ONLY


def test_all_that_is_named_so_are_settings() -> None:
    assert set(Settings.__struct_fields__) >= LIVE_ONLY


def test_the_environment_wins_over_the_scenario_and_the_scenario_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text("round_s: 60\ngap: 0.5\nstartup_s: 1\n")
    scenario = load_scenario("tiny")  # rounds of 120 s
    environ = {"HOPYARD_SETTINGS": str(file), "HOPYARD_GAP": "0.25"}
    found = effective_settings(scenario, environ)
    assert found.scenario.settings == {**scenario.settings, "round_s": 120, "gap": 0.25, "startup_s": 1.0}
    assert found.given == {"gap": 0.25, "startup_s": 1.0}
    assert found.ignored == ()


def test_settings_without_effect_are_named_with_their_source(tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text("nats_url: nats://elsewhere\n")
    environ = {"HOPYARD_SETTINGS": str(file), "HOPYARD_SEED": "7", "HOPYARD_WEB_PORT": "80"}
    found = effective_settings(small(), environ, {"seed": "--seed"})
    assert found.ignored == (f"nats_url in {file}", "HOPYARD_SEED (--seed decides)", "HOPYARD_WEB_PORT")
    assert found.given == {}
    assert found.scenario == small()


def test_settings_of_the_scenario_without_effect_are_named_too() -> None:
    idle = msgspec.structs.replace(small(), settings={"round_s": 60, "speed": 5, "nats_url": "nats://here"})
    assert effective_settings(idle, {}).ignored == ("speed in small", "nats_url in small")


def test_the_address_of_a_stack_is_not_named_as_without_effect() -> None:
    found = effective_settings(small(), {"HOPYARD_API_URL": "http://hopyard", "HOPYARD_API_TOKEN": "t"})
    assert found.ignored == ()
    assert found.given == {}


def test_a_setting_of_the_shell_changes_the_run() -> None:
    usual, slow = (
        simulation.simulate(effective_settings(small(), environ).scenario, policy="fifo").result
        for environ in ({}, {"HOPYARD_STARTUP_S": "30"})
    )
    assert slow.settings["startup_s"] == 30.0
    assert slow.metrics["makespan_s"] != usual.metrics["makespan_s"]


def test_settings_that_cannot_hold_together_end_a_simulation_before_it_begins() -> None:
    """Every start would be taken back, and started again, for ever."""
    slow = msgspec.structs.replace(small(), settings={**small().settings, "startup_s": 60.0})
    with pytest.raises(ConflictingSettings, match="startup_s=60, start_timeout_real_s=60"):
        simulation.simulate(slow, policy="fifo")
    assert simulation.simulate(
        msgspec.structs.replace(slow, settings={**slow.settings, "startup_s": 59.0}), policy="fifo"
    ).result.jobs == {"submitted": 2, "completed": 2}
