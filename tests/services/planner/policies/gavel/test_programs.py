"""Every program that the authors' code solved for the vectors, solved by the shipped policy from a view."""

from collections.abc import Mapping

import msgspec
import numpy as np
import pytest

from schemas.ids import JobId
from services.planner.policies.contract.decision import Decision
from services.planner.policies.contract.view import View
from services.planner.policies.gavel.memory import read
from services.planner.policies.gavel.objectives import Objective
from services.planner.policies.gavel.policy import Gavel, GavelOptions
from services.planner.policies.gavel.shares import throughput
from services.planner.solver.effort import Effort
from shared.domain.arrays import Floats
from tests.services.planner.planner_builders import job, node, view
from tests.services.planner.policies.gavel.gavel_levels import normalised
from tests.services.planner.policies.gavel.gavel_replay import decided
from tests.services.planner.policies.gavel.test_golden import Json, feasible, instances

GREEDY = Effort(greedy=True, modelled=True)
either = pytest.mark.parametrize("faithful", [False, True])


class Figures(msgspec.Struct, frozen=True):
    """What a view says of a job's past and future."""

    left: float = 1.0
    done: float = 0.0
    elapsed: float = 0.0


def seen(instance: Json, figures: Mapping[str, Figures] | None = None) -> View:
    """One node a type; the jobs in the order of the instance."""
    known = figures or {}
    own = [known.get(str(one["id"]), Figures()) for one in instance["jobs"]]
    jobs = [
        job(
            _name(one),
            (one["scale_factor"],),
            gpu_types=tuple(instance["worker_types"]),
            single_gpu=one["throughput"],
            submitted_at=-figure.elapsed,
            samples=figure.left + figure.done,
            samples_done=figure.done,
            priority=one["priority_weight"],
        )
        for one, figure in zip(instance["jobs"], own, strict=True)
    ]
    cluster = [node(name, gpus, gpus=gpus, gpu_type=name) for name, gpus in instance["cluster_spec"].items()]
    return view(jobs, sorted(cluster, key=lambda member: member.node_id), at=0.0)


def solved(instance: Json, now: View, objective: Objective, *, faithful: bool) -> Decision:
    policy = Gavel(GavelOptions(objective=objective, faithful=faithful))
    return decided(policy, now, {JobId(_name(one)): one["throughput"] for one in instance["jobs"]})


def shares(instance: Json, decision: Decision) -> Floats:
    """X, as the policy remembers it."""
    kept = read(decision.memory).jobs
    rows = [kept[JobId(_name(one))].share for one in instance["jobs"]]
    return np.array([[row.get(name, 0.0) for name in instance["worker_types"]] for row in rows])


def _name(one: Json) -> str:
    return f"{one['id']:04}"


@either
def test_max_min_fairness_has_the_authors_objective(*, faithful: bool) -> None:
    for instance, demand in instances("max_min_fairness"):
        decision = solved(instance, seen(instance), "max-min", faithful=faithful)
        share = shares(instance, decision)
        assert feasible(demand, share)
        assert normalised(demand, share).min() == pytest.approx(instance["objective_highs"], rel=1e-6)
        assert decision.objective == pytest.approx(instance["objective_highs"], rel=1e-6)


def test_by_default_every_level_is_filled() -> None:
    for instance, demand in instances("water_filling"):
        share = shares(instance, solved(instance, seen(instance), "max-min", faithful=False))
        assert normalised(demand, share) == pytest.approx(np.array(instance["lexicographic_exact"]), rel=1e-6)


@either
def test_finish_time_fairness_has_the_authors_objective_twice_in_a_row(*, faithful: bool) -> None:
    """The second time with what the policy remembers of the first."""
    for instance, _ in instances("finish_time_fairness"):
        memory, before = b"", None
        for call in instance["calls"]:
            now = msgspec.structs.replace(seen(instance, _figures(call, before)), memory=memory)
            decision = solved(instance, now, "finish-time", faithful=faithful)
            assert decision.objective == pytest.approx(call["objective_bisect"], rel=1e-5)
            stale = msgspec.structs.replace(read(decision.memory), stale=True, at=-1e6)
            memory, before = msgspec.msgpack.encode(stale), call


def _figures(call: Json, before: Json | None) -> dict[str, Figures]:
    first = before or call
    return {
        name: Figures(
            left=left,
            done=first["num_steps_remaining"][name] - left,
            elapsed=call["times_since_start"][name],
        )
        for name, left in call["num_steps_remaining"].items()
    }


@either
def test_the_makespan_is_the_shortest(*, faithful: bool) -> None:
    for instance, demand in instances("min_total_duration"):
        left = instance["num_steps_remaining"]
        now = seen(instance, {name: Figures(left=float(value)) for name, value in left.items()})
        share = shares(instance, solved(instance, now, "makespan", faithful=faithful))
        rest = np.array([left[str(one["id"])] for one in instance["jobs"]])
        longest = (rest / throughput(demand, share)).max()
        assert longest == pytest.approx(instance["makespan_optimal"], rel=1e-6)


@either
def test_the_sum_of_throughputs_is_the_largest(*, faithful: bool) -> None:
    for instance, demand in instances("max_sum_throughput"):
        share = shares(instance, solved(instance, seen(instance), "throughput", faithful=faithful))
        assert throughput(demand, share).sum() == pytest.approx(instance["objective_highs"], rel=1e-6)


@either
def test_fifo_chooses_the_authors_types(*, faithful: bool) -> None:
    for instance, _ in instances("fifo_perf"):
        decision = solved(instance, seen(instance), "fifo", faithful=faithful)
        assert shares(instance, decision).tolist() == instance["X"]


def test_without_time_to_solve_every_job_has_its_part_of_the_cluster() -> None:
    for instance, demand in instances("isolated_proportional"):
        now = msgspec.structs.replace(seen(instance), effort=GREEDY)
        share = shares(instance, solved(instance, now, "max-min", faithful=True))
        assert share == pytest.approx(np.array(instance["X"]), rel=1e-12)
        assert feasible(demand, share)
