"""What a command that cannot go on says: one line, and the exit code that fits."""

import json
from pathlib import Path

import pytest

from hopyard.failures import Failure
from hopyard.show.terminal import write_lines
from tests.hopyard.cli_builders import JOB_YAML
from tests.hopyard.cli_line import Hopyard, Ran, command_line
from tests.services.planner.planner_policies import Raises

NOBODY = "http://127.0.0.1:1"

SCENARIO = """\
name: own
cluster: tiny
workload: {arrivals: poisson, mix: nonesuch, count: 1, rate_per_hour: 1}
"""


@pytest.fixture
def hopyard(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Hopyard:
    monkeypatch.chdir(tmp_path)
    return command_line(capsys)


@pytest.mark.parametrize("command", ["simulate", "compare --policies fifo", "experiment table3 --quick"])
def test_a_trace_of_no_known_format_is_code_2(hopyard: Hopyard, tmp_path: Path, command: str) -> None:
    trace = tmp_path / "bad.csv"
    trace.write_text("foo,bar\n1,2\n")
    ran = hopyard(*command.split(), "--trace", str(trace))
    assert ran.code == 2
    assert ran.err.startswith(f"hopyard: {trace}:1: looks like none of the formats")


def test_a_mix_there_is_not_is_code_2_with_file_and_line(hopyard: Hopyard, tmp_path: Path) -> None:
    scenario = tmp_path / "own.yaml"
    scenario.write_text(SCENARIO)
    ran = hopyard("simulate", "--scenario", str(scenario))
    assert ran.code == 2
    assert ran.err.startswith(f"hopyard: {scenario}:3: $.workload.mix: no mix is called nonesuch")


ENDLESS = """\
name: endless
cluster: tiny
settings: {round_s: 1e6, observe_every_s: 1e6}
workload:
  arrivals: listed
  jobs:
    - at_s: 0
      job:
        name: long
        workload: {model: resnet18, dataset: cifar10, batch_size: 128}
        gpus: [1]
        samples: 1e14
        checkpoint: {interval_s: 1e6}
"""


def test_a_simulation_without_end_is_code_1(hopyard: Hopyard, tmp_path: Path) -> None:
    scenario = tmp_path / "endless.yaml"
    scenario.write_text(ENDLESS)
    events = tmp_path / "events.ndjson"
    ran = hopyard("simulate", "--scenario", str(scenario), "--policy", "fifo", "--events", str(events))
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.endswith("hopyard: not over 365 days after the last job came: long-1 not ended\n")
    facts = [json.loads(line)["fact"] for line in events.read_bytes().splitlines()]
    assert ("job.submitted" in facts, "job.completed" in facts) == (True, False)


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("gpus: [1]", "gpus: [13]", "every job was refused: $.gpus: asks for at least 13 GPUs"),
        ("gpus: [1]", "gpus: [1]", "not over 365 days after the last job came: long-1 not ended"),
    ],
)
def test_a_benchmark_without_a_figure_says_why(
    hopyard: Hopyard, tmp_path: Path, old: str, new: str, why: str
) -> None:
    scenario = tmp_path / "endless.yaml"
    scenario.write_text(ENDLESS.replace(old, new))
    ran = hopyard("bench", "simulation", "--scenario", str(scenario), "--jobs", "1")
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.splitlines()[-1].startswith(f"hopyard: endless: {why}")


def test_a_comparison_of_which_only_the_bound_is_known_is_no_report(hopyard: Hopyard, tmp_path: Path) -> None:
    scenario, out = tmp_path / "endless.yaml", tmp_path / "out"
    scenario.write_text(ENDLESS)
    words = ("--policies", "fifo,sjf", "--seeds", "1", "--out", str(out))
    ran = hopyard("compare", "--scenario", str(scenario), *words)
    assert (ran.code, ran.out) == (1, "")
    said = "every run failed; the first: endless fifo seed 1: ended with 1: not over 365 days"
    assert ran.err.splitlines()[-1].startswith(f"hopyard: {said}")
    assert [path.name for path in out.iterdir()] == ["runs"]


def test_a_simulation_says_which_plans_another_policy_made(hopyard: Hopyard) -> None:
    """The figures of a policy that fails at each plan were printed as its own."""
    ran = hopyard("simulate", "--scenario", "tiny", "--policy", f"{Raises.__module__}:Raises", "--json")
    result = json.loads(ran.out)
    assert sum(note["plans"] for note in result["notes"]) == result["plans"]["plans"]
    first = result["notes"][0]
    assert "failed: RuntimeError: out of ideas for" in first["text"]
    assert f"{first['plans']} of {result['plans']['plans']} plans: {first['text']}\n" in ran.err


@pytest.mark.parametrize(
    ("typed", "says"),
    [
        ("jps", "--policy-at jps: it takes SECONDS:POLICY, as 600:jps"),
        ("soon:jps", "--policy-at soon:jps: it takes SECONDS:POLICY, as 600:jps"),
        ("-1:jps", "--policy-at -1:jps: it takes SECONDS:POLICY, as 600:jps"),
        ("nan:jps", "--policy-at nan:jps: it takes SECONDS:POLICY, as 600:jps"),
        ("600:nonesuch", "nonesuch"),
        ("600:jps+alpha=2", "policy jps, option alpha"),
    ],
)
def test_a_policy_that_cannot_come_later_is_code_2(hopyard: Hopyard, typed: str, says: str) -> None:
    ran = hopyard("simulate", "--scenario", "tiny", "--policy-at", typed)
    assert (ran.code, ran.out) == (2, "")
    assert says in ran.err


@pytest.mark.parametrize("command", ["simulate --out", "simulate --events", "solve own.json --out"])
def test_a_folder_that_is_not_there_is_found_before_the_run(
    hopyard: Hopyard, tmp_path: Path, command: str
) -> None:
    (tmp_path / "own.json").write_text("no problem, which only a run would find")
    ran = hopyard(*command.split(), "nowhere/result")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == "hopyard: nowhere/result: there is no folder nowhere\n"


def test_a_full_disk_below_a_file_is_reported_with_the_file(hopyard: Hopyard) -> None:
    ran = hopyard("simulate", "--scenario", "tiny", "--policy", "fifo", "--events", "/dev/full")
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.endswith("hopyard: /dev/full: no space left on device\n")


def test_a_folder_that_cannot_be_written_is_named(hopyard: Hopyard, tmp_path: Path) -> None:
    """Whatever a command writes there: on a read-only disk too a comparison ended with a traceback."""
    (tmp_path / "experiments").write_text("in the way of the folder")
    ran = hopyard("compare", "--scenario", "tiny", "--policies", "fifo,sjf")
    assert (ran.code, ran.out) == (1, "")
    last = ran.err.splitlines()[-1]
    assert last.startswith("hopyard: experiments/")
    assert last.endswith(": not a directory")


@pytest.mark.skipif(
    not Path("/sys/kernel").is_dir(), reason="needs Linux's /sys, where nobody may make a folder"
)
@pytest.mark.parametrize(
    "command",
    [
        *("compare --scenario tiny --policies fifo,sjf --out", "up --data", "demo --scenario tiny --keep"),
        *("bench latency --data", "credentials"),
    ],
)
def test_a_folder_that_nobody_may_make_is_named(hopyard: Hopyard, command: str) -> None:
    """Not even root, as in an immutable folder. A stack's folder was an invalid one (2), others were not."""
    ran = hopyard(*command.split(), "/sys/kernel/own")
    assert (ran.code, ran.out) == (1, "")
    where, _, why = ran.err.splitlines()[-1].rpartition(": ")
    assert where == "hopyard: /sys/kernel/own"
    assert why in {"operation not permitted", "permission denied"}


@pytest.mark.parametrize("command", ["submit own.yaml", "replay --scenario tiny"])
def test_an_empty_key_is_refused(hopyard: Hopyard, tmp_path: Path, command: str) -> None:
    """A script whose variable was not set submitted its job again with every repetition."""
    (tmp_path / "own.yaml").write_text(JOB_YAML)
    ran = hopyard(*command.split(), "--key", "", "--api", NOBODY)
    assert (ran.code, ran.err) == (2, "hopyard: --key is empty\n")


@pytest.mark.parametrize(
    ("command", "option"),
    [
        *(("submit", "FILE"), ("simulate --out", "--out"), ("simulate --trace", "--trace")),
        *(("solve", "FILE"), ("backup", "FILE"), ("restore", "FILE"), ("store export", "FILE")),
        *(("up --data", "--data"), ("up --speed", "--speed"), ("config show --file", "--file")),
    ],
)
def test_an_empty_file_name_or_number_is_said_to_be_empty(
    hopyard: Hopyard, command: str, option: str
) -> None:
    ran = hopyard(*command.split(), "")
    assert (ran.code, ran.err) == (2, f"hopyard: {option} is empty\n")


@pytest.mark.parametrize("command", ["demo --scenario tiny --keep", "bench --data", "up --data"])
def test_the_way_up_from_a_folder_that_does_not_exist_leads_to_the_one_that_does(
    hopyard: Hopyard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    """A run took the folder for a new one, wrote between its files and closed them to other accounts."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own").touch()
    tmp_path.chmod(0o755)
    ran = hopyard(*command.split(), "new/..")
    assert (ran.code, str(tmp_path) in ran.err) == (2, True)
    assert ([path.name for path in tmp_path.iterdir()], tmp_path.stat().st_mode & 0o777) == (["own"], 0o755)


@pytest.mark.parametrize(
    "command",
    ["catalogue --scenario", "accuracy --by", "events --since", "node discover --name", "agent --name"],
)
def test_an_empty_option_is_refused(hopyard: Hopyard, command: str) -> None:
    ran = hopyard(*command.split(), "")
    assert (ran.code, ran.err) == (2, f"hopyard: {command.rsplit(maxsplit=1)[-1]} is empty\n")


@pytest.mark.parametrize("url", ["http://127.0.0.1:99999", "http://127.0.0.1:0", "http://127.0.0.1:x"])
def test_an_address_with_a_port_that_there_is_not_is_refused(hopyard: Hopyard, url: str) -> None:
    ran = hopyard("ps", "--api", url)
    assert (ran.code, ran.err) == (2, f"hopyard: {url} is not a URL such as http://127.0.0.1:8080\n")


@pytest.mark.parametrize("seconds", ["inf", "1e308"])
def test_a_benchmark_has_a_deadline_that_solvers_take(hopyard: Hopyard, seconds: str) -> None:
    assert hopyard("bench", "solver", "--gpus", "64", "--deadline", seconds).code == 2


@pytest.mark.parametrize("command", ["agent --join nats://127.0.0.1:1 --gpus cpu:1", "accuracy"])
@pytest.mark.parametrize("there", [True, False])
def test_credentials_that_cannot_be_used_are_named(
    hopyard: Hopyard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, *, there: bool
) -> None:
    file = tmp_path / "nats.json"
    if there:
        file.write_text("{}")
        file.chmod(0o644)
    monkeypatch.setenv("HOPYARD_NATS_URL", "nats://127.0.0.1:1")
    monkeypatch.setenv("HOPYARD_NATS_CREDENTIALS", str(file))
    ran = hopyard(*command.split())
    assert ran.code == 1
    assert ran.err.splitlines()[-1].startswith("hopyard: ")
    assert str(file) in ran.err


def test_a_backup_is_not_restored_into_a_link_to_itself(hopyard: Hopyard, tmp_path: Path) -> None:
    (tmp_path / "own.tar").touch()
    (tmp_path / "loop").symlink_to("loop")
    assert hopyard("restore", "own.tar", "--data", "loop").code in {1, 2}


FOLDERS = ["compare --scenario tiny --policies fifo --out", "bench simulation --data", "demo --keep"]
"""commands that make the folder which is named last"""


@pytest.mark.parametrize("command", FOLDERS)
@pytest.mark.parametrize("below", ["", "/own"])
def test_a_link_that_leads_nowhere_is_no_directory(
    hopyard: Hopyard, tmp_path: Path, command: str, below: str
) -> None:
    (tmp_path / "link").symlink_to("nowhere/at/all")
    ran = hopyard(*command.split(), f"link{below}")
    assert ran.code in {1, 2}
    where, _, why = ran.err.splitlines()[-1].rpartition(": ")
    assert where.startswith("hopyard: link")
    assert why.lower() == "not a directory"


@pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="needs Linux's /proc, where nothing can be made")
@pytest.mark.parametrize("command", [*FOLDERS, "simulate --scenario tiny --policy fifo --events"])
def test_a_place_where_nothing_can_be_made_is_named(hopyard: Hopyard, command: str) -> None:
    """There the system says of the new file or folder that it does not exist."""
    ran = hopyard(*command.split(), "/proc/self/own")
    assert ran.code in {1, 2}
    assert ran.err.splitlines()[-1].lower() == "hopyard: /proc/self/own: no such file or directory"


@pytest.mark.parametrize(
    "command",
    ["ps", "token list", "restart", "simulate --policy own.py:Own", "up --cluster tiny", "node admit own"],
)
def test_in_a_folder_that_was_deleted_a_command_says_so(
    hopyard: Hopyard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    ran = hopyard(*command.split())
    monkeypatch.chdir(tmp_path)
    assert ran.code == 1
    assert ran.err.splitlines()[-1] == "hopyard: the current folder: no such file or directory"


@pytest.mark.parametrize(
    "command", ["up --data", "credentials", "demo --keep", "token create --user ada --file"]
)
def test_a_file_in_the_way_of_a_folder_is_no_directory(
    hopyard: Hopyard, tmp_path: Path, command: str
) -> None:
    """`token create` said that the file exists, which it was not asked to make."""
    (tmp_path / "file").write_text("in the way")
    ran = hopyard(*command.split(), "file/own")
    assert ran.code in {1, 2}
    assert ran.err.splitlines()[-1] == "hopyard: file/own: not a directory"


@pytest.mark.parametrize("command", ["store export", "credentials", "restore own.json --data", "up --data"])
def test_a_name_that_no_disk_takes_is_named(hopyard: Hopyard, tmp_path: Path, command: str) -> None:
    (tmp_path / "own.json").write_text("no backup")
    ran = hopyard(*command.split(), "x" * 300)
    assert ran.code in {1, 2}
    assert ran.err.splitlines()[-1].startswith("hopyard: ")


def test_quoted_text_in_an_error_cannot_control_the_terminal(hopyard: Hopyard, tmp_path: Path) -> None:
    (tmp_path / "own.json").write_text('{"\\u001b[2J": 1}')
    ran = hopyard("submit", "own.json", "--api", NOBODY)
    assert (ran.code, "\x1b" in ran.err) == (2, False)


def test_a_file_that_cannot_be_written_after_all_is_a_failure(tmp_path: Path) -> None:
    with pytest.raises(Failure, match=r"gone/result: No such file"):
        write_lines(tmp_path / "gone" / "result", [b"{}"])


@pytest.mark.parametrize(
    "command", ["show", "why", "cancel", "logs", "events", "node drain", "node restore", "restart"]
)
def test_an_empty_id_is_code_2(hopyard: Hopyard, command: str) -> None:
    ran = hopyard(*command.split(), "", *(() if command == "restart" else ("--api", NOBODY)))
    assert (ran.code, ran.err) == (2, "hopyard: the id is empty\n")


@pytest.mark.parametrize("command", ["accuracy", "calibrate --show"])
def test_an_unreachable_nats_is_code_3_and_one_line(
    hopyard: Hopyard, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setenv("HOPYARD_NATS_URL", "nats://127.0.0.1:1")
    monkeypatch.setattr("hopyard.api.ask.CONNECT_TIMEOUT_S", 0.5)
    ran = hopyard(*command.split())
    assert (ran.code, ran.out) == (3, "")
    assert ran.err.startswith("hopyard: no NATS server at 127.0.0.1:1")
    assert len(ran.err.splitlines()) == 1


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ("samples: 100000", "samples: 100000\nepochs: 2", "5: $.epochs: give samples or epochs, not both"),
        ("samples: 100000\n", "", "1: $.samples: say how long to train: samples or epochs"),
        ("[1, 2, 4]", "{min: 4, max: 1}", "3: $.gpus.max: 1 is below min 4"),
        ("samples: 100000", "epochs: 2", "2: $.workload.dataset_samples: a length in epochs needs it"),
    ],
)
def test_a_job_that_makes_no_sense_is_code_2_before_it_is_sent(
    hopyard: Hopyard, old: str, new: str, fault: str
) -> None:
    Path("job.yaml").write_text(JOB_YAML.replace(old, new))
    ran = hopyard("submit", "job.yaml", "--api", NOBODY)
    assert (ran.code, ran.err) == (2, f"hopyard: job.yaml:{fault}\n")


@pytest.mark.parametrize("address", ["foo", "localhost:8080", "nats://localhost:4222", "http://", "http://["])
def test_an_address_that_is_no_url_is_code_2(hopyard: Hopyard, address: str) -> None:
    ran = hopyard("ps", "--api", address)
    assert (ran.code, ran.err) == (2, f"hopyard: {address} is not a URL such as http://127.0.0.1:8080\n")


def error_of(ran: Ran) -> dict[str, object]:
    error: dict[str, object] = json.loads(ran.err)["error"]
    return error


def test_where_json_is_asked_for_an_error_is_json_with_the_place_that_is_wrong(hopyard: Hopyard) -> None:
    Path("job.yaml").write_text(JOB_YAML + "prioritty: 2\n")
    ran = hopyard("submit", "job.yaml", "--json", "--api", NOBODY)
    error = error_of(ran)
    assert (ran.code, ran.out, error["kind"], error["code"]) == (2, "", "invalid", 2)
    assert (error["file"], error["line"], error["field"]) == ("job.yaml", 5, "$.prioritty")


@pytest.mark.parametrize(
    ("command", "code", "kind"),
    [
        (f"ps --json --api {NOBODY}", 3, "unreachable"),
        ("ps --json --api foo", 2, "invalid"),
        ("ps --json --no-such-option", 2, "invalid"),
        ("simulate --json --scenario nowhere", 2, "invalid"),
        ("submit nowhere.yaml --json", 2, "invalid"),
        ("dance --json", 2, "invalid"),
    ],
)
def test_an_error_in_json_has_the_exit_code_of_one_in_text(
    hopyard: Hopyard, command: str, code: int, kind: str
) -> None:
    ran = hopyard(*command.split())
    error = error_of(ran)
    assert (ran.code, error["code"], error["kind"]) == (code, code, kind)
    assert hopyard(*command.replace("--json", "").split()).code == code


@pytest.mark.parametrize("command", ["simulate", "demo", "solve own.json", "bench"])
def test_a_file_after_json_is_answered_with_what_to_write(
    hopyard: Hopyard, tmp_path: Path, command: str
) -> None:
    (tmp_path / "own.json").write_text("{}")
    ran = hopyard(*command.split(), "--json", "result.json")
    assert (ran.code, ran.out) == (2, "")
    assert "--out result.json writes a file" in str(error_of(ran)["message"])
    assert "--json alone prints" in str(error_of(hopyard(*command.split(), "--json", "-"))["message"])


def test_a_state_there_is_not_is_answered_with_those_there_are(hopyard: Hopyard) -> None:
    ran = hopyard("ps", "--state", "bogus")
    assert ran.code == 2
    assert "preempted" in ran.err
