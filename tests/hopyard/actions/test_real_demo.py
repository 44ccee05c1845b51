"""`hopyard demo --real`: its jobs make sense, and on an interpreter with torch all of them complete."""

import json
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest

from hopyard.actions.real_demo import CLUSTER, JOBS, DemoJob, RealDemoSpec, accuracy, job_file
from hopyard.cli import main
from hopyard.local.torch_python import TorchInterpreter
from schemas.cluster import ClusterFile
from schemas.ids import NodeId, PlacementId
from schemas.overview import RunView
from schemas.placement import Gang
from services.admission.validation import accepted_spec
from shared.domain.cluster import gpus_by_type, nodes_of
from tests.paths import ROOT
from tests.torch_python import torch_python

LEARNT = 0.6
"""of the answers are right, where a guess is right in a third of the cases at most"""


def spec(tmp_path: Path) -> RealDemoSpec:
    return RealDemoSpec(
        data=tmp_path, run=tmp_path, found=TorchInterpreter(Path("/opt/python"), "2.6.0"), limit_s=1.0
    )


@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.name)
def test_the_cluster_takes_every_job(tmp_path: Path, job: DemoJob) -> None:
    nodes = nodes_of(msgspec.convert(CLUSTER, ClusterFile))
    commanded = [node.node_id for node in nodes]
    accepted = accepted_spec(job_file(job, spec(tmp_path)), gpus_by_type(nodes), 64, commanded=commanded)
    assert accepted.command == ("/opt/python", "-m", "hopjob.demo", job.name)


def run(estimated: float, measured: float | None, length_s: float) -> RunView:
    return RunView(
        placement_id=PlacementId("pl"),
        gang=Gang.of({NodeId("a"): 1}),
        started_at=10.0,
        ended_at=10.0 + length_s,
        samples_from=0.0,
        samples_to=1.0,
        estimated_throughput=estimated,
        measured_throughput=measured,
        layer=None,
    )


def test_accuracy_is_a_mean_by_length_of_the_runs_that_say_something() -> None:
    assert accuracy([run(90.0, 100.0, 30.0), run(150.0, 100.0, 10.0)]) == pytest.approx(0.8)
    assert accuracy([run(90.0, 100.0, 1.0), run(90.0, None, 30.0)]) is None


def test_an_interpreter_is_named_for_real_jobs_alone(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["demo", "--python", sys.executable])
    assert (ended.value.code, "--python needs --real" in capsys.readouterr().err) == (2, True)


@pytest.mark.torch
@pytest.mark.parametrize("model", [job.name for job in JOBS])
def test_every_model_learns(tmp_path: Path, model: str) -> None:
    words = [str(torch_python()), "-m", "hopjob", "-m", "hopjob.demo", model]
    environ = {"PYTHONPATH": str(ROOT), "HOPJOB_SAMPLES": "16000", "OMP_NUM_THREADS": "1"}
    ran = subprocess.run(
        words, cwd=tmp_path, env=environ, capture_output=True, text=True, check=True, timeout=600
    )
    assert "Warning" not in ran.stderr
    right = [float(line.rpartition(" ")[2].rstrip("%")) / 100 for line in ran.stdout.splitlines()]
    assert sum(right[-5:]) / 5 > LEARNT > right[0]


@pytest.mark.torch
def test_the_whole_of_it_completes_and_breaks_no_rule(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "hopyard.cli", "demo", "--real", "--python", str(torch_python()), "--json"]
    ran = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=1200)
    assert ran.returncode == 0, ran.stderr
    result = json.loads(ran.stdout)
    assert [one["job"]["state"] for one in result["jobs"]] == ["completed"] * len(JOBS)
    assert result["violations"] == []
    for one in result["jobs"]:
        reached = [(run["samples_from"], run["samples_to"]) for run in one["runs"]]
        assert all(run["start_s"] > 0 for run in one["runs"]), (
            "from the order to start to processes that are up"
        )
        assert all(after[0] == before[1] for before, after in pairwise(reached))
