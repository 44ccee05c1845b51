"""What a command brings with it: its own module, and no library that it does not need."""

import subprocess
import sys
from pathlib import Path

import pytest

from hopyard.cli import GROUPS, SILENT, application, groups_for
from hopyard.cli import __file__ as cli_file

NOBODY = "http://127.0.0.1:9"
JOB = """
name: one
workload: {model: resnet18, dataset: cifar10, batch_size: 256, optimizer: sgd, dataset_samples: 50000}
gpus: 2
learning_rate: {value: 0.1, gpus: 1, rule: linear}
samples: 1000000
"""
HEAVY = frozenset({
    "duckdb", "highspy", "loadgen", "matplotlib", "nats", "numpy", "ortools", "pandas", "prometheus_client",
    "services", "structlog",
})  # fmt: skip
RUN = """
import sys
from hopyard.cli import main
try:
    main(sys.argv[1:])
except SystemExit as ended:
    print(ended.code, *sys.modules, file=sys.stderr)
"""


def brought(*words: str) -> tuple[int, set[str]]:
    """The exit code, and the modules of a new process that ran the command."""
    ran = subprocess.run(
        [sys.executable, "-c", RUN, *words],
        env={"HOPYARD_API_URL": NOBODY, "HOME": "/nowhere"},
        cwd=Path(cli_file).parents[1],
        capture_output=True,
        text=True,
        timeout=100,
        check=True,
    )
    code, *modules = ran.stderr.splitlines()[-1].split()
    return int(code), set(modules)


@pytest.fixture
def job(tmp_path: Path) -> str:
    path = tmp_path / "job.yaml"
    path.write_text(JOB)
    return str(path)


@pytest.mark.parametrize("group", GROUPS)
def test_the_table_names_the_commands_of_every_module(group: str) -> None:
    app = application(GROUPS[group])
    commands = [command.name for command in app.registered_commands]
    assert [*commands, *(inner.name for inner in app.registered_groups)] == list(GROUPS[group])


def test_every_module_of_commands_is_in_the_table() -> None:
    folder = Path(cli_file).parent / "commands"
    modules = {path.stem for path in folder.glob("*.py") if "\ndef register(" in path.read_text()}
    assert modules == set(GROUPS)
    assert set(GROUPS) >= SILENT


@pytest.mark.parametrize("words", [["ps", "--json"], ["why", "ps"], ["config", "show"]])
def test_a_command_brings_its_own_module(words: list[str]) -> None:
    [group] = groups_for(words)
    assert words[0] in GROUPS[group]


@pytest.mark.parametrize("words", [[], ["--help"], ["pss"], ["--version", "ps"]])
def test_help_and_what_is_unknown_bring_all(words: list[str]) -> None:
    assert list(groups_for(words)) == list(GROUPS)


@pytest.mark.parametrize("words", [["--help"], ["simulate", "--help"], ["bench", "--help"], ["version"]])
def test_help_brings_neither_network_nor_numbers(words: list[str]) -> None:
    code, modules = brought(*words)
    assert code == 0
    assert modules.isdisjoint(HEAVY | {"aiohttp", "yaml"})


@pytest.mark.parametrize(
    "words", [["ps"], ["ps", "--json"], ["status"], ["nodes"], ["why", "a"], ["events"], ["cancel", "a"]]
)
def test_a_light_command_brings_no_library_of_the_services(words: list[str]) -> None:
    code, modules = brought(*words)
    assert code == 3
    assert "aiohttp" in modules
    assert modules.isdisjoint(HEAVY | {"yaml"})


def test_submitting_brings_yaml_and_no_more(job: str) -> None:
    code, modules = brought("submit", job)
    assert code == 3
    assert "yaml" in modules
    assert modules.isdisjoint(HEAVY)
