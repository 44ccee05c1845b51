"""Gavel against the authors' own outputs."""

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from schemas.ids import GpuType, JobId
from services.planner.policies.gavel.placing import RoundJob, assigned
from services.planner.policies.gavel.rounds import deficits, priorities, reset_due, taken
from services.planner.policies.gavel.shares import (
    Demand,
    fifo,
    finish_time,
    isolated,
    makespan,
    max_min,
    max_sum,
    proportional,
    throughput,
)
from services.planner.solver.budget import Budget
from shared.domain.arrays import Floats
from tests.paths import data
from tests.services.planner.policies.gavel.gavel_levels import normalised

Json = dict[str, Any]


def instances(name: str) -> Iterator[tuple[Json, Demand]]:
    for instance in json.loads(data(f"golden/gavel_{name}.json").read_text())["instances"]:
        yield instance, demand_of(instance)


def demand_of(instance: Json) -> Demand:
    types, jobs = instance["worker_types"], instance["jobs"]
    return Demand(
        speed=np.array([[job["throughput"][name] for name in types] for job in jobs], dtype=np.float64),
        gang=np.array([job["scale_factor"] for job in jobs], dtype=np.float64),
        gpus=np.array([instance["cluster_spec"][name] for name in types], dtype=np.float64),
        weight=np.array([job["priority_weight"] for job in jobs], dtype=np.float64),
    )


def by_job(instance: Json, values: Json) -> Floats:
    return np.array([values[str(job["id"])] for job in instance["jobs"]], dtype=np.float64)


def feasible(demand: Demand, share: Floats) -> bool:
    used = demand.gang @ share
    fits = (share >= 0).all() and (share.sum(axis=1) <= 1 + 1e-7).all() and (used <= demand.gpus + 1e-6).all()
    return bool(fits)


# ---- shares


@pytest.mark.parametrize("fill", [True, False])
def test_max_min_fairness_has_the_same_objective(*, fill: bool) -> None:
    for instance, demand in instances("max_min_fairness"):
        shares = max_min(demand, Budget(), fill=fill)
        assert feasible(demand, shares.share)
        assert normalised(demand, shares.share).min() == pytest.approx(instance["objective_highs"], rel=1e-6)
        assert shares.objective == pytest.approx(shares.bound, rel=1e-7)


def test_water_filling_is_lexicographic() -> None:
    for instance, demand in instances("water_filling"):
        shares = max_min(demand, Budget())
        assert feasible(demand, shares.share)
        exact = np.array(instance["lexicographic_exact"])
        assert normalised(demand, shares.share) == pytest.approx(exact, rel=1e-6)


@pytest.mark.parametrize("fill", [True, False])
def test_finish_time_fairness_has_the_same_objective(*, fill: bool) -> None:
    for instance, demand in instances("finish_time_fairness"):
        past_s, before, rate = np.zeros(len(demand.gang)), None, np.ones(1)
        for call in instance["calls"]:
            left = by_job(instance, call["num_steps_remaining"])
            elapsed = by_job(instance, call["times_since_start"])
            past_s = past_s if before is None else past_s + (before - left) / rate
            before, rate = left, throughput(demand, isolated(demand))
            assert rate == pytest.approx(np.array(call["isolated_throughput"]), rel=1e-12)
            assert past_s == pytest.approx(by_job(instance, call["cumulative_isolated_time"]), rel=1e-9)
            shares = finish_time(demand, left, elapsed, past_s, Budget(), fill=fill)
            assert feasible(demand, shares.share)
            assert shares.objective == pytest.approx(call["objective_bisect"], rel=1e-5)


@pytest.mark.parametrize("fill", [True, False])
def test_makespan_is_the_shortest(*, fill: bool) -> None:
    for instance, demand in instances("min_total_duration"):
        left = by_job(instance, instance["num_steps_remaining"])
        shares = makespan(demand, left, Budget(), fill=fill)
        assert feasible(demand, shares.share)
        assert (left / throughput(demand, shares.share)).max() == pytest.approx(
            instance["makespan_optimal"], rel=1e-6
        )


def test_max_sum_throughput_has_the_same_objective() -> None:
    for instance, demand in instances("max_sum_throughput"):
        shares = max_sum(demand, Budget())
        assert feasible(demand, shares.share)
        assert throughput(demand, shares.share).sum() == pytest.approx(instance["objective_highs"], rel=1e-6)


def test_fifo_chooses_the_same_types() -> None:
    for instance, demand in instances("fifo_perf"):
        assert fifo(demand).share.tolist() == instance["X"]


def test_isolated_and_proportional_shares_are_the_same() -> None:
    for instance, demand in instances("isolated_proportional"):
        assert isolated(demand) == pytest.approx(np.array(instance["X"]), rel=1e-12)
        assert proportional(demand)[0] == pytest.approx(np.array(instance["proportional_share"]), rel=1e-12)


# ---- rounds


def runs() -> list[Json]:
    result: list[Json] = json.loads(data("golden/gavel_rounds.json").read_text())["runs"]
    return result


every_run = pytest.mark.parametrize("run", runs(), ids=lambda run: run["label"])


def types_of(run: Json) -> list[str]:
    return [name for name in ("v100", "p100", "k80") if name in run["cluster_spec"]]


def table(run: Json, record: Json, key: str) -> Floats:
    """A figure of every active job on every type; 0 where nothing is recorded."""
    types, rows = types_of(run), record[key]
    values = [[rows.get(job, {}).get(name, 0.0) for name in types] for job in record["jobs"]]
    return np.array(values, dtype=np.float64).reshape(len(values), len(types))


def speed_of(run: Json, record: Json) -> Floats:
    speeds = {job: own["throughput"] for job, own in record["jobs"].items()}
    return table(run, {**record, "speed": speeds}, "speed")


def priority_of(run: Json, record: Json) -> Floats:
    worker_time = np.array([record["worker_time"][name] for name in types_of(run)])
    job_time = table(run, record, "job_time")
    return priorities(table(run, record, "X"), speed_of(run, record), job_time, worker_time)


def workers_of(run: Json, record: Json) -> dict[JobId, tuple[int, ...]]:
    """Who gets which workers."""
    types, jobs = [GpuType(name) for name in types_of(run)], [JobId(job) for job in record["jobs"]]
    gang = np.array([own["scale_factor"] for own in record["jobs"].values()], dtype=np.int32)
    order = taken(
        priority_of(run, record),
        table(run, record, "deficit"),
        table(run, record, "X"),
        speed=speed_of(run, record),
        gang=gang,
        free=np.array([run["cluster_spec"][name] for name in types], dtype=np.int32),
        order=range(len(types)),
        owed_only="fifo" in run["policy"],
    )
    previous = {JobId(job): tuple(ids) for job, ids in record["previous_assignment"].items()}
    result: dict[JobId, tuple[int, ...]] = {}
    for kind, name in enumerate(types):
        here = [
            RoundJob(job_id=jobs[job], gpus=int(gang[job]), gpu_type=name, known=jobs[job] in record["X"])
            for job, other in order
            if other == kind
        ]
        workers = [worker for server in run["servers"][name] for worker in server]
        result |= assigned(here, workers, previous)
    return result


@every_run
def test_every_round_gives_the_same_workers(run: Json) -> None:
    for record in run["rounds"]:
        expected = {job: tuple(own["worker_ids"]) for job, own in record["assignment"].items()}
        assert workers_of(run, record) == expected, record["time"]


@every_run
def test_every_round_has_the_same_priorities(run: Json) -> None:
    for record in run["rounds"]:
        assert priority_of(run, record) == pytest.approx(table(run, record, "priority"), rel=1e-12)


@every_run
def test_shares_are_computed_again_in_the_same_rounds(run: Json) -> None:
    last, changed, before = None, True, None
    for record in run["rounds"]:
        changed = changed or set(record["jobs"]) != before
        due = reset_due(
            at=record["time"],
            last=last,
            interval_s=run["reset_interval_s"],
            changed=changed,
            authors=True,
        )
        assert due is record["planner_ran"], record["time"]
        last, changed = (record["time"], False) if due else (last, changed)
        before = set(record["jobs"])


def test_fifo_has_the_same_shares_whenever_they_are_computed() -> None:
    for run in (run for run in runs() if run["policy"] == "fifo_perf"):
        for record in (record for record in run["rounds"] if record["planner_ran"]):
            jobs = record["jobs"].values()
            demand = Demand(
                speed=speed_of(run, record),
                gang=np.array([own["scale_factor"] for own in jobs], dtype=np.float64),
                gpus=np.array([run["cluster_spec"][name] for name in types_of(run)], dtype=np.float64),
                weight=np.ones(len(jobs)),
            )
            if len(jobs):
                assert fifo(demand).share.tolist() == table(run, record, "X").tolist()


@every_run
def test_deficits_are_the_same_after_a_reset(run: Json) -> None:
    """Of jobs that did not run in the round before it: what the others received then is not recorded."""
    last = 0.0
    for before, record in zip(run["rounds"], run["rounds"][1:], strict=False):
        if not record["planner_ran"]:
            continue
        received_s = table(run, before, "job_time") - run["round_s"] / 2
        owed = deficits(
            table(run, before, "deficit"), table(run, before, "X"), received_s, record["time"] - last
        )
        last = record["time"]
        after = dict(zip(record["jobs"], table(run, record, "deficit"), strict=True))
        for job, row in zip(before["jobs"], owed, strict=True):
            if job in after and job not in before["assignment"]:
                assert after[job] == pytest.approx(row, abs=1e-6)
