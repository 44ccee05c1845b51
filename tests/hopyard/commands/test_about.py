"""version, config, replay, bench, and the help of every command."""

import json
from pathlib import Path

import msgspec
import pytest

from hopyard.commands.bench import TAKEN_BY, Subject
from schemas.settings import Settings
from schemas.views import (
    SettingsView,
)
from shared.runtime.settings import describe
from tests.hopyard.cli_builders import job_view, status_view, submitted
from tests.hopyard.cli_line import Hopyard
from tests.hopyard.cli_server import CannedApi
from tests.paths import ROOT


def test_version_names_the_parts(hopyard: Hopyard) -> None:
    assert {"hopyard", "python", "msgspec"} <= json.loads(hopyard("version", "--json").out).keys()


def test_config_show_has_the_environment_in_it(hopyard: Hopyard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOPYARD_ROUND_S", "60")
    view = msgspec.json.decode(hopyard("config", "show", "--json").out, type=SettingsView)
    (round_s,) = (each for each in view.settings if each.name == "round_s")
    assert (round_s.value, round_s.default, round_s.source) == (60.0, 360.0, "environment")
    shown = hopyard("config", "show")
    assert "copies of every stream" in shown.out
    assert "default 360" in shown.out
    assert shown.err == "Settings of this shell, for what it starts; no stack was asked\n"


def test_config_show_is_of_the_stack_that_runs(
    hopyard: Hopyard, api: CannedApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = describe(Settings(gap=0.5, api_token="secret"), {"gap": "scenario tiny"})
    api.says("GET /v1/settings", theirs)
    monkeypatch.setenv("HOPYARD_GAP", "0.25")
    monkeypatch.setenv("HOPYARD_API_URL", api.url)
    ran = hopyard("config", "show")
    assert ran.err == (
        f"Settings in force in the stack at {api.url}; this shell has gap otherwise (--shell)\n"
    )
    assert "0.5" in ran.out
    assert "scenario tiny" in ran.out
    assert "secret" not in ran.out
    assert hopyard("config", "show", "--shell").err.startswith("Settings of this shell")


def test_config_show_names_the_file_that_it_shows(hopyard: Hopyard, tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.touch()
    said = f"Settings of {file} in this shell, for what it starts; no stack was asked\n"
    assert hopyard("config", "show", "--file", str(file)).err == said


@pytest.mark.parametrize("option", ["--scenario", "--policy"])
@pytest.mark.parametrize("command", ["simulate", "demo", "up"])
def test_an_empty_option_is_named(hopyard: Hopyard, command: str, option: str) -> None:
    ran = hopyard(command, option, "")
    assert ran.code == 2
    assert ran.err.startswith(f"hopyard: {option} is empty")


def test_a_setting_there_is_not_is_code_2(hopyard: Hopyard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOPYARD_ROUNDS", "60")
    ran = hopyard("config", "show")
    assert ran.code == 2
    assert "HOPYARD_ROUNDS" in ran.err


def test_replay_prints_every_job_and_a_summary(hopyard: Hopyard, api: CannedApi) -> None:
    api.says("GET /v1/status", status_view(speed=100_000.0))
    api.says("POST /v1/jobs", submitted())
    api.says("GET /v1/jobs/job-1", job_view(state="completed"))
    ran = hopyard("replay", "--scenario", "tiny", "--wait", "--json", "--api", api.url)
    assert ran.code == 0
    assert len(ran.err.splitlines()) == 1 + 8
    printed = json.loads(ran.out)
    assert (printed["submitted"], printed["refused"], printed["ended"]) == (8, 0, {"completed": 8})


def test_a_replay_with_refused_jobs_is_code_1(hopyard: Hopyard, api: CannedApi) -> None:
    api.says("GET /v1/status", status_view(speed=100_000.0))
    api.refuses("POST /v1/jobs", 422, "no node has it")
    ran = hopyard("replay", "--scenario", "tiny", "--api", api.url)
    assert ran.code == 1
    assert "8 of 8 jobs were refused" in ran.err


def test_a_replay_that_waits_has_code_1_where_jobs_fail(hopyard: Hopyard, api: CannedApi) -> None:
    api.says("GET /v1/status", status_view(speed=100_000.0))
    api.says("POST /v1/jobs", submitted())
    api.says("GET /v1/jobs/job-1", job_view(state="failed"))
    ran = hopyard("replay", "--scenario", "tiny", "--wait", "--api", api.url)
    assert ran.code == 1
    assert "not every job completed" in ran.err


@pytest.mark.parametrize(
    "options",
    [("--gpus", "0"), ("--gpus", "9999999999"), ("--gpus", "many"), ("--backends", "nobody")],
)
def test_a_bench_with_an_unknown_option_value_is_code_2(hopyard: Hopyard, options: tuple[str, str]) -> None:
    ran = hopyard("bench", "solver", *options)
    assert ran.code == 2
    assert " ".join(options) in ran.err


@pytest.mark.parametrize(
    "command",
    [
        *("restore backup.tar --data", "compare --out", "experiment table3 --out"),
        *("simulate --dump-problems", "up --data", "demo --keep", "bench --data", "credentials"),
        "bench solver --problems",
    ],
)
def test_an_empty_folder_is_not_the_current_one(
    hopyard: Hopyard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    """A script's unset variable leaves one; files of a run or a stack lay between the user's own."""
    monkeypatch.chdir(tmp_path)
    backup = tmp_path / "backup.tar"
    backup.touch()
    ran = hopyard(*command.split(), "")
    assert ran.code == 2
    assert ran.err.endswith(" is empty\n")
    assert list(tmp_path.iterdir()) == [backup]


@pytest.mark.parametrize("command", ["up --cluster", "up --listen", "up --scenario", "bench --scenario"])
def test_an_empty_value_is_refused(hopyard: Hopyard, command: str) -> None:
    """A script's unset variable leaves one; without --listen a stack would have emulated nodes."""
    name, option = command.split()
    ran = hopyard(name, option, "")
    assert ran.code == 2
    assert f"{option} is empty" in ran.err


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("up --scenario tiny --cluster mine.yaml", "--scenario, which has a cluster, or --cluster"),
        ("up --scenario tiny --listen 127.0.0.1:4222", "--scenario, which has a cluster, or --listen"),
        ("demo --real --scenario tiny --speed 2", "leave out --scenario, --speed"),
        ("demo --real --seed 1", "leave out --seed"),
        ("demo --real --policy fifo", "leave out --policy"),
        ("demo --real --columns submit=a,gpus=b", "leave out --columns"),
        ("experiment table3 --full", "--full: table3 has no costlier sweeps; only hare has any"),
        ("experiment hare --full --quick", "--full: the costlier sweeps have neither --quick"),
        ("experiment hopyard --policies fifo", "--policies: hopyard does not have it, as its arms are fixed"),
        ("experiment hopyard --quick --policies fifo", "--policies: hopyard does not have it"),
        (
            "experiment hopyard --seeds 3",
            "--seeds: hopyard does not have it, as its seeds are those on which",
        ),
        (
            "experiment hopyard --trace /dev/null",
            "--trace: hopyard does not have it, as its scenarios are fixed",
        ),
        ("experiment departures --policies sia", "--policies: departures does not have it, as its arms are"),
        (
            "experiment priorities --policies hops,sia",
            "--policies: priorities runs one policy, and 2 are named",
        ),
        ("experiment accuracy --policies hops,sia", "--policies: accuracy runs one policy, and 2 are named"),
        (
            "experiment priorities --policies fifo",
            "--policies: priorities compares values of the option priority_rule, which fifo lacks",
        ),
        ("experiment scalability --policies sia", "--policies: scalability solves the programs of hops"),
        (
            "compare --scenario tiny --policies fifo,hops+world=nope",
            "--policies hops+world=nope: world nope is unknown; there are emulated, learnt, table",
        ),
        ("compare --policies fifo+catalogue=nope.yaml", "nope.yaml: No such file or directory"),
        ("compare --policies hops+startup_s=1e7", "cannot hold together"),
        ("backup a.tar --checkpoints-max 1GiB", "--checkpoints-max needs --checkpoints"),
        ("bench latency --gpus 64", "--gpus needs one of these to be measured: solver, policies"),
        ("bench --gap 0.1", "--gap needs one of these to be measured: solver"),
        ("bench latency --times 3", "--times needs one of these to be measured: simulation, access"),
        (
            "bench latency --jobs 10 --scenario tiny",
            "--scenario needs one of these to be measured: simulation",
        ),
    ],
)
def test_an_option_without_effect_is_refused(hopyard: Hopyard, command: str, said: str) -> None:
    ran = hopyard(*command.split())
    assert ran.code == 2
    assert ran.err.count("\n") == 1
    assert said in ran.err


@pytest.mark.parametrize("figure", Subject)
def test_every_figure_is_measured_with_the_options_that_it_takes(
    hopyard: Hopyard, figure: Subject, tmp_path: Path
) -> None:
    """On a folder that is not empty, so that nothing is measured."""
    (tmp_path / "file").touch()
    values = {
        "gpus": "64", "instances": "1", "deadline": "1", "gap": "0.1", "problems": str(tmp_path),
        "backends": "highs", "classes": "all", "scenario": "tiny", "jobs": "10", "times": "1",
        "python": "python",
    }  # fmt: skip
    names = {"deadline_s": "deadline", "counts": "jobs"}
    options = [names.get(name, name) for name, takers in TAKEN_BY.items() if figure in takers]
    words = [word for name in options for word in (f"--{name}", values.get(name, "")) if word]
    ran = hopyard("bench", figure, *words, "--data", str(tmp_path))
    assert str(tmp_path) in ran.err
    assert "needs" not in ran.err


COMMANDS = (
    "demo", "up", "replay", "submit", "ps", "show", "why", "cancel", "priority", "hold", "release",
    "nodes", "node drain", "node restore", "events", "logs", "policy show", "policy set",
    "diag", "config show", "simulate", "scenarios", "bench", "version",
)  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS)
def test_help_teaches_with_an_example(hopyard: Hopyard, command: str) -> None:
    ran = hopyard(*command.split(), "--help")
    assert ran.code == 0
    assert f"$ hopyard {command.removesuffix(' show')}" in ran.out


def test_an_example_is_one_line_of_a_terminal() -> None:
    """Help breaks longer ones, and what is copied then ends too early."""
    found = [
        line.strip()
        for file in (ROOT / "hopyard" / "commands").glob("*.py")
        for line in file.read_text().splitlines()
        if line.strip().startswith("$ ")
    ]
    assert found
    assert max(map(len, found)) <= 78


def test_bench_names_the_settings_that_its_simulation_does_not_go_by(
    hopyard: Hopyard, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """On a folder that is not empty, so that nothing is measured."""
    (tmp_path / "file").touch()
    monkeypatch.setenv("HOPYARD_ROUND_S", "60")
    said = "simulation: by its scenario alone, without HOPYARD_ROUND_S\n"
    assert hopyard("bench", "simulation", "--data", str(tmp_path)).err.startswith(said)
    assert said not in hopyard("bench", "solver", "--data", str(tmp_path)).err
    monkeypatch.setenv("HOPYARD_ROUNDS", "60")
    assert "HOPYARD_ROUNDS" in hopyard("bench", "simulation", "--data", str(tmp_path)).err
