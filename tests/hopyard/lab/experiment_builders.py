"""What the tests of experiments build from: small trials, made-up outcomes, and a pool that says nothing."""

import io
from typing import Any

import msgspec

from hopyard.lab.experiments.baselines import contender
from hopyard.lab.experiments.options import Options
from hopyard.lab.runs.cases import Case, Finished
from hopyard.lab.runs.trials import Hold, Overrides, PlanRow, PointRow, Simulated, Simulation
from hopyard.show.ticker import Ticker
from loadgen.scenarios import load_scenario
from schemas.results import JobResult, PlanFigures, RunResult
from schemas.scenarios import ScenarioFile

METRICS: dict[str, float | None] = {
    "makespan_s": 7200.0,
    "jct_s_mean": 3600.0,
    "wt_s_mean": 600.0,
    "lr_max": 0.5,
    "fragments_mean": 0.25,
    "ftf_rho_max": 2.0,
}


SMALL = """
name: small
cluster:
  name: one
  gpu_types: {titan-xp: {link_bandwidth: 4700000000, network_bandwidth: 2700000000}}
  nodes: [{prefix: titan-xp, count: 1, gpus: 4, gpu_type: titan-xp}]
workload:
  arrivals: listed
  jobs:
    - at_s: 0
      job:
        name: first
        workload: &vgg {model: vgg11, dataset: cifar10, batch_size: 128}
        gpus: 2
        samples: 500000
    - at_s: 10
      job: {name: second, workload: *vgg, gpus: 4, samples: 500000}
"""
"""two jobs in a row on one node: the least that is an experiment"""


def small() -> ScenarioFile:
    return msgspec.yaml.decode(SMALL, type=ScenarioFile)


def trial(policy: str = "fifo", seed: int = 1, **overrides: Any) -> Simulation:  # noqa: ANN401 - settings
    chosen: Overrides = overrides
    return Simulation(scenario=small(), policy=policy, seed=seed, overrides=chosen)


def options(**fields: Any) -> Options:  # noqa: ANN401 - fields of Options
    defaults: dict[str, Any] = {
        "scenario": load_scenario("tiny"),
        "policies": ("hops", "fifo"),
        "seeds": (1, 2),
    }
    chosen = {**defaults, **fields}
    return Options(**{**chosen, "policies": tuple(map(contender, chosen["policies"]))})


def job(job_id: str = "a", **fields: Any) -> JobResult:  # noqa: ANN401 - fields of JobResult
    defaults: dict[str, Any] = {
        "name": "resnet18",
        "model": "resnet18",
        "dataset": "cifar10",
        "state": "completed",
        "submitted_at": 0.0,
        "started_at": 60.0,
        "ended_at": 3660.0,
        "wait_s": 60.0,
        "age_s": 600.0,
        "jct_s": 3660.0,
        "latency_ratio": 0.1,
        "ftf_rho": 1.5,
        "gpu_s": 7200.0,
        "restarts": 0,
        "lost_gpu_s": 0.0,
    }
    return JobResult(**{**defaults, **fields, "job_id": job_id})


def outcome(policy: str = "fifo", seed: int = 1, **metrics: float | None) -> Simulated:
    result = RunResult(
        scenario="tiny",
        policy=policy,
        seed=seed,
        speed=None,
        round_s=120.0,
        jobs={"submitted": 2},
        metrics={**METRICS, **metrics},
        plans=PlanFigures(plans=1, decision_s_p50=None, decision_s_p99=None, gap_max=None, stages={}),
        event_log_hash="0" * 64,
        events=10,
        wall_s=1.0,
        settings={"round_s": 120.0},
        job_results=(job("a", gpu_s=7200.0 + seed), job("b", jct_s=1800.0)),
    )
    return Simulated(
        result=result,
        violations=(),
        gpu_types=("titan-xp", "titan-xp", "rtx-3090"),
        plans=(plan(),),
        executions=(),
        holds=(Hold(gpu=0, job=0, started_at=60.0, ended_at=3660.0),),
        curve=(
            PointRow(at=0.0, throughput=0.0, busy_gpus=0.0),
            PointRow(at=10.0, throughput=2.0, busy_gpus=2.0),
        ),
        loading=(),
    )


def plan(**fields: Any) -> PlanRow:  # noqa: ANN401 - fields of PlanRow
    defaults: dict[str, Any] = {
        "at": 0.0,
        "round": 0,
        "kind": "first",
        "fragments": 1,
        "idle_gpus": 1,
        "placements": 1,
        "left_out": 1,
        "configurations": 4,
        "stage": "optimal",
        "gap": 0.0,
        "solve_s": 0.01,
        "decision_s": 0.02,
    }
    return PlanRow(**{**defaults, **fields})


def finished(
    policy: str = "fifo",
    seed: int = 1,
    *,
    group: str = "all",
    at: float | None = None,
    **metrics: float | None,
) -> Finished:
    return Finished(
        Case(group=group, arm=policy, trial=trial(policy, seed), at=at), outcome(policy, seed, **metrics)
    )


def silent() -> Ticker:
    """Says nothing to anybody."""
    return Ticker(io.StringIO())


class Terminal(io.StringIO):
    """A place to write to that is rewritten."""

    def isatty(self) -> bool:
        return True
