"""Every program of the vectors, decided by the shipped policy from a view: elastic, rigid and pinned jobs."""

from collections.abc import Iterable, Mapping

import msgspec
import numpy as np
import pytest

from schemas.ids import JobId, NodeId, PlacementId
from schemas.placement import Gang
from schemas.plans import Layer
from services.planner.policies.contract.configurations import Configurations
from services.planner.policies.contract.decision import fault
from services.planner.policies.contract.estimates import Estimated
from services.planner.policies.contract.view import Present, View, ViewJob, ViewNode
from services.planner.policies.sia.placement import Grant, in_turns
from services.planner.policies.sia.policy import SiaFaithful, SiaOptions
from services.planner.solver import solve
from tests.services.planner.planner_builders import job, node, view
from tests.services.planner.policies.sia.sia_replay import EXACT, Json
from tests.services.planner.policies.sia.test_golden import INVALID, instances

S = 30.0
"""seconds that a restart costs"""
Option = tuple[str, int]


def sia_options(case: Json) -> SiaOptions:
    return SiaOptions(
        power=case["p"],
        penalty=abs(case["lambda_no_alloc"]),
        scale_up=1e6,
        types=" ".join(case["gpu_types"]),
    )


def goodput(case: Json, one: Json) -> dict[Option, float]:
    """What the job can run with."""
    options = _options(case, one)
    return {
        at: value for at, value in zip(options, one["goodput_normalized"], strict=True) if value > INVALID
    }


def choice(case: Json, one: Json) -> Option | None:
    """The authors'."""
    index = {**case["chosen_config"], **case["chosen_gpu_type_index_rigid"]}[one["name"]]
    return None if index is None else _options(case, one)[index]


def worth(case: Json, chosen: Mapping[JobId, Option]) -> float:
    """The authors' objective, of any choice, by their utilities."""
    jobs = [*case["adaptive"], *case["rigid"]]
    rows = [*case["utility_matrix"], *(case["utility_matrix_rigid"] or ())]
    gained = sum(
        row[_options(case, one).index(chosen[one["name"]])]
        for one, row in zip(jobs, rows, strict=True)
        if one["name"] in chosen
    )
    return float(gained + case["lambda_no_alloc"] * (len(jobs) - len(chosen)))


def seen(case: Json) -> View:
    every = [*case["adaptive"], *case["rigid"]]
    sizes = {name: max(gpus for kind, gpus in _single(case) if kind == name) for name in case["gpu_types"]}
    cluster = [
        node(f"{name}-{index:03}", size, gpus=size, gpu_type=name)
        for name, size in sorted(sizes.items())
        for index in range(case["capacity"][name] // size)
    ]
    places = _pinned(case, every, cluster)
    jobs = [_job(case, one, cluster, places) for one in every]
    return msgspec.structs.replace(view(jobs, cluster, at=0.0, effort=EXACT), restart_s=S)


def _job(case: Json, one: Json, cluster: list[ViewNode], places: dict[str, dict[NodeId, int]]) -> ViewJob:
    """As old, and as often restarted, as gives its restart factor."""
    factor, held = one["restart_factor"], _held(case, one)
    age_s = S * (1 + factor) / (1 - factor) if 0 < factor < 1 else (1.0 - factor) * S
    there = None
    if held is not None:
        there = Present(
            placement_id=PlacementId("there"),
            gang=Gang.of(places.get(one["name"]) or _anywhere(held, cluster)),
            throughput=1.0,
            layer=Layer.TYPE,
            starting=bool(one.get("pinned")),
        )
    return job(
        one["name"],
        sorted({gpus for _, gpus in _options(case, one)}),
        gpu_types=tuple(sorted(case["gpu_types"])),
        submitted_at=-age_s,
        restarts=1 if factor else 9,
        present=there,
    )


def _options(case: Json, one: Json) -> list[Option]:
    if "gpus" in one:
        return [(name, one["gpus"]) for name in case["gpu_types"]]
    return [(config["gpu_type"], config["gpus"]) for config in case["configs"]]


def _single(case: Json) -> list[Option]:
    return [(config["gpu_type"], config["gpus"]) for config in case["configs"] if config["nodes"] == 1]


def _held(case: Json, one: Json) -> Option | None:
    index = one["prev_config"] if "prev_config" in one else one["prev_gpu_type_index"]
    return None if index is None else _options(case, one)[index]


def _pinned(case: Json, jobs: list[Json], cluster: list[ViewNode]) -> dict[str, dict[NodeId, int]]:
    """Places for those that keep theirs, no two on the same GPU."""
    found: dict[str, dict[NodeId, int]] = {}
    for kind in case["gpu_types"]:
        own = [member for member in cluster if member.gpu_type == kind]
        stay = [(one["name"], _held(case, one)) for one in jobs if one.get("pinned")]
        here = [(name, held[1]) for name, held in stay if held is not None and held[0] == kind]
        places = in_turns([Grant(gpus=gpus) for _, gpus in here], [one.gpus for one in own], own[0].gpus)
        for (name, _), place in zip(here, places, strict=True):
            found[name] = {own[index].node_id: gpus for index, gpus in place.items()}
    return found


def _anywhere(held: Option, cluster: list[ViewNode]) -> dict[NodeId, int]:
    kind, gpus = held
    place: dict[NodeId, int] = {}
    for member in (one for one in cluster if one.gpu_type == kind):
        if gpus:
            place[member.node_id] = min(gpus, member.gpus)
            gpus -= place[member.node_id]
    return place


def _estimated(case: Json, wanted: Configurations, cluster: Iterable[ViewNode]) -> Estimated:
    kinds = {member.node_id: member.gpu_type for member in cluster}
    known = {one["name"]: goodput(case, one) for one in (*case["adaptive"], *case["rigid"])}
    values = [
        known[wanted.jobs[job]].get((kinds[next(iter(wanted.at(row)))], sum(wanted.at(row).values())), np.nan)
        for row, job in enumerate(wanted.job)
    ]
    return Estimated(throughput=np.array(values), layer=np.full(len(values), 2, dtype=np.uint8))


@pytest.mark.parametrize("case", instances("sia_ilp.json"))
def test_a_program_is_decided_as_by_the_authors(case: Json) -> None:
    policy, now = SiaFaithful(sia_options(case)), seen(case)
    wanted = policy.wants(now)
    decision = policy.decide(now, wanted, _estimated(case, wanted, now.nodes), solve)
    assert fault(now, decision) is None
    every = {one["name"]: one for one in (*case["adaptive"], *case["rigid"])}
    theirs = {JobId(name): choice(case, one) for name, one in every.items()}
    kinds = {member.node_id: member.gpu_type for member in now.nodes}
    places = {one.job_id: one.gang.configuration for one in decision.choices}
    ours = {name: (kinds[next(iter(place))], sum(place.values())) for name, place in places.items()}
    assert worth(case, ours) == pytest.approx(case["objective_exact"], abs=1e-6)
    if case["solution_unique"]:
        assert ours == {name: at for name, at in theirs.items() if at is not None}
