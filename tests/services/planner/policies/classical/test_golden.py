"""FIFO and SJF, strict and skipping, against an independent simulator's replay of a Helios trace.

1,867 jobs in two virtual clusters, decided in rounds of 60 s, multi-node gangs on whole nodes only.
"""

import csv
import json
from collections.abc import Callable, Mapping
from functools import cache

import pytest

from schemas.ids import JobId
from services.planner.policies.classical.fifo import Fifo, FifoSkipping
from services.planner.policies.classical.sjf import Sjf
from services.planner.policies.contract.decision import Policy
from services.planner.policies.contract.view import ViewJob
from services.planner.policies.kit.gangs import Style
from services.planner.policies.kit.ordered import Ordered
from tests.paths import data
from tests.services.planner.planner_builders import node
from tests.services.planner.policies.policy_replay import Job, replayed

TRACE = data("traces/helios/helios_venus_2vc_sept.csv")
GOLDEN = data("golden/helios/fleetsim_venus2vc_slice.json")
EVENT_DRIVEN_JCT_S = 16_534.27
"""strict FIFO without rounds, over both virtual clusters (see the data's README)"""


class Consolidated(Ordered):
    def style(self, job: ViewJob) -> Style:  # noqa: ARG002
        return Style.CONSOLIDATED


class StrictFifo(Consolidated, Fifo):
    pass


class SkippingFifo(Consolidated, FifoSkipping):
    pass


class SkippingSjf(Consolidated, Sjf):
    pass


class StrictSjf(SkippingSjf):
    strict = True


POLICIES: dict[str, Callable[[], Policy]] = {
    "fifo|strict=True": StrictFifo,
    "fifo|strict=False": SkippingFifo,
    "sjf|strict=True": StrictSjf,
    "sjf|strict=False": SkippingSjf,
}
SLOW = [("vcvGl", name) for name in POLICIES if name != "sjf|strict=True"]
CASES = [
    *(("vcvlY", name) for name in POLICIES),
    ("vcvGl", "sjf|strict=True"),
    *(pytest.param(*case, marks=pytest.mark.benchmark) for case in SLOW),
]


@cache
def golden() -> Mapping[str, Mapping[str, Mapping[str, Mapping[str, float]]]]:
    found: Mapping[str, Mapping[str, Mapping[str, Mapping[str, float]]]] = json.loads(GOLDEN.read_text())
    return found


def jobs_of(cluster: str) -> list[Job]:
    with TRACE.open(newline="", encoding="utf-8") as file:
        found = list(csv.DictReader(line for line in file if not line.startswith("#")))
    return [
        Job(
            JobId(f"{place:06d}"),
            int(row["num_chips"]),
            int(row["submit_time"]) / 1e6,
            float(row["duration_s"]),
        )
        for place, row in enumerate(found)
        if row["tenant"] == cluster
    ]


def jcts(cluster: str, name: str, *, nodes: int, tick_s: float) -> tuple[list[float], list[float]]:
    """Completion and queueing times."""
    members = [node(f"n{index:02d}") for index in range(nodes)]
    done = replayed(POLICIES[name](), jobs_of(cluster), members, tick_s=tick_s).values()
    return [job.ended - job.submitted for job in done], [job.started - job.submitted for job in done]


@pytest.mark.parametrize(("cluster", "name"), CASES)
def test_mean_times_are_those_of_the_independent_replay(cluster: str, name: str) -> None:
    expected = golden()[f"{name}|consolidate"]["per_vc"][cluster]
    completion, queueing = jcts(cluster, name, nodes=int(expected["nodes"]), tick_s=60.0)
    assert len(completion) == expected["n_jobs"]
    assert sum(completion) / len(completion) == pytest.approx(expected["avg_jct"], rel=1e-12)
    assert sum(queueing) / len(queueing) == pytest.approx(expected["avg_queuing"], rel=1e-12)
    assert sum(wait > 60.0 for wait in queueing) == expected["n_queuing"]


@pytest.mark.benchmark
def test_without_rounds_strict_fifo_nearly_halves() -> None:
    expected = golden()["fifo|strict=True|consolidate"]["per_vc"]
    both = [
        jcts(cluster, "fifo|strict=True", nodes=int(known["nodes"]), tick_s=0.0)[0]
        for cluster, known in expected.items()
    ]
    every = [jct for completion in both for jct in completion]
    assert sum(every) / len(every) == pytest.approx(EVENT_DRIVEN_JCT_S, abs=0.01)
