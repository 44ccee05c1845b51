"""The ledger's plans, nodes and workers."""

import pytest

from schemas.base import Event
from schemas.events import PlacementRefused
from schemas.ids import PlacementId, PlanId
from schemas.plans import PlanKind, Waiting
from shared.domain.ledger import ledger_of
from shared.domain.ledger.records import NodeRecord
from tests.fact_builders import (
    JOB,
    NODE,
    in_queue,
    joined,
    left_out,
    lost,
    opened,
    placement,
    plan,
    profile_run,
    returned,
    submitted,
    worker_started,
    worker_stopped,
)


def node(*facts: Event) -> NodeRecord:
    return ledger_of(facts).nodes[NODE]


def test_a_worker_holds_its_gpus_until_it_stops() -> None:
    assert node(joined(), worker_started(gpu_indices=(0, 3))).gpus_in_use == 2
    assert node(joined(), worker_started(), worker_stopped()).gpus_in_use == 0


def test_busy_time_is_added_up_by_node_and_by_gpu() -> None:
    known = node(joined(), worker_started(at=10, gpu_indices=(0, 1)), worker_stopped(at=25))
    assert (known.busy_s, known.gpu_busy_s) == (15, 30)


def test_a_lost_node_keeps_its_workers_and_is_not_busy() -> None:
    known = node(joined(), worker_started(at=0), lost(at=10), returned(at=50), worker_stopped(at=55))
    assert known.busy_s == 15
    assert known.up == [(0, 10, 8)]


def test_a_new_life_keeps_only_the_workers_it_lists() -> None:
    facts = (joined(), worker_started(place="a"), worker_started(place="b", gpu_indices=(1,)))
    assert [*node(*facts, joined(life="2", workers=["b"])).workers] == ["b"]


def test_a_lost_node_is_alive_again_when_it_returns() -> None:
    assert not node(joined(), lost()).alive
    assert node(joined(), lost(), returned()).alive
    assert node(joined(), lost(), joined(life="2")).alive


def test_the_plan_that_opens_a_round_replaces_all_verdicts() -> None:
    ledger = ledger_of([plan(left_out=(left_out("a"),)), plan(plan_id=PlanId("plan-2"))])
    assert ledger.verdicts == {}


def test_a_fragment_plan_speaks_only_of_the_jobs_it_names() -> None:
    first = plan(placement("a"), left_out=(left_out("b"), left_out("c")))
    fragment = plan(placement("b", place="pl-2"), kind=PlanKind.FRAGMENT, plan_id=PlanId("plan-2"))
    ledger = ledger_of([first, fragment])
    assert [*ledger.planned] == ["a", "b"]
    assert [*ledger.verdicts] == ["c"]


def test_a_plan_of_an_older_leader_changes_nothing() -> None:
    ledger = ledger_of([plan(token=2), plan(placement(), token=1, policy="fifo")])
    assert (len(ledger.plans), ledger.policy, ledger.planned) == (1, "hops", {})


def test_a_refused_placement_is_a_verdict() -> None:
    refused = PlacementRefused(
        at=0, placement_id=PlacementId("pl-1"), plan_id=PlanId("plan-1"), job_id=JOB, reason="gone"
    )
    ledger = ledger_of([*in_queue(), plan(placement()), refused])
    assert ledger.planned == {}
    assert (ledger.verdicts[JOB].reason, ledger.verdicts[JOB].detail) == ("refused", "gone")


@pytest.mark.parametrize(
    ("reason", "fragments"), [(Waiting.OUTWEIGHED, 5), (Waiting.NO_CONFIGURATION, 5), (Waiting.PROFILING, 0)]
)
def test_idle_gpus_are_fragments_where_a_job_could_have_run(reason: Waiting, fragments: int) -> None:
    ledger = ledger_of([plan(left_out=(left_out(JOB, reason),), idle_gpus=5)])
    assert ledger.plans[0].fragments == fragments


def test_measurements_of_jobs_that_moved_on_are_forgotten() -> None:
    ledger = ledger_of([submitted(), opened(profile_run(place="pf-1"))])
    assert [*ledger.measuring] == ["pf-1"]
    ledger = ledger_of([*in_queue(), opened(profile_run(place="pf-1")), opened(number=1)])
    assert [*ledger.measuring] == []
