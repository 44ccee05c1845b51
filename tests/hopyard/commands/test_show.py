"""What `show` says of a job that really ran: how it ended, where it was, what it saved, how it is started."""

import json
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from hopyard.show.runs import runs_listing
from hopyard.show.times import Times
from schemas.events import PreemptReason
from schemas.ids import JobId, NodeId, PlacementId
from schemas.overview import RunPage, RunView
from schemas.placement import Gang
from schemas.plans import Cause, Layer
from schemas.views import JobView, PreemptionView
from tests.hopyard.cli_builders import job_view
from tests.hopyard.cli_line import Hopyard
from tests.hopyard.cli_server import CannedApi, canned_api

TRACEBACK = "exit code 1\nTraceback (most recent call last):\n  File x\nValueError: no data"


@pytest.fixture
def api() -> Iterator[CannedApi]:
    with canned_api() as server:
        server.keeps_time(now=2000.0, speed=60.0)
        yield server


@pytest.fixture(autouse=True)
def surroundings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, api: CannedApi) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOPYARD_API_URL", api.url)
    monkeypatch.delenv("HOPYARD_API_TOKEN", raising=False)


def run(began: float, ended: float | None, reason: PreemptReason | None = None, **nodes: int) -> RunView:
    return RunView(
        placement_id=PlacementId(f"pl-{began:.0f}"),
        gang=Gang.of({NodeId(name): gpus for name, gpus in nodes.items()}),
        started_at=began,
        ended_at=ended,
        samples_from=began,
        samples_to=ended or 1990.0,
        estimated_throughput=100.0,
        measured_throughput=95.5,
        layer=Layer.THEORY,
        preempted=reason,
    )


def real_job(state: str = "failed", **fields: object) -> JobView:
    view = msgspec.structs.replace(job_view(state=state), **fields)
    spec = msgspec.structs.replace(
        view.spec,
        command=("python", "train.py", "--name", "a b"),
        working_directory="/home/ada",
        environment={"DATA": "/data set"},
        cpus=4.0,
        memory=8 * 2.0**30,
        time_limit_s=7200.0,
        retries=2,
        preemptible=False,
    )
    return msgspec.structs.replace(view, spec=spec)


def facts(out: str) -> dict[str, str]:
    """Label → text, of the lines that have both."""
    pairs = (line.split("  ", 1) for line in out.splitlines() if "  " in line)
    return {label.strip(): text.strip() for label, text in pairs}


def shown(hopyard: Hopyard, api: CannedApi, view: JobView, *runs: RunView) -> str:
    api.says("GET /v1/jobs/job-1", view)
    api.says("GET /v1/jobs/job-1/runs", RunPage(job_id=JobId("job-1"), runs=runs, total=len(runs)))
    return hopyard("show", "job-1").out


def test_a_failed_job_says_how_its_process_ended(hopyard: Hopyard, api: CannedApi) -> None:
    found = facts(shown(hopyard, api, real_job(reason="no data", exit_code=3)))
    assert (found["reason"], found["exit"]) == ("no data", "exit code 3")
    found = facts(shown(hopyard, api, real_job(reason="out of memory", signal=9)))
    assert found["exit"] == "signal 9, SIGKILL"


def test_a_job_that_is_complete_has_no_bad_exit(hopyard: Hopyard, api: CannedApi) -> None:
    assert "exit" not in facts(shown(hopyard, api, real_job("completed", exit_code=3)))


def test_show_prints_how_processes_are_started_and_how_long_they_may_run(
    hopyard: Hopyard, api: CannedApi
) -> None:
    found = facts(shown(hopyard, api, real_job(running_s=600.0)))
    assert found["command"] == "python train.py --name 'a b'"
    assert (found["folder"], found["environment"]) == ("/home/ada", "'DATA=/data set'")
    assert found["per GPU"] == "4 CPU cores, 8 GiB of memory"
    assert (found["running"], found["preemptible"]) == ("10m 00s of 2h 00m at most", "no")


def test_restarts_that_no_plan_made_are_counted_apart(hopyard: Hopyard, api: CannedApi) -> None:
    found = facts(shown(hopyard, api, real_job("queued", restarts=4, interruptions=2, failures=1)))
    assert found["restarts"] == "4 (2 interrupted, 1 failed, 2 retries allowed)"
    assert facts(shown(hopyard, api, job_view(restarts=4)))["restarts"] == "4"


def test_show_prints_when_a_job_was_saved_last(hopyard: Hopyard, api: CannedApi) -> None:
    found = facts(
        shown(hopyard, api, real_job("running", checkpoints=3, samples_saved=640.0, saved_at=1940.0))
    )
    assert found["checkpoints"] == "3, the newest at 640 samples, 00:32:20.0 (1m 00s ago)"


def test_each_run_of_a_job_has_a_line_with_measured_and_estimated_throughput(
    hopyard: Hopyard, api: CannedApi
) -> None:
    moved = msgspec.structs.replace(run(400.0, 900.0, PreemptReason.PLAN, a=2, b=2), cause=Cause(moved=True))
    lost = run(100.0, 300.0, PreemptReason.INTERRUPTED, a=1)
    out = shown(hopyard, api, real_job("running"), lost, moved, run(1400.0, None, c=1))
    table = [line.split() for line in out.partition("began")[2].splitlines()]
    assert table[1:4] == [
        ["32m", "ago", "3m", "1", "a:1", "100–300", "95.5", "100", "interrupted"],
        ["27m", "ago", "8m", "4", "a:2", "b:2", "400–900", "95.5", "100", "moved"],
        ["10m", "ago", "10m", "1", "c:1", "1,400–1,990", "95.5", "100"],
    ]


def test_a_terminal_of_80_columns_keeps_when_where_and_how_far() -> None:
    runs = [run(100.0, 300.0, PreemptReason.INTERRUPTED, **{f"node-{n}": 1 for n in range(9)})]
    for width in (80, 40):
        lines = [line.plain for line in runs_listing(runs, Times(None)).lines(width)]
        assert all(len(line) <= width for line in lines)
        assert "100–300" in lines[1]


def test_why_it_was_stopped_has_the_last_words_of_its_processes(hopyard: Hopyard, api: CannedApi) -> None:
    move = PreemptionView(
        at=300.0,
        started_at=100.0,
        gang=Gang.of({NodeId("a"): 1}),
        reason=PreemptReason.FAILED,
        cause=Cause(node=NodeId("a")),
        detail=TRACEBACK,
        exit_code=1,
    )
    out = shown(hopyard, api, real_job("queued", preemptions=(move,)))
    end = "failed at 0 samples: its processes on a failed (exit code 1): exit code 1 … ValueError: no data"
    assert out.splitlines()[-1].endswith(end)


def test_json_has_the_runs_beside_the_job(hopyard: Hopyard, api: CannedApi) -> None:
    shown(hopyard, api, real_job())
    api.says("GET /v1/jobs/job-1/runs", RunPage(job_id=JobId("job-1"), runs=(run(1.0, 2.0, a=1),), total=1))
    answer = json.loads(hopyard("show", "job-1", "--json").out)
    assert (answer["job_id"], answer["runs"][0]["measured_throughput"]) == ("job-1", 95.5)


def test_a_job_too_new_for_the_monitor_has_no_runs(hopyard: Hopyard, api: CannedApi) -> None:
    api.says("GET /v1/jobs/job-1", job_view())
    api.refuses("GET /v1/jobs/job-1/runs", 404, "job job-1 is not known")
    assert hopyard("show", "job-1").code == 0
    api.refuses("GET /v1/jobs/job-1/runs", 503, "the monitor does not answer")
    assert hopyard("show", "job-1").code == 3
