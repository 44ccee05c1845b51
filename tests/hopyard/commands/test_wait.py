"""`submit --wait`: the command ends as the job does; and where a job's processes start."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from hopyard.actions import wait
from hopyard.api import connect
from schemas.ids import JobId, NodeId
from schemas.output import OutputLine
from schemas.views import JobView, Submitted
from services.admission.problems import forgotten
from shared.domain.states import JobState
from tests.fact_builders import failed, started, submitted
from tests.hopyard.cli_builders import JOB_YAML, job_view
from tests.hopyard.cli_line import Hopyard
from tests.hopyard.cli_server import CannedApi, canned_api

TRACEBACK = "exit code 1\nTraceback (most recent call last):\n  File x\nValueError: \x1b[31mno data"


@pytest.fixture
def api() -> Iterator[CannedApi]:
    with canned_api() as server:
        server.keeps_time(now=1000.0, origin=0.0)
        server.says("POST /v1/jobs", Submitted(job_id=JobId("job-1"), created=True))
        server.says_bytes("GET /v1/jobs/job-1/output", b"")
        yield server


@pytest.fixture(autouse=True)
def surroundings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, api: CannedApi) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("HOPYARD_API_URL", api.url)
    monkeypatch.setattr(wait, "LOOK_EVERY_REAL_S", 0.01)
    monkeypatch.setattr(connect, "BACKOFF_S", 0.01)
    for name in ("HOPYARD_API_TOKEN", "HOPYARD_SETTINGS"):
        monkeypatch.delenv(name, raising=False)
    Path("job.yaml").write_text(JOB_YAML)


def goes(api: CannedApi, *views: JobView) -> None:
    api.says(f"GET /v1/jobs/{views[0].job_id}", *views)


def ended(state: str, reason: str = "", job_id: str = "job-1") -> JobView:
    return job_view(job_id, state=state, reason=reason, ended_at=900.0)


# ---- how it ends


@pytest.mark.parametrize(
    ("state", "code"), [("completed", 0), ("failed", 4), ("cancelled", 5), ("rejected", 6)]
)
def test_the_exit_code_is_how_the_job_ended(hopyard: Hopyard, api: CannedApi, state: str, code: int) -> None:
    goes(api, job_view(), job_view(state="running"), ended(state))
    ran = hopyard("submit", "job.yaml", "--wait")
    assert ran.code == code
    assert ["state", state] in [line.split() for line in ran.out.splitlines()]
    assert "waiting for job-1; Ctrl-C leaves it running" in ran.err


def test_who_waits_for_a_job_on_hold_knows_that_it_is(hopyard: Hopyard, api: CannedApi) -> None:
    goes(api, job_view(), job_view(state="running"), ended("completed"))
    ran = hopyard("submit", "--hold", "--wait", "job.yaml")
    assert "waiting for job-1; `hopyard release` ends its hold; Ctrl-C does not\n" in ran.err


def test_the_reason_of_a_failure_is_its_first_and_last_line(hopyard: Hopyard, api: CannedApi) -> None:
    goes(api, ended("failed", TRACEBACK))
    ran = hopyard("submit", "job.yaml", "--wait")
    last = ran.err.splitlines()[-1]
    assert last == "hopyard: job-1 has failed: exit code 1 … ValueError: [31mno data"
    assert "\x1b" not in ran.out + ran.err, "a job's output gives the terminal no orders"
    assert "Traceback" in ran.out


def test_a_wait_says_why_the_job_could_not_be_measured(hopyard: Hopyard, api: CannedApi) -> None:
    failed_once = msgspec.structs.replace(job_view(), unmeasured=f"on v100 (n-1): {TRACEBACK}")
    goes(api, job_view(), failed_once, failed_once, ended("rejected", "no data"))
    ran = hopyard("submit", "job.yaml", "--wait")
    said = "job-1 could not be measured on v100 (n-1): exit code 1 … ValueError: [31mno data"
    assert ran.err.splitlines().count(said) == 1


def test_a_wait_outlasts_an_api_that_is_away(hopyard: Hopyard, api: CannedApi) -> None:
    busy = (503, b'{"title": "no", "status": 503, "detail": "the monitor does not answer"}')
    goes(api, job_view(), ended("completed"))
    api.answers["GET /v1/jobs/job-1"].insert(1, busy)
    assert hopyard("submit", "job.yaml", "--wait").code == 0


def test_an_api_that_stays_away_ends_the_wait_with_code_3(
    hopyard: Hopyard, api: CannedApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wait, "LONG_LIMIT_S", 0.05)
    api.refuses("GET /v1/jobs/job-1", 503, "the monitor does not answer")
    ran = hopyard("submit", "job.yaml", "--wait")
    assert ran.code == 3


def test_scripts_get_the_id_alone(hopyard: Hopyard, api: CannedApi) -> None:
    goes(api, ended("failed", "no data"))
    ran = hopyard("submit", "-q", "job.yaml", "--wait")
    assert (ran.code, ran.out) == (4, "job-1\n")


def test_json_is_one_document_with_the_job_as_it_ended(hopyard: Hopyard, api: CannedApi) -> None:
    goes(api, job_view(), ended("failed", "no data"))
    ran = hopyard("submit", "job.yaml", "--wait", "--json")
    answer = json.loads(ran.out)
    assert (answer["job_id"], answer["created"], answer["file"]) == ("job-1", True, "job.yaml")
    assert (answer["job"]["state"], answer["job"]["reason"]) == ("failed", "no data")
    assert answer["job"]["ended_at_iso"].startswith("1970-01-01T")
    error = json.loads(ran.err.splitlines()[-1])["error"]
    assert (error["kind"], error["code"], ran.code) == ("failed", 4, 4)


def test_a_job_that_is_no_longer_kept_is_shown_by_its_facts(hopyard: Hopyard, api: CannedApi) -> None:
    facts = (submitted("job-1", at=5.0), started("job-1", at=6.0), failed("job-1", at=7.0, reason="no data"))
    lines = [msgspec.json.encode({"seq": seq, "event": fact}) for seq, fact in enumerate(facts, 1)]
    api.says("GET /v1/jobs/job-1", forgotten(JobId("job-1"), JobState.FAILED), status=410)
    api.says_bytes("GET /v1/events", b"\n".join(lines))
    ran = hopyard("submit", "job.yaml", "--wait", "--json")
    job = json.loads(ran.out)["job"]
    assert (ran.code, job["state"], job["reason"]) == (4, "failed", "no data")
    assert (job["submitted_at"], job["ended_at"]) == (5.0, 7.0)
    api.says_bytes("GET /v1/events", b"")
    ran = hopyard("submit", "job.yaml", "--wait")
    assert ran.code == 1
    assert "no longer keeps it" in ran.err


# ---- several


def three(api: CannedApi) -> tuple[str, str, str]:
    api.says("POST /v1/jobs", *[Submitted(job_id=JobId(f"job-{n}"), created=True) for n in (1, 2, 3)])
    for name in "abc":
        Path(f"{name}.yaml").write_text(JOB_YAML)
    return "a.yaml", "b.yaml", "c.yaml"


def test_with_several_jobs_the_lowest_code_counts(hopyard: Hopyard, api: CannedApi) -> None:
    files = three(api)
    goes(api, job_view("job-1"), ended("completed"))
    goes(api, ended("cancelled", job_id="job-2"))
    goes(api, ended("failed", TRACEBACK, job_id="job-3"))
    ran = hopyard("submit", *files, "--wait")
    assert ran.code == 4
    rows = [line.split()[:2] for line in ran.out.splitlines()]
    assert rows == [["job", "outcome"], ["job-1", "completed"], ["job-2", "cancelled"], ["job-3", "failed"]]
    assert ran.err.splitlines()[-1] == "hopyard: 2 of 3 jobs did not complete"


def test_one_refused_job_does_not_stop_the_wait_for_the_others(hopyard: Hopyard, api: CannedApi) -> None:
    files = three(api)
    refusal = (422, b'{"title": "no", "status": 422, "detail": "too many GPUs", "field": "$.gpus"}')
    api.answers["POST /v1/jobs"][1] = refusal
    goes(api, ended("completed", job_id="job-1"))
    goes(api, ended("completed", job_id="job-3"))
    ran = hopyard("submit", *files, "--wait", "--json")
    assert ran.code == 1
    found = json.loads(ran.out)
    assert [one.get("job", {}).get("state") for one in found] == ["completed", None, "completed"]
    assert found[1]["error"]["field"] == "$.gpus"


def test_a_single_refused_job_is_not_waited_for(hopyard: Hopyard, api: CannedApi) -> None:
    api.refuses("POST /v1/jobs", 422, "too many GPUs", "$.gpus")
    ran = hopyard("submit", "job.yaml", "--wait")
    assert (ran.code, ran.out) == (1, "")
    assert "too many GPUs" in ran.err


# ---- what they print


def prints(api: CannedApi, *lines: str, job_id: str = "job-1") -> None:
    found = [OutputLine(node=NodeId("n-0"), rank=0, at=1.0, text=text) for text in lines]
    encoded = b"\n".join(map(msgspec.json.encode, found))
    api.says_bytes(f"GET /v1/jobs/{job_id}/output", encoded)


def test_the_output_of_a_job_comes_before_its_end(hopyard: Hopyard, api: CannedApi) -> None:
    goes(api, job_view(state="running"), ended("completed"))
    prints(api, "epoch 1", "epoch 2")
    ran = hopyard("submit", "job.yaml", "--wait", "--logs")
    assert ran.out.splitlines()[:2] == ["n-0/0  epoch 1", "n-0/0  epoch 2"]
    assert "completed" in ran.out
    asked = [query for name, query, _, _ in api.requests if name.endswith("/output")]
    assert [one["follow"] for one in asked] == ["true"]


@pytest.mark.parametrize("form", ["-q", "--json"])
def test_beside_json_output_of_jobs_goes_to_stderr(hopyard: Hopyard, api: CannedApi, form: str) -> None:
    goes(api, ended("completed"))
    prints(api, "epoch 1")
    ran = hopyard("submit", "job.yaml", "--wait", "--logs", form)
    assert "n-0/0  epoch 1" in ran.err
    assert "epoch" not in ran.out


def test_with_several_jobs_each_line_names_its_job(hopyard: Hopyard, api: CannedApi) -> None:
    files = three(api)
    for number in (1, 2, 3):
        goes(api, ended("completed", job_id=f"job-{number}"))
        prints(api, "hello", job_id=f"job-{number}")
    ran = hopyard("submit", *files, "--wait", "--logs")
    assert {f"job-{number} n-0/0  hello" for number in (1, 2, 3)} <= set(ran.out.splitlines())


def test_output_of_a_job_that_is_not_known_everywhere_yet_is_waited_for(
    hopyard: Hopyard, api: CannedApi
) -> None:
    goes(api, job_view(), ended("completed"))
    prints(api, "epoch 1")
    early = (
        503,
        b'{"title": "no", "status": 503, "detail": "job-1 is known; the monitor has not caught up"}',
    )
    api.answers["GET /v1/jobs/job-1/output"].insert(0, early)
    ran = hopyard("submit", "job.yaml", "--wait", "--logs")
    assert "n-0/0  epoch 1" in ran.out.splitlines()
    assert "breaks off" not in ran.err


def test_output_that_breaks_off_does_not_end_the_wait(hopyard: Hopyard, api: CannedApi) -> None:
    goes(api, job_view(), ended("completed"))
    api.refuses("GET /v1/jobs/job-1/output", 429, "64 are followed already")
    ran = hopyard("submit", "job.yaml", "--wait", "--logs")
    assert ran.code == 0
    assert "the output of job-1 breaks off" in ran.err


def test_logs_without_wait_are_refused_with_a_hint(hopyard: Hopyard, api: CannedApi) -> None:
    ran = hopyard("submit", "job.yaml", "--logs")
    assert (ran.code, api.requests) == (2, [])
    assert "--logs needs --wait" in ran.err


# ---- Ctrl-C


def test_ctrl_c_leaves_the_job_running_and_says_so(api: CannedApi) -> None:
    goes(api, job_view(state="running"))
    words = [sys.executable, "-m", "hopyard.cli", "submit", "job.yaml", "--wait"]
    with subprocess.Popen(words, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as command:
        assert command.stderr is not None
        while "waiting for job-1" not in command.stderr.readline():
            pass
        os.kill(command.pid, signal.SIGINT)
        out, err = command.communicate(timeout=300)
    assert (command.returncode, out) == (130, "")
    assert err == "hopyard: job-1 is left as it is; `hopyard cancel job-1` would stop it\n"
    assert not [name for name, *_ in api.requests if name.startswith("DELETE")]


def test_a_wait_whose_output_pipe_is_closed_ends_at_once(api: CannedApi) -> None:
    """`hopyard submit --wait --logs | head` stayed until the job's end."""
    goes(api, job_view(state="running"))
    prints(api, "loss 0.1")
    words = [sys.executable, "-m", "hopyard.cli", "submit", "job.yaml", "--wait", "--logs"]
    read, write = os.pipe()
    os.close(read)
    try:
        done = subprocess.run(words, stdout=write, stderr=subprocess.PIPE, timeout=300, check=False)
    finally:
        os.close(write)
    assert done.returncode == 1
    assert done.stderr.endswith(b"waiting for job-1; Ctrl-C leaves it running\n")


# ---- where its processes start


def sent(api: CannedApi) -> list[dict[str, object]]:
    return [json.loads(body) for name, _, _, body in api.requests if name == "POST /v1/jobs"]


def test_a_command_runs_in_the_folder_it_was_submitted_from(hopyard: Hopyard, api: CannedApi) -> None:
    Path("job.yaml").write_text(JOB_YAML + "command: [python, train.py]\n")
    ran = hopyard("submit", "job.yaml")
    assert [job["working_directory"] for job in sent(api)] == [str(Path.cwd())]
    assert not [job for job in sent(api) if job.get("environment")], "nothing of this shell goes with it"
    assert f"to be run in {Path.cwd()}" in ran.err


def test_no_command_is_submitted_from_a_folder_that_is_not_utf_8(
    hopyard: Hopyard, api: CannedApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Path.cwd() / os.fsdecode(b"caf\xe9")
    folder.mkdir()
    monkeypatch.chdir(folder)
    Path("job.yaml").write_text(JOB_YAML + "command: [python, train.py]\n")
    ran = hopyard("submit", "job.yaml")
    assert (ran.code, sent(api)) == (1, [])
    assert ran.err == "hopyard: the current folder: its name is not UTF-8; name a `working_directory`\n"


@pytest.mark.parametrize("more", ["", "command: [x]\nworking_directory: /data\n"])
def test_a_folder_that_is_named_or_not_needed_is_left_alone(
    hopyard: Hopyard, api: CannedApi, more: str
) -> None:
    Path("job.yaml").write_text(JOB_YAML + more)
    ran = hopyard("submit", "job.yaml")
    assert [job.get("working_directory", "") for job in sent(api)] == ["/data" if more else ""]
    assert "to be run in" not in ran.err


def test_a_deleted_working_folder_is_reported_in_a_line(
    hopyard: Hopyard, api: CannedApi, tmp_path: Path
) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(JOB_YAML + "command: [x]\n")
    gone = tmp_path / "gone"
    gone.mkdir()
    os.chdir(gone)
    gone.rmdir()
    ran = hopyard("submit", str(file))
    os.chdir(tmp_path)
    assert (ran.code, sent(api)) == (1, [])
    assert ran.err == "hopyard: the current folder: no such file or directory\n"
