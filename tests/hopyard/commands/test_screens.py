"""What commands show of the cluster: on a terminal of 80 columns, in a pipe, and as JSON."""

import io
import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from hopyard.actions import watch as watching
from hopyard.actions.restore import Restored
from hopyard.local.credentials import this_user
from hopyard.show.jobs import job_columns
from hopyard.show.nodes import node_columns
from hopyard.show.times import Times
from schemas.accuracy import AccuracyReport, AccuracyRow
from schemas.calibration import BandwidthRow, Calibration
from schemas.ids import GpuType, JobId, NodeId
from schemas.placement import Gang
from schemas.plans import Measures, Standing
from schemas.views import (
    HolderView,
    JobPage,
    JobView,
    NodePage,
    PolicyChoice,
    PolicyPage,
    Readiness,
    Submitted,
    WhyView,
)
from tests.fact_builders import queued
from tests.hopyard.cli_builders import JOB_YAML, job_view, node_view, plan_view, status_view
from tests.hopyard.cli_line import Hopyard
from tests.hopyard.cli_server import CannedApi, canned_api

NOON = 1_795_345_200.0
LONG = "resnet152-imagenet-large-batch-with-mixup-12"
STYLE = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")


class Terminal(io.StringIO):
    """A stdout that says it is a terminal."""

    def isatty(self) -> bool:
        return True

    def lines(self) -> list[str]:
        return STYLE.sub("", self.getvalue()).splitlines()


@pytest.fixture
def api() -> Iterator[CannedApi]:
    with canned_api() as server:
        server.keeps_time(now=NOON)
        yield server


@pytest.fixture(autouse=True)
def surroundings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, api: CannedApi) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("LINES", "50")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("TZ", "UTC")
    monkeypatch.setenv("HOPYARD_API_URL", api.url)
    monkeypatch.setattr("hopyard.commands.accuracy.ask", asked(lambda: REPORT))
    for name in ("HOPYARD_API_TOKEN", "HOPYARD_SETTINGS"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def terminal(hopyard: Hopyard, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """Runs a command line; the lines it leaves on a terminal."""

    def run(*words: str) -> list[str]:
        shown = Terminal()
        monkeypatch.setattr(sys, "stdout", shown)
        hopyard(*words)
        return shown.lines()

    return run


def jobs() -> tuple[JobView, ...]:
    gang = Gang.of({NodeId(f"titan-xp-{number}"): 4 for number in range(3)})
    return (
        job_view(LONG, state="running", gang=gang, submitted_at=NOON - 900, started_at=NOON - 300),
        job_view("bert-7", submitted_at=NOON - 60, wait_s=60.0, expected_wait_s=720.0),
        job_view(
            "gpt2-3", state="rejected", submitted_at=NOON - 90_000, ended_at=NOON - 86_400, reason="no memory"
        ),
    )


def answers(api: CannedApi) -> None:
    """What every command asks for."""
    api.says("GET /v1/jobs", JobPage(jobs=jobs()))
    for job in jobs():
        api.says(f"GET /v1/jobs/{job.job_id}", job)
    busy = {JobId(f"{LONG}{number}"): 2 for number in range(4)}
    nodes = (node_view("titan-xp-0", jobs=busy), node_view("titan-xp-17", state="lost", jobs={}))
    api.says("GET /v1/nodes", NodePage(nodes=nodes))
    api.says("GET /v1/policies", PolicyPage(policies=("fifo", "hops", "*")))
    notes = ("the estimator was late; estimates of earlier plans",)
    metrics = {"makespan_s": 3600.0, "jct_s_mean": 812.5, "gru": 0.71}
    plan = plan_view(at=NOON - 5, notes=notes)
    api.says("GET /v1/status", status_view(at=NOON, speed=1.0, plan=plan, metrics=metrics))
    api.says("GET /v1/policy", PolicyChoice(policy="hops"))
    api.says("GET /readyz", Readiness())
    api.says_bytes("GET /v1/events", b"")
    api.says("GET /v1/jobs/bert-7/why", waiting())


def waiting() -> WhyView:
    """For four jobs of long names, by the measures with the longest words."""
    return WhyView(
        job_id=JobId("bert-7"),
        state="queued",
        reason="outweighed",
        detail="what it could use is worth more with others, by the measures of the policy",
        since=NOON - 60,
        wait_s=60.0,
        expected_wait_s=720.0,
        position=3,
        queue_length=7,
        standing=Standing(priority=0.5, gain=1.25),
        plan=plan_view(
            at=NOON - 5, measures=Measures(priority="latency ratio, waiting over running", gain="gain")
        ),
        holders=tuple(
            HolderView(
                job_id=JobId(f"{LONG}{number}"),
                gpus=4,
                submitted_at=NOON - 900,
                started_at=NOON - 300,
                standing=Standing(priority=2.0, gain=4.5),
            )
            for number in range(4)
        ),
    )


COMMANDS = (
    *("ps", f"show {LONG}", "show gpt2-3", "nodes", "status", "policy list", "scenarios"),
    *("diag", "why bert-7", "accuracy --by model,type,place,layer"),
)
IDS = {
    "ps": [LONG, "bert-7", "gpt2-3"],
    "nodes": ["titan-xp-0", "titan-xp-17"],
    f"show {LONG}": [LONG],
    "diag": ["titan-xp-17"],
    "why bert-7": ["bert-7", *(f"{LONG}{number}," for number in range(4))],
}
REPORT = AccuracyReport(
    by=("model", "type", "place", "layer"),
    rows=(
        AccuracyRow(
            key=("resnet152-with-a-long-name", "rtx-3090", "several nodes", "theory"),
            executions=1_234,
            accuracy=0.9,
            error_p50=0.1,
            error_p95=0.2,
            bias=0.05,
        ),
    ),
    overall=None,
)
"""what the estimator answers in every test but those of its own"""


@pytest.mark.parametrize("command", COMMANDS)
def test_at_80_columns_no_line_is_longer_and_every_id_is_whole(
    api: CannedApi, terminal: Callable[..., list[str]], command: str
) -> None:
    answers(api)
    lines = terminal(*command.split())
    assert max(map(len, lines)) <= 80
    assert set(IDS.get(command, [])) <= {word for line in lines for word in line.split()}


@pytest.mark.parametrize("command", COMMANDS)
def test_in_a_pipe_no_column_is_cut_or_padded(hopyard: Hopyard, api: CannedApi, command: str) -> None:
    answers(api)
    lines = hopyard(*command.split()).out.splitlines()
    assert all(line == line.rstrip() for line in lines)
    assert not any("…" in line or "\x1b" in line for line in lines)


def test_times_are_dates_where_the_clock_is_the_wall_s(hopyard: Hopyard, api: CannedApi) -> None:
    answers(api)
    shown = hopyard("show", LONG)
    assert "2026-11-22 10:45:00 UTC (15m 00s ago)" in shown.out
    assert "5m ago" in hopyard("ps").out
    assert "2026-11-22 11:00:00 UTC" in hopyard("status").out
    assert shown.err == ""


def test_at_another_speed_one_line_explains_the_times(hopyard: Hopyard, api: CannedApi) -> None:
    answers(api)
    api.keeps_time(now=NOON, origin=0.0, speed=60.0)
    for command in ("ps", f"show {LONG}", "status", "nodes"):
        assert hopyard(*command.split()).err == "times are cluster time: 60 cluster seconds a second\n"
        assert hopyard(*command.split(), "--json").err == ""


def test_json_keeps_the_numbers_and_adds_dates(hopyard: Hopyard, api: CannedApi) -> None:
    answers(api)
    first = json.loads(hopyard("ps", "--json").out)["jobs"][0]
    assert (first["submitted_at"], first["submitted_at_iso"]) == (NOON - 900, "2026-11-22T10:45:00.000+00:00")


@pytest.mark.parametrize("command", ["ps", f"show {LONG}", "nodes", "status", "version", "scenarios"])
def test_json_output_can_be_written_into_a_file(hopyard: Hopyard, api: CannedApi, command: str) -> None:
    answers(api)
    shown = hopyard(*command.split(), "--out", "found.json").out
    assert shown == hopyard(*command.split()).out
    assert json.loads(Path("found.json").read_text()) == json.loads(hopyard(*command.split(), "--json").out)


def test_facts_have_dates_where_the_clock_is_the_wall_s(hopyard: Hopyard, api: CannedApi) -> None:
    api.says("GET /v1/events", {"seq": 1, "event": queued("bert-7", at=NOON)})
    assert hopyard("events").out.startswith("2026-11-22 11:00:00+0000  bert-7 ")
    fact = json.loads(hopyard("events", "--json").out)["event"]
    assert (fact["at"], fact["at_iso"]) == (NOON, "2026-11-22T11:00:00.000+00:00")
    api.keeps_time(now=NOON, speed=60.0)
    ran = hopyard("events")
    assert ran.out.startswith("20779d 11:00:00.0  bert-7 ")
    assert ran.err == "times are cluster time: 60 cluster seconds a second\n"
    as_json = hopyard("events", "--json")
    assert as_json.err == ""
    assert "at_iso" not in json.loads(as_json.out)["event"]


def asked(kind: Callable[[], object]) -> Callable[..., object]:
    return lambda *_: kind()


def test_the_command_that_starts_a_restored_stack_is_one_line(
    terminal: Callable[..., list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is copied: a column of a table broke it at the edge of the terminal."""
    command = f"hopyard up --data {tmp_path / 'restored'} --cluster {tmp_path / 'restored' / 'cluster.json'}"
    done = Restored(
        data="restored",
        cluster="tiny",
        facts=44,
        last_seq=44,
        store_lines=4,
        archived=0,
        checkpoints=0,
        left_out="",
        nats_servers=1,
        made_at=0.0,
        start=command,
    )
    monkeypatch.setattr("hopyard.actions.restore.restore", lambda *_, **__: done)
    file = tmp_path / "stack.tar"
    file.touch()
    assert terminal("restore", str(file))[-1] == f"it goes on with: {command}"


def test_without_measured_runs_the_accuracy_is_one_line(
    hopyard: Hopyard, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = AccuracyReport(by=("layer",), rows=(), overall=None)
    monkeypatch.setattr("hopyard.commands.accuracy.ask", asked(lambda: report))
    ran = hopyard("accuracy")
    assert (ran.code, ran.out, ran.err[:12]) == (0, "", "no placement")
    assert json.loads(hopyard("accuracy", "--json").out)["rows"] == []


def test_an_hour_of_the_accuracy_is_shown_by_its_beginning(
    hopyard: Hopyard, api: CannedApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    api.says("GET /v1/policy", PolicyChoice(policy="hops"))
    key = (str(int(NOON // 3600)),)
    row = AccuracyRow(key=key, executions=3, accuracy=0.9, error_p50=0.1, error_p95=0.2, bias=0.05)
    report = AccuracyReport(by=("hour",), rows=(row,), overall=None)
    monkeypatch.setattr("hopyard.commands.accuracy.ask", asked(lambda: report))
    assert "2026-11-22 11:00:00 UTC" in hopyard("accuracy", "--by", "hour").out


def test_a_calibration_says_how_long_ago_it_was_made(
    hopyard: Hopyard, api: CannedApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    api.says("GET /v1/policy", PolicyChoice(policy="hops"))
    row = BandwidthRow(
        gpu_type=GpuType("t4"), link=1e10, network=None, at=NOON - 600, measurements=5, error=0.1
    )
    monkeypatch.setattr(
        "hopyard.commands.calibrate.ask", asked(lambda: Calibration(rows=(row,), left_out={}))
    )
    assert "10m ago" in hopyard("calibrate", "--show").out
    monkeypatch.setenv("HOPYARD_NATS_URL", "nats://elsewhere:4222")
    monkeypatch.delenv("HOPYARD_API_URL")
    assert " ago" not in hopyard("calibrate", "--show").out, "whose clock is not known"
    monkeypatch.setenv("HOPYARD_API_URL", api.url)
    shown = json.loads(hopyard("calibrate", "--show", "--json").out)
    assert shown["rows"][0]["at_iso"] == "2026-11-22T10:50:00.000+00:00"


def test_a_calibration_without_measurements_says_so(
    hopyard: Hopyard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hopyard.commands.calibrate.ask", asked(lambda: Calibration(rows=(), left_out={})))
    nothing = hopyard("calibrate", "--show")
    assert (nothing.code, nothing.out) == (0, "")
    assert "nothing measured yet" in nothing.err


def test_a_rejected_job_says_why(hopyard: Hopyard, api: CannedApi) -> None:
    answers(api)
    assert "no memory" in hopyard("show", "gpt2-3").out
    assert "no memory" in hopyard("ps").out


def test_ps_asks_for_active_jobs_first_or_as_its_options_say(hopyard: Hopyard, api: CannedApi) -> None:
    answers(api)
    hopyard("ps")
    hopyard("ps", "--mine", "--state", "queued,running", "--sort", "waited")
    hopyard("ps", "--user", "ada")
    assert [query for _, query, _, _ in api.requests] == [
        {"sort": "active", "limit": "200"},
        {"state": "queued,running", "user": this_user(), "sort": "waited", "limit": "200"},
        {"user": "ada", "sort": "active", "limit": "200"},
    ]


def test_an_empty_list_is_reported_on_stderr(hopyard: Hopyard, api: CannedApi) -> None:
    api.says("GET /v1/jobs", JobPage(jobs=()))
    api.says("GET /v1/nodes", NodePage(nodes=()))
    assert [(hopyard(name).out, hopyard(name).err) for name in ("ps", "nodes")] == [
        ("", "no jobs\n"),
        ("", "no nodes\n"),
    ]
    assert json.loads(hopyard("ps", "--json").out) == {"jobs": [], "next": None}


@pytest.mark.parametrize(("command", "there"), [("ps", job_columns(Times(None))), ("nodes", node_columns())])
def test_the_help_names_every_column(hopyard: Hopyard, command: str, there: Mapping[str, object]) -> None:
    """Between *Columns:* and the first example."""
    named = hopyard(command, "--help").out.split("Columns: ")[1].split("$ hopyard")[0]
    assert set(there) <= set(re.findall(r"\w+", named))


def test_columns_are_chosen_and_ids_alone_are_printed(hopyard: Hopyard, api: CannedApi) -> None:
    answers(api)
    assert hopyard("ps", "-o", "job,project").out.splitlines()[1].split() == [LONG, "default"]
    assert hopyard("ps", "-q").out == f"{LONG}\nbert-7\ngpt2-3\n"
    assert hopyard("nodes", "-q", "--state", "lost").out == "titan-xp-17\n"
    assert hopyard("nodes", "-o", "node,free").out.splitlines()[1].split() == ["titan-xp-0", "6"]


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("ps -o job,colour", "-o: no column colour; there are job, state"),
        ("nodes -o ,", "-o: no column is named; there are node"),
        ("ps --state queued,asleep", "--state: asleep is none of submitted, profiled"),
        ("nodes --state away", "--state: away is none of alive, draining, lost"),
        ("ps --state=", "--state is empty; there are submitted, profiled"),
        ("nodes --state ,", "--state is empty; there are alive"),
        ("ps --project=", "--project is empty"),
        ("ps --user=", "--user is empty"),
        ("ps --after=", "--after is empty"),
        ("ps --watch --json", "--watch shows a table"),
    ],
)
def test_invalid_options_of_a_list_are_refused_with_the_reason(
    hopyard: Hopyard, api: CannedApi, command: str, said: str
) -> None:
    answers(api)
    ran = hopyard(*command.split())
    assert ran.code == 2
    assert said in ran.err


class Enough(Exception):
    """The test has seen what it wanted to see."""


def test_watching_looks_again_and_bears_an_api_that_is_away(
    hopyard: Hopyard, api: CannedApi, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    api.says("GET /v1/jobs", JobPage(jobs=(job_view("job-1"),)))
    looks = iter(("gone", "back", "enough"))

    async def pause() -> None:
        match next(looks):
            case "gone":
                api.refuses("GET /v1/jobs", 503, "the monitor does not answer")
            case "back":
                api.says("GET /v1/jobs", JobPage(jobs=(job_view("job-2"),)))
            case _:
                raise Enough

    monkeypatch.setattr(watching, "pause", pause)
    with pytest.raises(Enough):
        hopyard("ps", "--watch")
    pictures = capsys.readouterr().out.split("\n\n")
    assert [["job-1" in shown, "job-2" in shown, "not answer" in shown] for shown in pictures[:3]] == [
        [True, False, False],
        [True, False, True],
        [False, True, False],
    ]


# ---- submitting


def sent(api: CannedApi) -> list[dict[str, object]]:
    return [json.loads(body) for name, _, _, body in api.requests if name == "POST /v1/jobs"]


def test_a_job_carries_its_submitter_unless_its_file_names_a_user(hopyard: Hopyard, api: CannedApi) -> None:
    api.says("POST /v1/jobs", Submitted(job_id=JobId("job-1"), created=True))
    Path("mine.yaml").write_text(JOB_YAML)
    Path("hers.yaml").write_text(JOB_YAML + "user: ada\n")
    hopyard("submit", "mine.yaml", "hers.yaml")
    assert [job["user"] for job in sent(api)] == [this_user(), "ada"]


def test_the_id_alone_is_for_scripts(hopyard: Hopyard, api: CannedApi) -> None:
    api.says("POST /v1/jobs", Submitted(job_id=JobId("job-1"), created=True))
    Path("job.yaml").write_text(JOB_YAML)
    assert hopyard("submit", "-q", "job.yaml").out == "job-1\n"


def test_a_job_comes_from_stdin(hopyard: Hopyard, api: CannedApi, monkeypatch: pytest.MonkeyPatch) -> None:
    api.says("POST /v1/jobs", Submitted(job_id=JobId("job-1"), created=True))
    monkeypatch.setattr(sys, "stdin", stdin(JOB_YAML.encode()))
    assert hopyard("submit", "-q", "-").out == "job-1\n"
    monkeypatch.setattr(sys, "stdin", stdin(JOB_YAML.replace("[1, 2, 4]", "{min: 4, max: 1}").encode()))
    assert "stdin:3: $.gpus.max" in hopyard("submit", "-").err


def stdin(data: bytes) -> io.TextIOWrapper:
    """As the C locale opens it: what is no text is passed on."""
    return io.TextIOWrapper(io.BytesIO(data), encoding="utf-8", errors="surrogateescape")


def test_stdin_that_is_no_text_is_code_2(
    hopyard: Hopyard, api: CannedApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", stdin(b"name: a\n\xff\xfe\n"))
    ran = hopyard("submit", "-")
    assert (ran.code, ran.err) == (2, "hopyard: stdin:2: is not UTF-8 text\n")
    assert sent(api) == []


def test_one_invalid_file_stops_all_submissions(hopyard: Hopyard, api: CannedApi) -> None:
    Path("good.yaml").write_text(JOB_YAML)
    Path("bad.yaml").write_text(JOB_YAML + "prioritty: 2\n")
    ran = hopyard("submit", "good.yaml", "bad.yaml")
    assert (ran.code, sent(api)) == (2, [])
    assert "bad.yaml:5" in ran.err


def two_files() -> tuple[str, str]:
    for name in ("a.yaml", "b.yaml"):
        Path(name).write_text(JOB_YAML)
    return "a.yaml", "b.yaml"


def test_a_job_that_is_refused_stops_no_other(hopyard: Hopyard, api: CannedApi) -> None:
    refusal = {"title": "no", "status": 422, "detail": "no node has it", "field": "$.gpu_types[0]"}
    api.answers["POST /v1/jobs"] = [
        (422, json.dumps(refusal).encode()),
        (201, b'{"job_id": "job-2", "created": true}'),
    ]
    ran = hopyard("submit", *two_files(), "--json")
    refused, done = json.loads(ran.out)
    assert (refused["file"], refused["error"]["field"]) == ("a.yaml", "$.gpu_types[0]")
    assert done == {"file": "b.yaml", "job_id": "job-2", "created": True}
    assert ran.code == 1
    assert "1 of 2 jobs were not submitted" in json.loads(ran.err.splitlines()[-1])["error"]["message"]


def test_an_api_that_goes_away_stops_the_remaining_submissions_and_earlier_ones_are_printed(
    hopyard: Hopyard, api: CannedApi
) -> None:
    api.answers["POST /v1/jobs"] = [(201, b'{"job_id": "job-1", "created": true}'), (503, b"{}")]
    ran = hopyard("submit", *two_files())
    assert ran.code == 3
    assert ran.out.split() == ["job", "file", "job-1", "a.yaml"]
    assert "b.yaml: " in ran.err


def test_a_key_is_of_one_job(hopyard: Hopyard, api: CannedApi) -> None:
    assert hopyard("submit", *two_files(), "--key", "nightly").code == 2
    assert sent(api) == []
