"""What a command brings with it: its own module, and no library that it does not need."""

import re
import socket
import subprocess
import sys
from importlib.metadata import version
from itertools import chain
from pathlib import Path

import pytest

from hopyard.actions import completion
from hopyard.cli import GROUPS, PANELS, SILENT, application, groups_for
from hopyard.cli import __file__ as cli_file
from schemas.views import JobPage, NodePage
from tests.hopyard.cli_builders import job_view, node_view
from tests.hopyard.cli_line import Hopyard, Ran, command_line
from tests.hopyard.cli_server import canned_api

NOBODY = "http://127.0.0.1:9"
JOB = """
name: one
workload: {model: resnet18, dataset: cifar10, batch_size: 256, optimizer: sgd, dataset_samples: 50000}
gpus: 2
learning_rate: {value: 0.1, gpus: 1, rule: linear}
samples: 1000000
"""
HEAVY = frozenset({
    "aiohttp", "asyncio", "duckdb", "highspy", "loadgen", "matplotlib", "nats", "numpy", "ortools", "pandas",
    "prometheus_client", "rich.live", "services", "structlog",
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
        timeout=300,
        check=True,
    )
    code, *modules = ran.stderr.splitlines()[-1].split()
    return int(code), set(modules)


@pytest.fixture
def hopyard(capsys: pytest.CaptureFixture[str]) -> Hopyard:
    return command_line(capsys)


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


@pytest.mark.parametrize("words", [["ps", "--json"], ["why", "ps"], ["config", "show", "--shell"]])
def test_a_command_brings_its_own_module(words: list[str]) -> None:
    [group] = groups_for(words)
    assert words[0] in GROUPS[group]


@pytest.mark.parametrize("words", [[], ["--help"], ["pss"]])
def test_help_and_unknown_commands_load_all_groups(words: list[str]) -> None:
    assert list(groups_for(words)) == list(GROUPS)


@pytest.mark.parametrize("words", [["--help"], ["simulate", "--help"], ["bench", "--help"], ["version"]])
def test_help_brings_neither_network_nor_numbers(words: list[str]) -> None:
    code, modules = brought(*words)
    assert code == 0
    assert modules.isdisjoint(HEAVY | {"yaml"})


@pytest.mark.parametrize(
    "words",
    [
        ["ps"],
        ["ps", "--json"],
        ["status"],
        ["nodes"],
        ["why", "a"],
        ["show", "a"],
        ["events"],
        ["logs", "a"],
        ["cancel", "a"],
        ["node", "drain", "a"],
        ["config", "show"],
    ],
)
def test_a_light_command_brings_no_library_of_the_services(words: list[str]) -> None:
    code, modules = brought(*words)
    assert code == 3
    assert "http.client" in modules
    assert modules.isdisjoint(HEAVY | {"yaml"})


def test_submitting_brings_yaml_and_no_more(job: str) -> None:
    code, modules = brought("submit", job)
    assert code == 3
    assert "yaml" in modules
    assert modules.isdisjoint(HEAVY)


def test_the_list_of_scenarios_brings_no_numbers() -> None:
    code, modules = brought("scenarios")
    assert code == 0
    assert "loadgen" in modules
    assert modules.isdisjoint({"numpy", "services"})


@pytest.mark.parametrize("help_option", ["-h", "--help"])
@pytest.mark.parametrize(
    "command", [["ps"], ["node"], ["node", "drain"], ["policy", "set"], ["simulate"], []]
)
def test_help_has_a_short_name_everywhere(hopyard: Hopyard, command: list[str], help_option: str) -> None:
    ran = hopyard(*command, help_option)
    assert ran.code == 0
    assert "Usage: hopyard" in ran.out


def test_the_version_is_one_line(hopyard: Hopyard) -> None:
    assert hopyard("--version").out == f"hopyard {version('hopyard')}\n"


def test_the_help_has_the_commands_in_four_parts(hopyard: Hopyard) -> None:
    """A part begins with its name in a frame, and every command stands in one."""
    shown = hopyard("--help").out
    parts = re.findall(r"╭─ (\w+) ─", shown)
    assert parts == ["Options", *PANELS]
    for panel, modules in PANELS.items():
        body = shown.split(f"╭─ {panel} ─")[1].split("╰─")[0]
        assert [*re.findall(r"^│ (\w+) ", body, re.MULTILINE)] != []
        assert set(re.findall(r"^│ (\w+) ", body, re.MULTILINE)) == set(chain(*modules.values()))


def completed(hopyard: Hopyard, monkeypatch: pytest.MonkeyPatch, line: str) -> Ran:
    monkeypatch.setenv("_HOPYARD_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", line)
    monkeypatch.setenv("COMP_CWORD", str(len(line.split()) - 1))
    return hopyard()


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("hopyard show be", ["bert-1", "bert-2"]),
        ("hopyard cancel --json gp", ["gpt-3"]),
        ("hopyard node drain titan-0", ["titan-0"]),
        ("hopyard policy set sia-f", ["sia-faithful"]),
        ("hopyard simulate --policy gavel-m", ["gavel-makespan", "gavel-makespan-agnostic"]),
        ("hopyard simulate --scenario hops-5", ["hops-512", "hops-512-three"]),
        ("hopyard ps --state running,que", ["running,queued"]),
        ("hopyard canc", ["cancel"]),
    ],
)
def test_a_shell_completes_ids_and_names(
    hopyard: Hopyard, monkeypatch: pytest.MonkeyPatch, line: str, words: list[str]
) -> None:
    with canned_api() as api:
        monkeypatch.setenv("HOPYARD_API_URL", api.url)
        monkeypatch.setattr(completion, "PATIENCE_S", 30.0)
        api.says(
            "GET /v1/jobs", JobPage(jobs=tuple(job_view(name) for name in ("bert-1", "bert-2", "gpt-3")))
        )
        api.says("GET /v1/nodes", NodePage(nodes=(node_view("titan-0"), node_view("titan-1"))))
        ran = completed(hopyard, monkeypatch, line)
    assert (ran.code, ran.out.split(), ran.err) == (0, words, "")


def test_without_a_stack_shell_completion_is_empty_and_silent(
    hopyard: Hopyard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOPYARD_API_URL", NOBODY)
    ran = completed(hopyard, monkeypatch, "hopyard show be")
    assert (ran.code, ran.out.strip(), ran.err) == (0, "", "")


def test_a_stack_that_does_not_answer_is_not_waited_for(
    hopyard: Hopyard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stack's port accepts the connection and then says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("HOPYARD_API_URL", f"http://127.0.0.1:{silent.getsockname()[1]}")
        ran = completed(hopyard, monkeypatch, "hopyard show be")
    assert (ran.code, ran.out.strip(), ran.err) == (0, "", "")


@pytest.mark.parametrize("words", ["up --speed nan", "demo --limit -NaN", "bench --scale nan"])
def test_nan_is_no_number(hopyard: Hopyard, words: str) -> None:
    ran = hopyard(*words.split())
    option, given = words.split()[1:]
    assert ran.code == 2
    assert ran.err.startswith(f"hopyard: {option} {given}: it takes a number from ")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("logs job-1 --rank -1", "--rank -1: it takes a number from 0 on"),
        ("logs job-1 -n 1.5", "--tail 1.5: it takes a whole number from 0 to 10,000"),
        ("up --speed x", "--speed x: it takes a number from 0.001 to 100,000"),
        ("quarantine release planner x", "SEQUENCE x: it takes a whole number from 1 on"),
        ("solve gone.json", "FILE: file 'gone.json' does not exist"),
    ],
)
def test_a_wrong_value_is_refused_in_one_line_that_says_what_the_option_takes(
    hopyard: Hopyard, words: str, said: str
) -> None:
    ran = hopyard(*words.split())
    assert (ran.code, ran.out, ran.err) == (2, "", f"hopyard: {said}\n")


@pytest.mark.parametrize("more", [[], ["--json"]])
def test_an_option_that_is_wrong_is_named_without_the_words_of_a_library(
    hopyard: Hopyard, more: list[str]
) -> None:
    ran = hopyard("ps", "--sort", "nonesuch", *more)
    assert ran.code == 2
    assert "--sort: 'nonesuch' is not one of 'submitted'" in ran.err


def test_what_to_write_is_said_where_a_file_after_json_is_taken_for_an_argument(hopyard: Hopyard) -> None:
    ran = hopyard("bench", "--json", "found.json")
    assert ran.code == 2
    assert "--json takes no file: --json --out found.json writes a file" in ran.err
