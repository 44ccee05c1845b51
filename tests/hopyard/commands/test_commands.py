import json
import os
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from hopyard.local.data_folder import StackFile, write_stack_file
from schemas.base import Message
from schemas.events import PreemptReason
from schemas.ids import JobId, NodeId
from schemas.placement import Gang
from schemas.settings import Settings
from schemas.views import (
    Cancelled,
    JobPage,
    MoveView,
    NodeDrain,
    NodePage,
    PolicyChoice,
    PolicyPage,
    Readiness,
    ServiceState,
    ServiceView,
    SettingsView,
    Submitted,
    WhyView,
)
from shared.runtime.settings import describe
from tests.fact_builders import plan
from tests.hopyard.cli_builders import JOB_YAML, job_view, node_view, plan_view, status_view
from tests.hopyard.cli_line import Hopyard, command_line
from tests.hopyard.cli_server import CannedApi, canned_api


@pytest.fixture
def api() -> Iterator[CannedApi]:
    with canned_api() as server:
        yield server


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))  # where the stacks of this user are listed
    for name in ("HOPYARD_API_URL", "HOPYARD_API_TOKEN", "HOPYARD_SETTINGS"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def hopyard(capsys: pytest.CaptureFixture[str]) -> Hopyard:
    return command_line(capsys)


@pytest.fixture
def job_file(tmp_path: Path) -> Path:
    path = tmp_path / "job.yaml"
    path.write_text(JOB_YAML)
    return path


def submitted(*, created: bool = True) -> Submitted:
    return Submitted(job_id=JobId("job-1"), created=created)


def test_submit_prints_the_jobs_id(hopyard: Hopyard, api: CannedApi, job_file: Path) -> None:
    api.says("POST /v1/jobs", submitted(), status=201)
    ran = hopyard("submit", str(job_file), "--api", api.url)
    assert (ran.code, ran.err) == (0, f"on {api.url}\n")
    assert "job-1" in ran.out


@pytest.mark.parametrize(
    ("words", "asked", "answer"),
    [
        (("cancel", "job-1"), "DELETE /v1/jobs/job-1", Cancelled(job_id=JobId("job-1"))),
        (("node", "drain", "a"), "POST /v1/nodes/a/drain", NodeDrain(node_id=NodeId("a"), draining=True)),
        (
            ("node", "restore", "a"),
            "DELETE /v1/nodes/a/drain",
            NodeDrain(node_id=NodeId("a"), draining=False),
        ),
        (("policy", "set", "fifo"), "PUT /v1/policy", PolicyChoice(policy="fifo")),
    ],
)
def test_what_changes_a_cluster_names_it(
    hopyard: Hopyard, api: CannedApi, words: tuple[str, ...], asked: str, answer: Message
) -> None:
    api.cluster = "lab-3"
    api.says(asked, answer)
    ran = hopyard(*words, "--api", api.url)
    assert ran.code == 0
    assert f"on cluster lab-3, {api.url}" in ran.err


def test_submit_sends_the_given_key_and_the_job(hopyard: Hopyard, api: CannedApi, job_file: Path) -> None:
    api.says("POST /v1/jobs", submitted())
    hopyard("submit", str(job_file), "--api", api.url, "--key", "nightly")
    _, _, headers, body = api.requests[0]
    assert headers["Idempotency-Key"] == "nightly"
    assert json.loads(body)["workload"]["model"] == "resnet50"


def test_submit_makes_a_key_of_its_own_each_time(hopyard: Hopyard, api: CannedApi, job_file: Path) -> None:
    api.says("POST /v1/jobs", submitted())
    for _ in range(2):
        hopyard("submit", str(job_file), "--api", api.url)
    first, second = (headers["Idempotency-Key"] for _, _, headers, _ in api.requests)
    assert first != second


def test_a_repeated_submission_says_so(hopyard: Hopyard, api: CannedApi, job_file: Path) -> None:
    api.says("POST /v1/jobs", submitted(created=False))
    assert "used before" in hopyard("submit", str(job_file), "--api", api.url).err


def test_json_is_all_that_is_on_stdout(hopyard: Hopyard, api: CannedApi, job_file: Path) -> None:
    api.says("POST /v1/jobs", submitted())
    ran = hopyard("submit", str(job_file), "--api", api.url, "--json")
    assert json.loads(ran.out) == {"job_id": "job-1", "created": True}


@pytest.mark.parametrize("status", [400, 404, 409, 422, 429])
def test_a_refusal_names_field_and_reason(
    hopyard: Hopyard, api: CannedApi, job_file: Path, status: int
) -> None:
    api.refuses("POST /v1/jobs", status, "no node has it", field="$.gpu_types[0]")
    ran = hopyard("submit", str(job_file), "--api", api.url)
    assert ran.code == 1
    assert ran.out == ""
    assert "$.gpu_types[0]: no node has it" in ran.err


def test_a_misspelt_field_is_named_with_file_and_line(
    hopyard: Hopyard, api: CannedApi, job_file: Path
) -> None:
    job_file.write_text(JOB_YAML + "prioritty: 2\n")
    ran = hopyard("submit", str(job_file), "--api", api.url)
    assert ran.code == 2
    assert f"{job_file}:5: $.prioritty" in ran.err
    assert api.requests == []


def test_a_broken_yaml_file_is_invalid(hopyard: Hopyard, job_file: Path) -> None:
    job_file.write_text("name: [")
    assert hopyard("submit", str(job_file)).code == 2


def test_a_missing_file_is_bad_usage(hopyard: Hopyard) -> None:
    assert hopyard("submit", "nowhere.yaml").code == 2


def test_an_unknown_command_is_bad_usage(hopyard: Hopyard) -> None:
    assert hopyard("dance").code == 2


def test_nobody_listening_is_code_3(hopyard: Hopyard) -> None:
    ran = hopyard("ps", "--api", "http://127.0.0.1:1")
    assert ran.code == 3
    assert "http://127.0.0.1:1: connection refused" in ran.err


def test_an_api_that_is_not_ready_is_code_3(hopyard: Hopyard, api: CannedApi) -> None:
    api.refuses("GET /v1/nodes", 503, "the monitor does not answer")
    ran = hopyard("nodes", "--api", api.url)
    assert ran.code == 3
    assert "the monitor does not answer" in ran.err


def test_another_server_on_the_port_is_code_3(hopyard: Hopyard, api: CannedApi) -> None:
    api.says_bytes("GET /v1/nodes", b"<html>hello</html>")
    assert hopyard("nodes", "--api", api.url).code == 3


def test_ps_lists_jobs(hopyard: Hopyard, api: CannedApi) -> None:
    api.says("GET /v1/jobs", JobPage(jobs=(job_view("job-1"), job_view("job-2"))))
    ran = hopyard("ps", "--api", api.url, "--state", "queued", "--project", "vision")
    assert "job-1" in ran.out
    assert "job-2" in ran.out
    assert api.requests[0][1] == {"state": "queued", "project": "vision", "sort": "active", "limit": "100"}


def test_ps_says_how_to_see_the_rest(hopyard: Hopyard, api: CannedApi) -> None:
    api.says("GET /v1/jobs", JobPage(jobs=(job_view(),), next="abc"))
    assert "--after abc" in hopyard("ps", "--api", api.url, "--limit", "1").err


def test_show_and_why_ask_about_the_job(hopyard: Hopyard, api: CannedApi) -> None:
    why = WhyView(job_id=JobId("job-1"), state="queued", reason="outweighed", detail="")
    move = MoveView(at=90.0, started_at=30.0, gang=Gang.of({NodeId("a"): 2}), reason=PreemptReason.NODE_LOST)
    api.says("GET /v1/jobs/job-1", job_view(moves=(move,)))
    api.says("GET /v1/jobs/job-1/why", why)
    shown = hopyard("show", "job-1", "--api", api.url).out
    assert "resnet50 on imagenet" in shown
    assert "00:00:30.0 to 00:01:30.0 on a:2, stopped at 0 samples: a node was lost" in shown
    assert "job-1 is queued and does not run." in hopyard("why", "job-1", "--api", api.url).out
    assert json.loads(hopyard("why", "job-1", "--json", "--api", api.url).out)["reason"] == "outweighed"


def test_a_strange_job_id_stays_one_part_of_the_address(hopyard: Hopyard, api: CannedApi) -> None:
    assert hopyard("show", "../nodes", "--api", api.url).code == 1
    assert api.requests[0][0] == "GET /v1/jobs/../nodes"


def test_cancel_withdraws(hopyard: Hopyard, api: CannedApi) -> None:
    api.says("DELETE /v1/jobs/job-1", Cancelled(job_id=JobId("job-1")), status=202)
    assert hopyard("cancel", "job-1", "--api", api.url).code == 0


def test_a_node_is_drained_and_restored(hopyard: Hopyard, api: CannedApi) -> None:
    api.says("POST /v1/nodes/titan-0/drain", NodeDrain(node_id=NodeId("titan-0"), draining=True))
    api.says("DELETE /v1/nodes/titan-0/drain", NodeDrain(node_id=NodeId("titan-0"), draining=False))
    assert "draining" in hopyard("node", "drain", "titan-0", "--api", api.url).err
    assert "takes jobs again" in hopyard("node", "restore", "titan-0", "--api", api.url).err


def test_without_a_stack_the_installed_policies_are_listed(hopyard: Hopyard) -> None:
    listed = hopyard("policy", "list", "--api", "http://127.0.0.1:9")
    names = [line.split()[0] for line in listed.out.splitlines()]
    assert {"hops", "sia", "gavel", "tiresias", "fifo"} <= set(names)
    assert "gavel-agnostic             As Gavel, with agnostic=true." in listed.out.splitlines()
    assert "cannot reach http://127.0.0.1:9" in listed.err
    as_json = hopyard("policy", "list", "--json", "--api", "http://127.0.0.1:9")
    found = json.loads(as_json.out)
    assert [each["name"] for each in found] == names
    assert all(each["about"] for each in found)


def test_the_policies_that_the_stack_takes_are_listed(hopyard: Hopyard, api: CannedApi) -> None:
    api.says("GET /v1/policies", PolicyPage(policies=("fifo", "hops", "mine:Own", "*")))
    listed = hopyard("policy", "list", "--api", api.url).out.splitlines()
    assert [line.partition("  ")[0] for line in listed] == [
        "fifo",
        "hops",
        "mine:Own",
        "any module:attribute",
    ]
    assert "First in, first out, not preemptive" in listed[0]
    assert json.loads(hopyard("policy", "list", "--json", "--api", api.url).out)[2:] == [
        {"name": "mine:Own", "about": ""},
        {"name": "*", "about": ""},
    ]


def test_the_options_of_a_policy_are_shown(hopyard: Hopyard) -> None:
    shown = hopyard("policy", "show", "hops", "--json")
    [cost] = [option for option in json.loads(shown.out) if option["name"] == "moving_cost_s"]
    assert (cost["default"], cost["choices"]) == (None, "a number ≥ 0, ≤ 1e+06")
    assert "lr, ftf, las, sjf, srtf, fifo" in " ".join(hopyard("policy", "show", "hops").out.split())
    assert "policy nonsense is unknown" in hopyard("policy", "show", "nonsense").err


def test_an_option_that_the_policy_has_not_is_refused_in_the_cluster_s_words(
    hopyard: Hopyard, api: CannedApi
) -> None:
    api.refuses("PUT /v1/policy", 422, "policy hops has no option speed; it has priority_rule", "$.policy")
    refused = hopyard("policy", "set", "hops+speed=1", "--api", api.url)
    assert (refused.code, refused.out) == (1, "")
    assert refused.err == "hopyard: $.policy: policy hops has no option speed; it has priority_rule\n"


def test_policy_is_shown_and_set(hopyard: Hopyard, api: CannedApi) -> None:
    healthy(api)
    api.says("PUT /v1/policy", PolicyChoice(policy="fifo"))
    assert hopyard("policy", "--api", api.url).out == "hops\n"
    assert hopyard("policy", "set", "fifo", "--api", api.url).out == "fifo\n"
    assert json.loads(api.requests[-1][3]) == {"policy": "fifo"}


def test_the_environment_says_where_the_api_is(
    hopyard: Hopyard, api: CannedApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOPYARD_API_URL", api.url)
    monkeypatch.setenv("HOPYARD_API_TOKEN", "secret")
    healthy(api)
    assert hopyard("policy").code == 0
    assert api.requests[0][2]["Authorization"] == "Bearer secret"


def test_a_stack_started_further_up_is_found(
    hopyard: Hopyard, api: CannedApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".hopyard").mkdir()
    (tmp_path / "jobs").mkdir()
    stack = StackFile(api_url=api.url, nats_url="nats://127.0.0.1:1", pid=os.getpid(), pids={}, ports={})
    write_stack_file(tmp_path / ".hopyard", stack)
    monkeypatch.chdir(tmp_path / "jobs")
    healthy(api)
    assert hopyard("policy").code == 0


EVENTS = b"""\
{"seq":1,"event":{"fact":"job.cancelled","at":3.25,"job_id":"job-1"}}
{"seq":4,"event":{"fact":"job.praised","at":40.0,"job_id":"job-1","by":"everybody","for":{"a":1}}}
"""


def test_events_prints_a_line_a_fact(hopyard: Hopyard, api: CannedApi) -> None:
    api.says_bytes("GET /v1/events", EVENTS)
    first, second = hopyard("events", "job-1", "--api", api.url).out.splitlines()
    assert first.split() == ["00:00:03.2", "job-1", "cancelled"]
    assert second.split() == ["00:00:40.0", "job-1", "job.praised", "job_id=job-1", "by=everybody"]
    assert api.requests[0][1]["job"] == "job-1"


def test_events_as_json_is_a_document_a_line(hopyard: Hopyard, api: CannedApi) -> None:
    api.says_bytes("GET /v1/events", EVENTS)
    lines = hopyard("events", "--json", "--follow", "--api", api.url).out.splitlines()
    assert [json.loads(line)["seq"] for line in lines] == [1, 4]
    assert api.requests[0][1] == {"after": "0", "follow": "true"}


def test_events_can_be_the_newest_or_those_since_a_while_ago(hopyard: Hopyard, api: CannedApi) -> None:
    api.says("GET /v1/status", status_view(at=7205.0))
    api.says_bytes("GET /v1/events", EVENTS)
    assert hopyard("events", "--tail", "5", "--since", "2h", "--api", api.url).code == 0
    assert (api.requests[1][1]["newest"], api.requests[1][1]["since"]) == ("5", "5.0")


def test_a_time_that_is_none_is_bad_usage(hopyard: Hopyard, api: CannedApi) -> None:
    api.says("GET /v1/status", status_view())
    ran = hopyard("events", "--since", "yesterday", "--api", api.url)
    assert (ran.code, ran.out) == (2, "")
    assert "--since yesterday: how long ago is written 90s, 30m, 2h or 1d" in ran.err


OUTPUT = b"""\
{"node":"a","at":1.5,"rank":0,"text":"[bold]epoch 1[/bold] :tada:"}
{"node":"b","problem":"the agent of b does not answer: no responders"}
"""


def test_logs_prints_what_the_job_prints_and_says_what_is_missing(hopyard: Hopyard, api: CannedApi) -> None:
    api.says_bytes("GET /v1/jobs/job-1/output", OUTPUT)
    ran = hopyard("logs", "job-1", "-f", "--tail", "5", "--rank", "0", "--api", api.url)
    assert ran.out == "a/0  [bold]epoch 1[/bold] :tada:\n"
    assert "b: the agent of b does not answer" in ran.err
    assert api.requests[0][1] == {"newest": "5", "rank": "0", "follow": "true"}
    plain = hopyard("logs", "job-1", "--plain", "--api", api.url)
    assert plain.out == "[bold]epoch 1[/bold] :tada:\n"
    lines = hopyard("logs", "job-1", "--json", "--api", api.url).out.splitlines()
    assert [json.loads(line)["node"] for line in lines] == ["a", "b"]


def test_logs_without_a_job_says_what_to_use(hopyard: Hopyard, api: CannedApi) -> None:
    ran = hopyard("logs", "--api", api.url)
    assert (ran.code, api.requests) == (2, [])
    assert "`hopyard logs JOB`" in ran.err
    assert "`hopyard events`" in ran.err


def healthy(api: CannedApi) -> None:
    api.says("GET /v1/status", status_view())
    api.says("GET /readyz", Readiness())
    api.says("GET /v1/nodes", NodePage(nodes=(node_view(),)))
    api.says("GET /v1/policy", PolicyChoice(policy="hops"))
    api.says_bytes("GET /v1/events", b"")


def test_status_is_the_cluster_at_a_glance(hopyard: Hopyard, api: CannedApi) -> None:
    api.says("GET /v1/status", status_view(raqlr=0.25))
    assert "titan 12/16" in hopyard("status", "--api", api.url).out
    assert json.loads(hopyard("status", "--json", "--api", api.url).out)["raqlr"] == 0.25


ILL = ServiceView(
    name="planner",
    state=ServiceState.STARTING,
    since=1.0,
    at=2.0,
    restarts=3,
    last_error="KeyError: 'policy'",
    troubles=("hops plans in place of json:loads: TypeError",),
)


def test_status_shows_services_that_came_back_and_their_troubles(hopyard: Hopyard, api: CannedApi) -> None:
    well = ServiceView(name="placer", state=ServiceState.UP, since=1.0, at=2.0)
    api.says("GET /v1/status", status_view(services=(well, ILL)))
    shown = " ".join(hopyard("status", "--api", api.url).out.split())
    assert "1 up; planner is starting, restarts: 3, last error: KeyError: 'policy'; hops plans" in shown


def test_diag_shows_services_that_are_not_well(hopyard: Hopyard, api: CannedApi) -> None:
    healthy(api)
    api.says("GET /readyz", Readiness(services=(ILL,)))
    ran = hopyard("diag", "--json", "--api", api.url)
    assert ran.code == 1
    [check] = [check for check in json.loads(ran.out)["checks"] if check["what"] == "services"]
    assert (check["ok"], "restarts: 3" in check["detail"]) == (False, True)


def test_diag_is_content_with_a_healthy_stack(hopyard: Hopyard, api: CannedApi) -> None:
    healthy(api)
    ran = hopyard("diag", "--json", "--api", api.url)
    assert ran.code == 0
    assert [check["what"] for check in json.loads(ran.out)["checks"]] == [
        "API",
        "services",
        "nodes",
        "policy",
        "event log",
    ]


def test_diag_points_at_a_lost_node(hopyard: Hopyard, api: CannedApi) -> None:
    healthy(api)
    api.says("GET /v1/nodes", NodePage(nodes=(node_view(state="lost"),)))
    ran = hopyard("diag", "--api", api.url)
    assert ran.code == 1
    assert "titan-0 is lost" in ran.out


@pytest.mark.parametrize(("command", "code"), [("diag", 1), ("policy show", 0)])
def test_a_policy_that_cannot_be_loaded_is_seen(
    hopyard: Hopyard, api: CannedApi, command: str, code: int
) -> None:
    """Long after the one plan that said why."""
    healthy(api)
    note = "there is no policy nope:Bad; fifo goes on"
    logged = {"seq": 1, "event": plan(policy="fifo", notes=(note,))}
    api.says("GET /v1/policy", PolicyChoice(policy="nope:Bad"))
    api.says("GET /v1/status", status_view(policy="fifo", plan=plan_view(policy="fifo")))
    api.says_bytes("GET /v1/events", msgspec.json.encode(logged) + b"\n")
    ran = hopyard(*command.split(), "--api", api.url)
    assert ran.code == code
    assert f"nope:Bad was asked for, fifo made the last plan; {note}" in " ".join(ran.out.split())


def test_a_policy_asked_for_a_moment_ago_is_no_fault(hopyard: Hopyard, api: CannedApi) -> None:
    healthy(api)
    api.says("GET /v1/policy", PolicyChoice(policy="sia"))
    api.says("GET /v1/status", status_view(policy="fifo", plan=plan_view(policy="fifo")))
    api.says_bytes("GET /v1/events", b"")
    ran = hopyard("diag", "--api", api.url)
    assert ran.code == 0
    assert "sia was asked for, fifo made the last plan" in " ".join(ran.out.split())


def test_the_status_shows_what_the_last_plan_remarks(hopyard: Hopyard, api: CannedApi) -> None:
    api.says("GET /v1/status", status_view(plan=plan_view(notes=("the estimator was late",))))
    assert "the estimator was late" in hopyard("status", "--api", api.url).out


def test_diag_shows_a_drained_node_and_finds_no_fault(hopyard: Hopyard, api: CannedApi) -> None:
    healthy(api)
    api.says("GET /v1/nodes", NodePage(nodes=(node_view(), node_view("titan-1", state="draining"))))
    ran = hopyard("diag", "--api", api.url)
    assert ran.code == 0
    assert "1 of 2 alive, titan-1 is draining" in ran.out


def test_diag_points_at_a_dead_service_and_a_missing_nats(
    hopyard: Hopyard, api: CannedApi, tmp_path: Path
) -> None:
    healthy(api)
    (tmp_path / ".hopyard").mkdir()
    stack = StackFile(
        api_url=api.url,
        nats_url="nats://127.0.0.1:1",
        pid=os.getpid(),
        pids={"planner": 2**22 + 1},
        ports={"planner": 1},
    )
    write_stack_file(tmp_path / ".hopyard", stack)
    ran = hopyard("diag")
    assert ran.code == 1
    assert "is gone" in ran.out
    assert "nats://127.0.0.1:1" in ran.out


def test_diag_without_an_api_is_code_3(hopyard: Hopyard) -> None:
    assert hopyard("diag", "--api", "http://127.0.0.1:1").code == 3


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


def test_a_setting_there_is_not_is_code_2(hopyard: Hopyard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOPYARD_ROUNDS", "60")
    ran = hopyard("config", "show")
    assert ran.code == 2
    assert "HOPYARD_ROUNDS" in ran.err


def test_replay_says_every_job_and_what_came_of_them(hopyard: Hopyard, api: CannedApi) -> None:
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


def test_a_replay_whose_jobs_fail_is_code_1_for_whoever_waits(hopyard: Hopyard, api: CannedApi) -> None:
    api.says("GET /v1/status", status_view(speed=100_000.0))
    api.says("POST /v1/jobs", submitted())
    api.says("GET /v1/jobs/job-1", job_view(state="failed"))
    ran = hopyard("replay", "--scenario", "tiny", "--wait", "--api", api.url)
    assert ran.code == 1
    assert "not every job completed" in ran.err


@pytest.mark.parametrize("options", [("--gpus", "0"), ("--gpus", "many"), ("--backends", "nobody")])
def test_a_bench_of_what_there_is_not_is_code_2(hopyard: Hopyard, options: tuple[str, str]) -> None:
    ran = hopyard("bench", "solver", *options)
    assert ran.code == 2
    assert " ".join(options) in ran.err


COMMANDS = (
    "demo", "up", "replay", "submit", "ps", "show", "why", "cancel", "nodes", "node drain", "node restore",
    "events", "logs", "policy show", "policy set", "diag", "config show", "simulate", "scenarios", "bench",
    "version",
)  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS)
def test_help_teaches_with_an_example(hopyard: Hopyard, command: str) -> None:
    ran = hopyard(*command.split(), "--help")
    assert ran.code == 0
    assert f"$ hopyard {command.removesuffix(' show')}" in ran.out


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
