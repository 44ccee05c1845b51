"""submit, ps, show, why, cancel; and how every command says that it could not."""

import io
import json
import re
import socket
from pathlib import Path

import pytest

from schemas.base import Message
from schemas.events import PreemptReason
from schemas.ids import JobId, NodeId
from schemas.placement import Gang
from schemas.views import (
    Cancelled,
    HoldView,
    JobHold,
    JobPage,
    JobPriority,
    NodeDrain,
    NodeRemoval,
    PolicyChoice,
    PreemptionView,
    ServiceState,
    ServiceView,
    WhyView,
)
from tests.hopyard.cli_builders import JOB_YAML, job_view, status_view, submitted
from tests.hopyard.cli_line import Hopyard
from tests.hopyard.cli_server import CannedApi


def test_submit_prints_the_jobs_id(hopyard: Hopyard, api: CannedApi, job_file: Path) -> None:
    api.says("POST /v1/jobs", submitted(), status=201)
    ran = hopyard("submit", str(job_file), "--api", api.url)
    assert (ran.code, ran.err) == (0, f"on {api.url}\n")
    assert "job-1" in ran.out


@pytest.mark.parametrize(
    ("words", "asked", "answer"),
    [
        (("cancel", "job-1"), "DELETE /v1/jobs/job-1", Cancelled(job_id=JobId("job-1"))),
        (
            ("priority", "job-1", "4"),
            "PUT /v1/jobs/job-1/priority",
            JobPriority(job_id=JobId("job-1"), priority=4.0),
        ),
        (("hold", "job-1"), "POST /v1/jobs/job-1/hold", JobHold(job_id=JobId("job-1"), held=True)),
        (("release", "job-1"), "DELETE /v1/jobs/job-1/hold", JobHold(job_id=JobId("job-1"), held=False)),
        (("node", "drain", "a"), "POST /v1/nodes/a/drain", NodeDrain(node_id=NodeId("a"), draining=True)),
        (
            ("node", "restore", "a"),
            "DELETE /v1/nodes/a/drain",
            NodeDrain(node_id=NodeId("a"), draining=False),
        ),
        (("node", "remove", "a"), "DELETE /v1/nodes/a", NodeRemoval(node_id=NodeId("a"))),
        (("policy", "set", "fifo"), "PUT /v1/policy", PolicyChoice(policy="fifo")),
    ],
)
def test_commands_that_change_a_cluster_name_it(
    hopyard: Hopyard, api: CannedApi, words: tuple[str, ...], asked: str, answer: Message
) -> None:
    api.cluster = "lab-3"
    api.says(asked, answer)
    ran = hopyard(*words, "--api", api.url)
    assert ran.code == 0
    assert f"on cluster lab-3, {api.url}" in ran.err


@pytest.mark.parametrize("number", ["0", "-1", "1000.1", "1e9", "nan", "inf"])
def test_what_is_no_priority_is_bad_usage(hopyard: Hopyard, api: CannedApi, number: str) -> None:
    ran = hopyard("priority", "--api", api.url, "job-1", "--", number)
    assert (ran.code, api.requests) == (2, [])
    assert ran.err.endswith(" is no priority: it is above 0 and at most 1000\n")


def test_submit_sends_the_given_key_and_the_job(hopyard: Hopyard, api: CannedApi, job_file: Path) -> None:
    api.says("POST /v1/jobs", submitted())
    hopyard("submit", str(job_file), "--api", api.url, "--key", "nightly")
    _, _, headers, body = api.requests[0]
    assert headers["Idempotency-Key"] == "nightly"
    assert json.loads(body)["workload"]["model"] == "resnet50"


@pytest.mark.parametrize(("words", "asked"), [((), {}), (("--hold",), {"hold": "true"})])
def test_submit_asks_for_a_hold_with_its_option(
    hopyard: Hopyard, api: CannedApi, job_file: Path, words: tuple[str, ...], asked: dict[str, str]
) -> None:
    api.says("POST /v1/jobs", submitted())
    assert hopyard("submit", *words, str(job_file), "--api", api.url).code == 0
    assert api.requests[0][1] == asked


def test_a_refused_field_of_the_job_is_no_option_and_a_refused_option_is_not_in_its_file(
    hopyard: Hopyard, api: CannedApi, job_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    api.refuses("POST /v1/jobs", 422, "there is no such field", "$.hold")
    ran = hopyard("submit", "--hold", str(job_file), "--api", api.url)
    assert ran.err.endswith("hopyard: --hold: there is no such field\n")
    api.refuses("POST /v1/jobs", 422, "there are 4 at most", "$.gpus")
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(job_file.read_bytes())))
    assert "$.gpus: there are 4 at most" in hopyard("submit", "--hold", "-", "--api", api.url).err


@pytest.mark.parametrize("key", ["ünï", "two\nlines", "😀", "k" * 201])
def test_what_cannot_be_a_key_is_bad_usage(
    hopyard: Hopyard, api: CannedApi, job_file: Path, key: str
) -> None:
    """What no header can hold was said to be an API that cannot be reached."""
    ran = hopyard("submit", str(job_file), "--api", api.url, "--key", key)
    assert (ran.code, api.requests) == (2, [])
    assert ran.err.endswith("hopyard: --key has to be 1 to 200 printable ASCII characters\n")


def test_submit_makes_a_key_of_its_own_each_time(hopyard: Hopyard, api: CannedApi, job_file: Path) -> None:
    api.says("POST /v1/jobs", submitted())
    for _ in range(2):
        hopyard("submit", str(job_file), "--api", api.url)
    first, second = (headers["Idempotency-Key"] for _, _, headers, _ in api.requests)
    assert first != second


@pytest.mark.parametrize("hold", [(), ("--hold",)])
def test_a_submission_without_an_answer_can_be_repeated(
    hopyard: Hopyard, job_file: Path, hold: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be stored: without its key a repetition would be a second job."""
    monkeypatch.setattr("hopyard.api.blocking.TIMEOUT_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as mute:
        url = f"http://127.0.0.1:{mute.getsockname()[1]}"
        ran = hopyard("submit", *hold, str(job_file), "--api", url)
        assert ran.code == 3
        same = " ".join((*hold, "--key [0-9a-f]{32}$"))
        assert re.search(f"stored all the same: submit it again with {same}", ran.err, re.MULTILINE)
        several = hopyard("submit", str(job_file), str(job_file), "--api", url)
        assert (several.code, several.err.count("--key")) == (3, 1)


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


def test_a_field_refused_by_the_api_is_reported_with_its_line(
    hopyard: Hopyard, api: CannedApi, job_file: Path
) -> None:
    api.refuses("POST /v1/jobs", 422, "the cluster has 2", field="$.gpus")
    ran = hopyard("submit", str(job_file), "--api", api.url)
    assert ran.err.splitlines()[-1] == f"hopyard: {job_file}:3: $.gpus: the cluster has 2"
    ran = hopyard("submit", str(job_file), str(job_file), "--api", api.url)
    assert f"{job_file}:3: $.gpus: the cluster has 2" in ran.err.splitlines()


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


def test_a_refused_connection_is_code_3(hopyard: Hopyard) -> None:
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
    assert api.requests[0][1] == {"state": "queued", "project": "vision", "sort": "active", "limit": "200"}


def test_ps_says_how_to_see_the_rest(hopyard: Hopyard, api: CannedApi) -> None:
    api.says("GET /v1/jobs", JobPage(jobs=(job_view(),), next="abc"))
    assert "--after abc" in hopyard("ps", "--api", api.url, "--limit", "1").err


def test_show_and_why_ask_about_the_job(hopyard: Hopyard, api: CannedApi) -> None:
    why = WhyView(job_id=JobId("job-1"), state="queued", reason="outweighed", detail="")
    move = PreemptionView(
        at=90.0, started_at=30.0, gang=Gang.of({NodeId("a"): 2}), reason=PreemptReason.NODE_LOST
    )
    api.says("GET /v1/jobs/job-1", job_view(preemptions=(move,)))
    api.says("GET /v1/jobs/job-1/why", why)
    api.says("GET /v1/status", status_view())
    shown = hopyard("show", "job-1", "--api", api.url).out
    assert "resnet50 on imagenet" in shown
    assert "00:00:30.0 to 00:01:30.0 on a:2, stopped at 0 samples: a node was lost" in shown
    assert "job-1 is queued and does not run." in hopyard("why", "job-1", "--api", api.url).out
    assert json.loads(hopyard("why", "job-1", "--json", "--api", api.url).out)["reason"] == "outweighed"


def test_a_filter_that_the_api_refuses_is_named_as_it_was_typed(hopyard: Hopyard, api: CannedApi) -> None:
    api.refuses("GET /v1/jobs", 422, "it must be lower-case", "$.project")
    api.refuses("GET /v1/events", 422, "this is not the same log", "$.after")
    assert (
        hopyard("ps", "--project", "X", "--api", api.url).err == "hopyard: --project: it must be lower-case\n"
    )
    ran = hopyard("events", "--after", "9", "--json", "--api", api.url)
    error = json.loads(ran.err)["error"]
    assert (error["message"], error["field"]) == ("--after: this is not the same log", "$.after")


def test_why_names_the_services_that_are_away(hopyard: Hopyard, api: CannedApi) -> None:
    """A job that waits for the planner to come back was only said to wait for a plan."""

    def service(name: str, state: ServiceState, instance: int = 1) -> ServiceView:
        return ServiceView(name=name, state=state, since=0.0, at=1.0, instance=instance)

    services = (
        service("profiler", ServiceState.GONE),
        service("profiler", ServiceState.UP, 2),
        service("planner", ServiceState.GONE),
        service("planner", ServiceState.FAILED, 2),
        service("placer", ServiceState.STARTING),
    )
    api.says("GET /v1/status", status_view(services=services))
    said = [
        f"{one}, and the job may wait for it: `hopyard diag` says more"
        for one in ("planner is gone", "placer is starting")
    ]
    for state, lines in (("queued", said), ("running", []), ("completed", [])):
        why = WhyView(job_id=JobId("job-1"), state=state, reason="no-plan-yet", detail="")
        api.says("GET /v1/jobs/job-1/why", why)
        ran = hopyard("why", "job-1", "--api", api.url)
        assert [line for line in ran.err.splitlines() if "times are" not in line] == lines
        assert hopyard("why", "job-1", "--json", "--api", api.url).err == ""


def test_a_strange_job_id_stays_one_part_of_the_address(hopyard: Hopyard, api: CannedApi) -> None:
    assert hopyard("show", "../nodes", "--api", api.url).code == 1
    assert api.requests[0][0] == "GET /v1/jobs/../nodes"


def test_lists_say_who_holds_a_job(hopyard: Hopyard, api: CannedApi) -> None:
    view = job_view(state="queued", hold=HoldView(at=5.0, by="ada"))
    api.says("GET /v1/jobs/job-1", view)
    api.says("GET /v1/jobs", JobPage(jobs=(view,)))
    assert "on hold by ada" in hopyard("ps", "--api", api.url).out
    assert re.search(r"on hold +since .* by ada", hopyard("show", "job-1", "--api", api.url).out)


def test_cancel_withdraws(hopyard: Hopyard, api: CannedApi) -> None:
    api.says("DELETE /v1/jobs/job-1", Cancelled(job_id=JobId("job-1")), status=202)
    assert hopyard("cancel", "job-1", "--api", api.url).code == 0


def test_a_job_that_could_not_be_measured_says_so_before_all_attempts_have_failed(
    hopyard: Hopyard, api: CannedApi
) -> None:
    view = job_view(state="submitted", unmeasured="on cpu (vm): exit code 127\nno such file")
    api.says("GET /v1/jobs/job-1", view)
    api.says("GET /v1/jobs", JobPage(jobs=(view,)))
    assert "on cpu (vm): exit code 127" in hopyard("show", "job-1", "--api", api.url).out
    assert "not measured on cpu (vm): exit code 127 … no such file" in hopyard("ps", "--api", api.url).out
