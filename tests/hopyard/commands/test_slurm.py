"""slurm up, status and down, with stand-ins for Slurm's programs; Slurm itself is in tests/container."""

import os
from pathlib import Path

import pytest

from tests.hopyard.cli_line import Hopyard

UP = ("slurm", "up", "--partition", "gpu", "--join", "nats://head:4222", "--folder", "agents")
STAND_IN = """\
#!/bin/bash
cd "$(dirname "$0")/.." && touch jobs
case ${0##*/} in
  squeue) [[ $SQUEUE_STATES ]] || cat jobs ;;
  sbatch)
    printf '%s\\n' "$@" >asked
    env >environ
    echo "$((100 + $(wc -l <jobs)))|PENDING||N/A|Priority|${!#}" | tee -a jobs | cut -d '|' -f 1
    ;;
  scancel) [[ $SCANCEL_STATE ]] || for id; do sed -i "/^$id|/d" jobs; done ;;
esac
"""
"""`jobs` is the queue, a line a job as squeue is asked for it; `asked`, `environ`: of the last sbatch"""


@pytest.fixture(autouse=True)
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The stand-ins' folder."""
    programs = tmp_path / "slurm" / "bin"
    programs.mkdir(parents=True)
    for name in ("sbatch", "squeue", "scancel", "scontrol"):
        (programs / name).write_text(STAND_IN)
        (programs / name).chmod(0o700)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    return programs.parent


def queue(slurm: Path) -> list[str]:
    return (slurm / "jobs").read_text().splitlines()


def test_jobs_of_others_are_neither_counted_nor_cancelled(
    hopyard: Hopyard, slurm: Path, tmp_path: Path
) -> None:
    """A job is an agent's by its script, and not by its name; a successor has the same script."""
    others = [
        "1|RUNNING|n-1|N/A|None|hopyard",
        "2|PENDING||N/A|Priority|agent.sh",
        f"3|PENDING||N/A|Priority|{tmp_path}/others/agent.sh",
        f"4|PENDING||N/A|Priority|{tmp_path}/agents/|/agent.sh",
        "a program's name",
    ]
    (slurm / "jobs").write_text("\n".join([*others, ""]))
    assert "submitted 105, 106" in hopyard(*UP, "--nodes", "2").err
    with (slurm / "jobs").open("a") as jobs:
        jobs.write(f"7|PENDING||N/A|Dependency|{tmp_path}/agents/agent.sh\n")
    assert "2 agents have their job already" in hopyard(*UP, "--nodes", "2").err
    assert "Dependency" in hopyard("slurm", "status", "--folder", "agents").out
    (tmp_path / "link").symlink_to(tmp_path / "agents")
    assert "3 jobs ended" in hopyard("slurm", "down", "--folder", "link").err
    assert queue(slurm) == others
    assert f"no jobs of {tmp_path}/agents" in hopyard("slurm", "down", "--folder", "agents").err


@pytest.mark.parametrize("name", ["", "a,b", "..", "a b", "-p"])
def test_a_name_that_slurm_or_a_folder_takes_for_something_else_is_refused(
    hopyard: Hopyard, name: str
) -> None:
    for command in ((*UP[:4], "--nodes", "1"), ("slurm", "status"), ("slurm", "down")):
        done = hopyard(*command, f"--name={name}")
        assert (done.code, "--name" in done.err) == (2, True)


def test_options_are_on_the_command_line_where_no_variable_overrides_them(
    hopyard: Hopyard, slurm: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Variables for what hopyard has no option for still reach sbatch; those that no option undoes do not."""
    for name in ("PARTITION", "TIMELIMIT", "JOB_NAME", "SIGNAL", "QOS", "WAIT", "ARRAY_INX"):
        monkeypatch.setenv(f"SBATCH_{name}", "7")
    asked = ("--time", "1-00:00:00", "--constraint", "ib&fast", "--gres", "gpu:8")
    assert hopyard(*UP, "--nodes", "1", *asked).code == 0
    words = (slurm / "asked").read_text().splitlines()
    given = ["--job-name=hopyard", "--partition=gpu", "--time=1-00:00:00", "--gres=gpu:8"]
    given += ["--constraint=ib&fast", "--signal=B:USR1@180", "--exclusive", "--mem=0", "--requeue"]
    assert set(given) < set(words)
    assert words[-1] == f"{tmp_path}/agents/agent.sh"
    environ = (slurm / "environ").read_text().splitlines()
    assert "SBATCH_QOS=7" in environ
    assert not {"SBATCH_WAIT=7", "SBATCH_ARRAY_INX=7"} & set(environ)


def test_what_is_left_to_variables_of_sbatch_is_read_from_them(
    hopyard: Hopyard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SBATCH_PARTITION", "gpu")
    monkeypatch.setenv("SBATCH_TIMELIMIT", "5")
    up = ("slurm", "up", "--nodes", "1", "--dry-run")
    assert "--time 5: " in hopyard(*up).err
    assert "#SBATCH --time=10\n" in hopyard(*up, "--time", "10").out


def test_slurms_commands_are_found_where_a_job_does_not_get_the_users_path(
    hopyard: Hopyard, slurm: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SBATCH_EXPORT", "NONE")
    assert hopyard(*UP, "--nodes", "1").code == 0
    assert "SBATCH_EXPORT=NONE" in (slurm / "environ").read_text().splitlines()
    assert f"export PATH=$PATH:{slurm}/bin\n" in hopyard(*UP, "--nodes", "1", "--dry-run").out


def test_variables_of_squeue_hide_no_job(
    hopyard: Hopyard, slurm: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SQUEUE_STATES", "RUNNING")
    monkeypatch.setenv("SCANCEL_STATE", "RUNNING")
    assert "submitted 100" in hopyard(*UP, "--nodes", "1").err
    assert "already" in hopyard(*UP, "--nodes", "1").err
    assert "1 job ended" in hopyard("slurm", "down", "--folder", "agents").err
    assert queue(slurm) == []
