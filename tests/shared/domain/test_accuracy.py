"""Executions out of facts, and the figures over them; numbers worked out by hand."""

import msgspec
import pytest

from schemas.accuracy import Execution
from schemas.base import Event
from schemas.events import JobProfiled, Outcome, PreemptReason, WorkerStopped
from schemas.ids import Fingerprint, GpuType
from schemas.jobs import Workload
from schemas.measurements import DataMode, TimeModules
from schemas.plans import Layer, PlanKind
from shared.domain.accuracy import Executions, executions_of, fold, report, worth_measuring
from tests.fact_builders import (
    JOB,
    PLACE,
    cancelled,
    failed,
    gang_formed,
    joined,
    lost,
    placement,
    plan,
    preempted,
    refused,
    start_ordered,
    stop_ordered,
    submitted,
    whole_life,
    worker_started,
    worker_stopped,
)


def one(*facts: Event) -> Execution:
    [execution] = executions_of(facts)
    return execution


def ran(
    *, estimated: float = 10.0, measured: float = 10.0, layer: Layer = Layer.THEORY, **fields: object
) -> Execution:
    plain = Execution(
        placement_id=PLACE,
        job_id=JOB,
        fingerprint=Fingerprint("m|d|1|sgd|"),
        model="m",
        gpu_type="v100",
        gpus=1,
        nodes=1,
        layer=layer,
        estimated=estimated,
        measured=measured,
        at=0.0,
        seconds=100.0,
        number=1,
        unstable=False,
    )
    return msgspec.structs.replace(plain, **fields)


def running(*, began: float = 20.0) -> list[Event]:
    return [plan(placement()), start_ordered(), gang_formed(at=began)]


def with_modules(workload: Workload, *data: DataMode) -> JobProfiled:
    modules = TimeModules(
        data=data,
        forward_s=1.0,
        backward_s=1.0,
        update_s=1.0,
        parameters=1.0,
        pattern=1,
        iterations=30,
    )
    return JobProfiled(at=1.0, job_id=JOB, workload=workload, modules={GpuType("v100"): modules}, known=False)


# ---- executions


def test_a_job_that_ran_to_its_end_is_measured_from_its_gang_on() -> None:
    """1000 samples in the 100 s between the gang at 20 and the end at 120, expected at 10 samples/s."""
    execution = one(*whole_life())
    assert (execution.measured, execution.seconds, execution.at) == (10.0, 100.0, 20.0)
    assert (execution.estimated, execution.layer, execution.error) == (10.0, Layer.THEORY, 0.0)


def test_samples_that_a_script_left_out_are_not_measured() -> None:
    *life, end, _ = whole_life()
    assert isinstance(end, WorkerStopped)
    execution = one(*life, msgspec.structs.replace(end, samples_trained=200.0))
    assert execution.measured == 2.0


def test_writing_the_checkpoint_is_no_running() -> None:
    """400 samples from 20 to the order at 60, whenever the processes are gone."""
    end = worker_stopped(at=65, outcome=Outcome.CHECKPOINTED, samples_done=400.0)
    execution = one(*running(), stop_ordered(at=60), end)
    assert (execution.measured, execution.seconds) == (10.0, 40.0)


def test_samples_of_the_checkpoint_before_the_run_do_not_count() -> None:
    order = msgspec.structs.replace(start_ordered(), samples_done=600.0)
    execution = one(plan(placement()), order, gang_formed(at=20), worker_stopped(at=120))
    assert execution.measured == 4.0


def test_the_restored_samples_count_and_not_the_ordered_ones() -> None:
    """Ordered from 0 samples, restored with 400: 600 of 1000 were done in the 100 s."""
    restored = worker_started(samples_restored=400.0)
    assert one(*running(), restored, worker_stopped(at=120.0)).measured == 6.0


def test_the_estimate_is_that_of_the_plan_that_placed_it() -> None:
    later = msgspec.structs.replace(placement(), throughput=99.0)
    execution = one(*running(), plan(later), worker_stopped(at=120))
    assert execution.estimated == 10.0


def test_a_fragment_plan_leaves_the_round_s_placements_known() -> None:
    fragment = plan(kind=PlanKind.FRAGMENT)
    assert one(plan(placement()), fragment, start_ordered(), gang_formed(), worker_stopped(at=100))


def test_a_plan_of_an_earlier_leader_changes_nothing() -> None:
    late = plan(token=1, plan_id="plan-late")
    execution = one(plan(placement(), token=2), late, start_ordered(), gang_formed(), worker_stopped(at=100))
    assert execution.placement_id == PLACE


@pytest.mark.parametrize(
    "story",
    [
        [*running(), worker_stopped(at=120, outcome=Outcome.FAILED, samples_done=500.0)],
        [*running(), preempted(at=90, reason=PreemptReason.NODE_LOST), worker_stopped(at=120)],
        [*running(), failed(at=90), worker_stopped(at=120)],
        [plan(placement()), start_ordered(), worker_stopped(at=120)],
        [*running(), worker_stopped(at=120, samples_done=0.0)],
        [*running(), worker_stopped(at=120, leads=False)],
        [*running()[:2], cancelled(), gang_formed(at=30), worker_stopped(at=120)],
        [plan(placement()), start_ordered(profile_iterations=30, place="pf-1"), worker_stopped(place="pf-1")],
    ],
)
def test_a_run_that_neither_completed_nor_stopped_on_order_is_not_measured(story: list[Event]) -> None:
    assert executions_of(story) == []


def test_executions_of_a_workload_are_numbered() -> None:
    second = [
        plan(placement("job-2", place="pl-2")),
        start_ordered("job-2", place="pl-2"),
        gang_formed("job-2", place="pl-2"),
        worker_stopped("job-2", place="pl-2", at=50),
    ]
    assert [execution.number for execution in executions_of([*whole_life(), *second])] == [1, 2]


def test_of_too_many_workloads_those_that_ran_first_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shared.domain.accuracy.WORKLOADS_REMEMBERED", 2)
    known = Executions()
    for number, model in enumerate(("a", "b", "a", "c")):
        workload, place = Workload(model=model, dataset="d", batch_size=1), f"pl-{number}"
        start = start_ordered(place=place)
        for fact in [
            with_modules(workload, DataMode(probability=1.0, mean_s=0.1, std_s=0.0)),
            plan(placement(place=place)),
            msgspec.structs.replace(start, spec=msgspec.structs.replace(start.spec, workload=workload)),
            gang_formed(place=place),
            worker_stopped(place=place, at=50),
        ]:
            fold(known, fact)
    assert [name[0] for name in known.numbers] == [name[0] for name in known.unstable] == ["a", "c"]
    assert list(known.numbers.values()) == [2, 1]


def test_a_loader_with_two_components_is_unstable() -> None:
    mode = DataMode(probability=0.5, mean_s=0.1, std_s=0.0)
    assert one(with_modules(submitted().spec.workload, mode, mode), *whole_life()).unstable
    assert not one(*whole_life()).unstable


# ---- figures


def test_accuracy_is_one_less_the_mean_error() -> None:
    """Errors 0.1 and 0.3 of what was measured; the signs cancel in part."""
    [row] = report([ran(estimated=11.0), ran(estimated=7.0)], ("layer",)).rows
    assert (row.key, row.executions) == (("theory",), 2)
    assert row.accuracy == pytest.approx(0.8)
    assert row.bias == pytest.approx(-0.1)


def test_rows_come_by_every_combination_of_keys() -> None:
    made = report([ran(nodes=2), ran(model="a"), ran(nodes=2)], ("model", "place"))
    assert [(row.key, row.executions) for row in made.rows] == [
        (("a", "aggregated"), 1),
        (("m", "distributed"), 2),
    ]
    assert made.overall is not None
    assert made.overall.executions == 3


def test_rows_of_numbers_are_in_the_order_of_the_numbers() -> None:
    numbered = [msgspec.structs.replace(ran(), number=number) for number in (10_000, 2, 9_999, 123)]
    made = report(numbered, ("model", "number"))
    assert [row.key[1] for row in made.rows] == ["0002", "0123", "9999", "10000"]


def test_short_executions_may_be_left_out() -> None:
    assert worth_measuring([ran(seconds=59.0), ran(seconds=60.0)], 60.0) == [ran(seconds=60.0)]


def test_an_empty_report_has_no_figures() -> None:
    assert report([], ("layer",)).overall is None


@pytest.mark.parametrize(
    "end", [refused(), worker_stopped(outcome=Outcome.REFUSED, samples_done=0.0, leads=False)]
)
def test_a_start_that_was_refused_is_forgotten(end: Event) -> None:
    known = Executions()
    for fact in [plan(placement()), start_ordered(), end]:
        assert fold(known, fact) is None
    assert known.running == {}


def test_a_refusal_does_not_end_what_runs() -> None:
    """The placer refused a plan that had the placement again."""
    assert one(*running(), refused(), worker_stopped(at=120)).seconds == 100.0


def test_a_run_that_was_cancelled_and_lost_its_node_before_it_stopped_is_forgotten() -> None:
    known = Executions()
    for fact in [submitted(), *running(), cancelled(), stop_ordered(), lost(), joined(life="2")]:
        fold(known, fact)
    assert known.running == {}


@pytest.mark.parametrize("workers", [(), (PLACE,)])
def test_a_run_that_was_cancelled_and_that_a_new_agent_does_not_list_is_forgotten(
    workers: tuple[str, ...],
) -> None:
    known = Executions()
    for fact in [submitted(), *running(), cancelled(), stop_ordered(), joined(life="2", workers=workers)]:
        fold(known, fact)
    assert tuple(known.running) == workers
