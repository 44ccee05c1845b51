"""What is asked of Slurm for a stack's agents; that Slurm does it is for tests/container/slurm."""

import shutil
import subprocess
from pathlib import Path

import pytest

from hopyard.actions.slurm.agents import limit_of, script_of, settings_of_agents, take_down, warnings
from hopyard.actions.slurm.queue import SlurmAway, SlurmJob
from hopyard.actions.slurm.script import Allocation, batch_script
from hopyard.failures import Invalid

WANTED = Allocation(name="hopyard", partition="gpu")


def directives(script: str) -> str:
    return " ".join(line for line in script.splitlines() if line.startswith("#SBATCH"))


def test_an_agent_gets_a_whole_node_and_a_word_before_the_end(tmp_path: Path) -> None:
    text = directives(batch_script(WANTED, tmp_path, python="python", leave_s=120.0))
    for option in ("--partition=gpu", "--exclusive", "--nodes=1", "--mem=0", "--requeue"):
        assert option in text
    assert "--signal=B:USR1@180" in text
    assert "--time" not in text
    assert "--account" not in text


def test_requested_options_are_in_the_batch_script(tmp_path: Path) -> None:
    asked = Allocation(
        name="lab", partition="gpu", time="1-00:00:00", account="us", gres="gpu:a100:8", constraint="ib&fast"
    )
    text = directives(batch_script(asked, tmp_path, python="python", leave_s=120.0))
    for option in ("--job-name=lab", "--time=1-00:00:00", "--account=us", "--gres=gpu:a100:8"):
        assert option in text
    assert "--constraint='ib&fast'" in text


def test_the_batch_script_is_valid_for_any_folder_name(tmp_path: Path) -> None:
    script = tmp_path / "agent.sh"
    script.write_text(batch_script(WANTED, Path("/a b/$c'd"), python="/e f/python", leave_s=120.0))
    done = subprocess.run(["bash", "-n", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("", None),
        ("UNLIMITED", None),
        ("-1", None),
        ("0", None),
        ("0-0:00", None),
        ("90", 5_400.0),
        ("10:30", 630.0),
        ("2:00:00", 7_200.0),
        ("2-0", 172_800.0),
        ("1-12:30", 131_400.0),
        ("1-00:00:01", 86_401.0),
    ],
)
def test_a_time_is_read_as_slurm_reads_it(text: str, seconds: float | None) -> None:
    assert limit_of(text) == seconds


def test_an_invalid_or_too_short_time_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Invalid, match="--time soon: a time is MINUTES"):
        limit_of("soon")
    short = Allocation(name="hopyard", partition="gpu", time="5")
    with pytest.raises(Invalid, match="6 minutes are the least that is of use"):
        script_of(short, tmp_path)
    monkeypatch.setenv("HOPYARD_LEAVE_S", "60")
    assert "--signal=B:USR1@90" in script_of(short, tmp_path)


def test_agents_get_the_settings_in_force_and_no_token_of_the_api(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "nats_token": "t",
        "api_token": "a",
        "jobs_folder": "/jobs",
        "web_port": "80",
    }.items():
        monkeypatch.setenv(f"HOPYARD_{name.upper()}", value)
    settings = settings_of_agents("nats://head:4222")
    assert settings == {
        "nodes": "this-machine",
        "runner": "process",
        "nats_token": "t",
        "jobs_folder": "/jobs",
        "nats_url": "nats://head:4222",
    }
    monkeypatch.setenv("HOPYARD_RUNNER", "emulated")
    assert settings_of_agents("nats://head:4222")["runner"] == "emulated"


def test_an_address_that_other_nodes_cannot_reach_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Invalid, match="no stack is named"):
        settings_of_agents(None)
    for own in ("127.0.0.1", "[::1]", "[::]", "0.0.0.0", "localhost"):
        monkeypatch.setenv("HOPYARD_NATS_URL", f"nats://{own}:4222,nats://127.0.0.1:4223")
        with pytest.raises(Invalid, match="this machine's own address"):
            settings_of_agents(None)
    monkeypatch.setenv("HOPYARD_NATS_URL", "nats://[::1]:4222,nats://[fd00::1]:4222")
    assert settings_of_agents(None)["nats_url"] == "nats://[::1]:4222,nats://[fd00::1]:4222"
    assert settings_of_agents("nats://127.0.0.1:4222")["nats_url"] == "nats://127.0.0.1:4222"


@pytest.mark.parametrize(
    "wrong", ["nats://[::1", "nats://head:port", "nats://head:99999", "head:4222", "nats://"]
)
def test_what_is_no_address_is_refused_before_anything_is_submitted(
    wrong: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(Invalid, match="not the address of a NATS server"):
        settings_of_agents(wrong)
    monkeypatch.setenv("HOPYARD_NATS_URL", wrong)
    with pytest.raises(Invalid, match="not the address of a NATS server"):
        settings_of_agents(None)


def test_slurm_settings_that_cost_work_or_leave_processes_are_warned_about() -> None:
    good = {"ProctrackType": "proctrack/cgroup", "KillWait": "30 sec"}
    assert warnings(good) == []
    [kept] = warnings(good | {"ProctrackType": "proctrack/linuxproc"})
    assert "outlive" in kept
    [cut] = warnings(good | {"KillWait": "5 sec"})
    assert "KillWait=5" in cut


def test_a_successor_is_recognised_by_its_dependency() -> None:
    assert SlurmJob(job_id="2", state="PENDING", reason="Dependency").follows
    assert not SlurmJob(job_id="2", state="PENDING", reason="Resources").follows
    assert not SlurmJob(job_id="1", state="RUNNING").follows


@pytest.mark.skipif(shutil.which("squeue") is not None, reason="Slurm is installed here")
def test_without_slurm_there_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(SlurmAway, match="squeue is not installed here"):
        take_down(tmp_path, print)
