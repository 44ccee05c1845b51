"""The life of a job in the profiler, from submission to its verdict."""

from collections.abc import Callable
from functools import partial

import msgspec
import pytest
from msgspec.structs import replace

from schemas.base import Event
from schemas.events import (
    JobHeld,
    JobProfiled,
    JobRejected,
    JobReleased,
    NodeDrained,
    NodeReturned,
    Outcome,
    PlacementRefused,
    ProfileFailed,
    ProfileRun,
    ProfilingAdded,
    ProfilingPlanned,
)
from schemas.ids import GpuType, JobId, NodeId, PlanId
from schemas.questions import FitLoading, FittedLoading, Refused
from services.profiler.core import Profiler
from services.profiler.state import State
from services.profiler.tasks import Fit, FitTimes
from services.profiler.work.workers import fit_times
from shared.domain.core import Asked, Behind, Publish, Reply, Work, WorkFailed
from tests.services.profiler.profiler_builders import (
    ROUND_S,
    Driver,
    cancelled,
    failed,
    joined,
    lost,
    measured,
    measurement,
    ordered,
    started,
    stop_ordered,
    stopped,
    submitted,
    workload,
)


def test_the_round_under_way_is_opened_at_start_up() -> None:
    core = Profiler(round_s=ROUND_S, timeout_s=600, attempts=3)
    assert core.resume(1000.0) == [Publish(ProfilingPlanned(at=1000.0, round=2, runs=()))]
    assert core.next_wakeup() == 3 * ROUND_S


def test_every_round_is_opened_even_with_nothing_to_measure() -> None:
    driver = Driver().until(3 * ROUND_S)
    assert [opened.round for opened in driver.all(ProfilingPlanned)] == [0, 1, 2, 3]


def test_rounds_missed_while_the_service_was_down_are_skipped() -> None:
    driver = Driver().until(0.0)
    driver.perform(driver.core.wake(5 * ROUND_S + 1))
    assert [opened.round for opened in driver.all(ProfilingPlanned)] == [0, 5]


def test_a_new_job_is_measured_on_every_type_at_once() -> None:
    driver = Driver().tell(joined("a0", "A"), joined("b0", "B"), submitted())
    driver.until(0.0)
    assert [(run.gpu_type, run.node_id) for run in driver.all(ProfilingPlanned)[0].runs] == [
        ("A", "a0"),
        ("B", "b0"),
    ]


def test_a_job_on_hold_is_measured_once_it_is_released() -> None:
    job = JobId("j1")
    driver = Driver(at_once=True).tell(joined("a0", "A"), submitted("j1"), JobHeld(at=0.0, job_id=job))
    driver.until(2.5 * ROUND_S)
    assert not any(opened.runs for opened in driver.all(ProfilingPlanned))
    driver.tell(JobReleased(at=2.5 * ROUND_S, job_id=job))
    assert [run.job_id for added in driver.all(ProfilingAdded) for run in added.runs] == ["j1"]


def test_a_job_on_hold_from_the_start_is_measured_once_it_is_released() -> None:
    """Also if its submission comes again after the release."""
    job, on_hold = JobId("j1"), replace(submitted("j1", gpu_types=["A", "B"]), on_hold=True)
    driver = Driver(at_once=True).tell(joined("a0", "A"), joined("b0", "B"), lost("b0", at=0.5), on_hold)
    driver.until(2.5 * ROUND_S)
    assert not any(opened.runs for opened in driver.all(ProfilingPlanned))
    known = driver.core.state.jobs[job]
    assert known.rounds_without_node == {}, "nobody waited for B"
    driver.tell(JobReleased(at=2.5 * ROUND_S, job_id=job), on_hold)
    assert [run.job_id for added in driver.all(ProfilingAdded) for run in added.runs] == ["j1"]


def test_a_job_is_profiled_once_its_last_type_is_measured() -> None:
    driver = Driver().tell(joined("a0", "A"), joined("b0", "B"), submitted())
    first, second = driver.next_round()
    driver.tell(measured(first))
    assert not driver.all(JobProfiled)
    driver.tell(measured(second))
    [profiled] = driver.all(JobProfiled)
    assert sorted(profiled.modules) == ["A", "B"]
    assert not profiled.known
    assert profiled.unusable == {}


def test_in_which_modes_a_script_trains_is_found_once_for_all_jobs_of_its_workload() -> None:
    driver = Driver().tell(joined(), submitted("j1"))
    [run] = driver.next_round()
    driver.tell(measured(run, measurement(modes=("lockstep",))), submitted("j2"))
    profiles = driver.all(JobProfiled)
    assert [(fact.known, fact.modules[GpuType("A")].modes) for fact in profiles] == [
        (False, ("lockstep",)),
        (True, ("lockstep",)),
    ]


def test_unknown_modes_of_an_agent_are_dropped_and_lockstep_is_added() -> None:
    """Else no policy would ever plan the job, nor any other of its workload."""
    driver = Driver().tell(joined(), submitted())
    [run] = driver.next_round()
    driver.tell(measured(run, measurement(modes=("unheard-of", "relaxed"))))
    [profiled] = driver.all(JobProfiled)
    assert profiled.modules[GpuType("A")].modes == ("lockstep", "relaxed")


def test_only_the_types_a_job_names_are_measured() -> None:
    driver = Driver().tell(joined("a0", "A"), joined("b0", "B"), submitted(gpu_types=["B"]))
    assert [run.gpu_type for run in driver.next_round()] == ["B"]


def test_a_known_workload_is_profiled_at_once() -> None:
    driver = Driver().tell(joined(), submitted("j1"))
    driver.tell(*(measured(run) for run in driver.next_round()))
    driver.tell(submitted("j2"))
    assert [(fact.job_id, fact.known) for fact in driver.all(JobProfiled)] == [("j1", False), ("j2", True)]


def test_a_measurement_that_is_stopped_from_elsewhere_is_no_failed_one() -> None:
    """A node that began a new life after the order starts it all the same, and is ordered to stop it."""
    driver = Driver(attempts=1).tell(joined(), submitted())
    [run] = driver.next_round()
    driver.tell(started("a0", run.placement_id), stop_ordered(run), stopped(run))
    assert [fact.final for fact in driver.all(ProfileFailed)] == [False]
    [again] = driver.next_round()
    driver.tell(measured(again))
    assert driver.all(JobProfiled)
    assert not driver.all(JobRejected)


def test_a_measurement_that_failed_is_made_on_another_node() -> None:
    driver = Driver(attempts=3).tell(joined("a0"), joined("a1"), submitted())
    tried = []
    for _ in range(2):
        [run] = driver.next_round()
        driver.tell(failed(run, final=False, reason="GPU 0: fallen off the bus"), stopped(run))
        tried.append(run.node_id)
    assert tried == ["a0", "a1"]


def test_every_job_is_measured_where_known_workloads_are_too() -> None:
    driver = Driver(every_job=True).tell(joined(), submitted("j1"), submitted("j2"))
    first, second = driver.next_round()
    assert (first.job_id, second.job_id) == ("j1", "j2")
    driver.tell(measured(first))
    assert [fact.job_id for fact in driver.all(JobProfiled)] == ["j1"]
    driver.tell(measured(second), submitted("j3"))
    [third] = driver.next_round()
    driver.tell(measured(third, measurement(forward_s=0.7)))
    profiles = driver.all(JobProfiled)
    assert [(fact.job_id, fact.known) for fact in profiles] == [("j1", False), ("j2", False), ("j3", False)]
    assert [fact.modules[GpuType("A")].forward_s for fact in profiles] == [0.1, 0.1, 0.7]
    assert {fact.workload.fingerprint for fact in profiles} == {workload().fingerprint}


def test_where_every_job_is_measured_one_that_fails_bars_no_other() -> None:
    driver = Driver(every_job=True).tell(joined("a0", "A"), joined("b0", "B"), submitted("j1"))
    first, second = driver.next_round()
    driver.tell(failed(first), measured(second), submitted("j2"))
    assert [run.gpu_type for run in driver.next_round()] == ["A", "B"]


def test_only_the_missing_types_of_a_partly_known_workload_are_measured() -> None:
    driver = Driver().tell(joined("a0", "A"), joined("b0", "B"), submitted("j1", gpu_types=["A"]))
    driver.tell(*(measured(run) for run in driver.next_round()))
    driver.tell(submitted("j2"))
    runs = driver.next_round()
    assert [run.gpu_type for run in runs] == ["B"]
    driver.tell(measured(runs[0]))
    assert sorted(driver.all(JobProfiled)[-1].modules) == ["A", "B"]


def test_two_jobs_of_one_workload_are_measured_once() -> None:
    driver = Driver().tell(joined(), submitted("j1"), submitted("j2"))
    runs = driver.next_round()
    assert [run.job_id for run in runs] == ["j1"]
    driver.tell(measured(runs[0]))
    assert [(fact.job_id, fact.known) for fact in driver.all(JobProfiled)] == [("j1", False), ("j2", True)]


def test_a_type_with_a_lasting_failure_is_unusable() -> None:
    driver = Driver().tell(joined("a0", "A"), joined("b0", "B"), submitted())
    first, second = driver.next_round()
    driver.tell(failed(first), measured(second))
    [profiled] = driver.all(JobProfiled)
    assert list(profiled.modules) == ["B"]
    assert profiled.unusable == {"A": "out of memory"}


def test_a_workload_that_failed_on_a_type_is_not_measured_there_again() -> None:
    driver = Driver().tell(joined("a0", "A"), joined("b0", "B"), submitted("j1"))
    first, second = driver.next_round()
    driver.tell(failed(first, whole_workload=True), measured(second), submitted("j2"))
    assert driver.all(JobProfiled)[-1].known
    assert driver.all(JobProfiled)[-1].unusable == {"A": "out of memory"}


def test_a_job_s_own_failure_on_a_type_says_nothing_of_the_next_one_of_its_workload() -> None:
    """It asked for too little main memory, say, which is no part of the workload."""
    driver = Driver().tell(joined("a0", "A"), joined("b0", "B"), submitted("j1"))
    first, second = driver.next_round()
    driver.tell(failed(first), measured(second), submitted("j2"))
    assert driver.all(JobProfiled)[-1].unusable == {"A": "out of memory"}
    [again] = driver.next_round()
    driver.tell(measured(again))
    assert sorted(driver.all(JobProfiled)[-1].modules) == ["A", "B"]


def test_measurements_that_took_too_long_bar_no_other_job() -> None:
    driver = Driver(timeout_s=100.0, attempts=1).tell(joined("a0", "A"), joined("b0", "B"), submitted("j1"))
    first, second = driver.next_round()
    driver.tell(measured(second), started("a0", first.placement_id, at=driver.now)).until(driver.now + 150.0)
    assert list(driver.all(JobProfiled)[-1].unusable) == ["A"]
    driver.tell(submitted("j2"))
    assert [run.gpu_type for run in driver.next_round()] == ["A"]


def test_a_job_that_runs_on_no_type_is_rejected_with_the_reasons() -> None:
    driver = Driver().tell(joined("a0", "A"), joined("b0", "B"), submitted())
    driver.tell(*(failed(run) for run in driver.next_round()))
    [rejected] = driver.all(JobRejected)
    assert rejected.reason == "it runs on no GPU type: out of memory"
    assert not driver.core.state.jobs


def test_types_that_fail_for_different_reasons_are_named_with_theirs() -> None:
    driver = Driver().tell(joined("a0", "A"), joined("b0", "B"), submitted())
    first, second = driver.next_round()
    driver.tell(failed(first, reason="no such model"), failed(second))
    [rejected] = driver.all(JobRejected)
    assert rejected.reason == "it runs on no GPU type: A: no such model; B: out of memory"


def test_a_rejected_job_does_not_reject_the_next_one_of_its_workload() -> None:
    driver = Driver().tell(joined(), submitted("j1"))
    driver.tell(*(failed(run) for run in driver.next_round()), submitted("j2"))
    assert len(driver.next_round()) == 1


def test_a_failure_that_is_not_final_is_tried_again_and_then_is() -> None:
    driver = Driver(attempts=2).tell(joined(), submitted())
    driver.tell(*(failed(run, final=False) for run in driver.next_round()))
    assert not driver.all(JobRejected)
    driver.tell(*(failed(run, final=False) for run in driver.next_round()))
    assert len(driver.all(JobRejected)) == 1


NONSENSE = measurement(backward_s=float("nan"))


@pytest.mark.parametrize("said", [partial(failed, final=False), partial(measured, numbers=NONSENSE)])
def test_a_failure_under_two_ids_is_one(said: Callable[[ProfileRun], Event]) -> None:
    """An earlier version gave a failure another id: the stream has it twice, and so do its readers."""
    driver = Driver(attempts=2).tell(joined(), submitted())
    [run] = driver.next_round()
    for _ in range(2):
        driver.perform(driver.core.handle(said(run), driver.now))
    assert not driver.all(JobRejected)
    driver.tell(*map(said, driver.next_round()))
    assert len(driver.all(JobRejected)) == 1


def test_numbers_that_make_no_sense_count_as_a_failure() -> None:
    driver = Driver(attempts=1).tell(joined(), submitted())
    driver.tell(*(measured(run, NONSENSE) for run in driver.next_round()))
    assert "non-finite" in driver.all(JobRejected)[0].reason


def test_a_run_has_its_time_limit_from_when_it_started() -> None:
    driver = Driver(timeout_s=100.0).tell(joined(), submitted())
    [run] = driver.next_round()
    driver.tell(started("a0", run.placement_id, at=50.0)).until(149.0)
    assert not driver.all(ProfileFailed)
    driver.until(150.0)
    [fact] = driver.all(ProfileFailed)
    assert (fact.placement_id, fact.final) == (run.placement_id, False)


def test_the_last_time_limit_is_final() -> None:
    driver = Driver(timeout_s=100.0, attempts=1).tell(joined(), submitted())
    [run] = driver.next_round()
    driver.tell(started("a0", run.placement_id, at=50.0)).until(150.0)
    assert driver.all(ProfileFailed)[0].final
    assert driver.all(JobRejected)[0].reason.endswith("no measurement within 100 s")


def test_a_run_has_its_whole_time_from_when_the_bus_is_back() -> None:
    driver = Driver(timeout_s=100.0).tell(joined(), submitted())
    [run] = driver.next_round()
    driver.tell(started("a0", run.placement_id, at=50.0)).until(140.0)
    driver.core.handle(Behind(), 140.0)
    driver.until(239.0)
    assert not driver.all(ProfileFailed)
    driver.tell(measured(run)).until(10 * ROUND_S)
    assert not driver.all(ProfileFailed)


def test_a_run_has_its_whole_time_from_when_the_profiler_is_back() -> None:
    earlier = Driver(timeout_s=100.0).tell(joined(), submitted())
    [run] = earlier.next_round()
    earlier.tell(started("a0", run.placement_id, at=50.0))
    earlier.now = 200.0
    driver = Driver(timeout_s=100.0).after(earlier)
    assert not driver.until(299.0).all(ProfileFailed)
    assert driver.until(300.0).all(ProfileFailed)


def test_a_profiler_that_overslept_gives_no_run_up() -> None:
    driver = Driver(timeout_s=100.0).tell(joined(), submitted())
    [run] = driver.next_round()
    driver.tell(started("a0", run.placement_id, at=50.0))
    assert driver.core.wake(250.0) == []
    assert (driver.core.next_wakeup() or 0.0) > 250.0


def test_a_run_that_never_starts_is_given_up() -> None:
    driver = Driver(timeout_s=100.0).tell(joined(), submitted())
    driver.next_round()
    driver.until(ROUND_S + 100.0)
    assert driver.all(ProfileFailed)[0].reason == "it did not start in time"


def test_a_run_planned_for_other_gpus_than_the_node_came_back_with_counts_as_no_attempt() -> None:
    driver = Driver(attempts=1).tell(joined("a0", "A"), joined("a1", "A"), submitted(gpu_types=["A"]))
    [run] = driver.next_round()
    driver.tell(joined(run.node_id, "B", life="2"))
    [fact] = driver.all(ProfileFailed)
    assert (fact.gpu_type, fact.final) == ("A", False)
    [again] = driver.next_round()
    assert again.node_id != run.node_id


def test_a_run_planned_while_its_node_came_back_with_other_gpus_counts_as_no_attempt() -> None:
    """The node's fact is in the stream before the round that the profiler opened without it."""
    driver = Driver(attempts=1).tell(joined("a0", "A"), joined("a1", "A"), submitted(gpu_types=["A"]))
    [opened] = [each.event for each in driver.core.wake(0.0) if isinstance(each, Publish)]
    assert isinstance(opened, ProfilingPlanned)
    [run] = opened.runs
    driver.tell(joined(run.node_id, "B", life="2"), opened, measured(replace(run, gpu_type=GpuType("B"))))
    assert [(fact.gpu_type, fact.final) for fact in driver.all(ProfileFailed)] == [("A", False)]
    assert [again.node_id for again in driver.next_round()] == [{"a0": "a1", "a1": "a0"}[run.node_id]]


def test_a_lost_node_ends_its_runs_without_counting_them() -> None:
    driver = Driver(attempts=1).tell(joined("a0"), joined("a1"), submitted())
    [run] = driver.next_round()
    driver.tell(lost(run.node_id))
    assert [fact.final for fact in driver.all(ProfileFailed)] == [False]
    assert [again.node_id for again in driver.next_round()] == ["a1"]


def test_a_run_is_made_again_after_its_agent_restarted() -> None:
    driver = Driver(attempts=1).tell(joined("a0"), submitted())
    [run] = driver.next_round()
    driver.tell(started("a0", run.placement_id), joined("a0", life="2"))
    assert driver.all(ProfileFailed)[0].reason == "the agent restarted"
    assert len(driver.next_round()) == 1


def test_a_run_whose_agent_restarted_before_it_began_is_made_again() -> None:
    """No life of an agent does what was ordered to an earlier one."""
    driver = Driver(attempts=1).tell(joined("a0"), submitted())
    [run] = driver.next_round()
    driver.tell(ordered(run), joined("a0", life="2"))
    [failed] = driver.all(ProfileFailed)
    assert (failed.reason, failed.final) == ("the agent restarted", False)
    assert len(driver.next_round()) == 1


def test_a_run_that_the_agent_s_new_life_is_yet_to_be_ordered_goes_on() -> None:
    driver = Driver().tell(joined("a0"), submitted())
    [run] = driver.next_round()
    driver.tell(joined("a0", life="2"), ordered(run), started("a0", run.placement_id))
    assert not driver.all(ProfileFailed)


def test_a_run_that_survived_its_agent_goes_on() -> None:
    driver = Driver().tell(joined("a0"), submitted())
    [run] = driver.next_round()
    driver.tell(started("a0", run.placement_id), joined("a0", life="2", workers=(run.placement_id,)))
    assert not driver.all(ProfileFailed)


def test_a_refused_run_is_planned_again() -> None:
    driver = Driver(attempts=1).tell(joined(), submitted())
    [run] = driver.next_round()
    refusal = PlacementRefused(
        at=5.0, placement_id=run.placement_id, plan_id=PlanId(""), job_id=run.job_id, reason="drained"
    )
    driver.tell(refusal)
    assert len(driver.next_round()) == 1


def test_a_worker_that_dies_without_numbers_counts_as_an_attempt() -> None:
    driver = Driver(attempts=1).tell(joined(), submitted())
    [run] = driver.next_round()
    driver.tell(started("a0", run.placement_id), stopped(run, Outcome.FAILED, "exit code 1"))
    assert "exit code 1" in driver.all(JobRejected)[0].reason


def test_a_cancelled_job_is_dropped_with_its_runs() -> None:
    driver = Driver().tell(joined(), submitted())
    driver.next_round()
    driver.tell(cancelled())
    assert driver.all(ProfileFailed)[0].reason == "the job has ended"
    assert driver.next_round() == ()
    assert not driver.core.state.runs


def test_numbers_of_a_cancelled_job_serve_the_next_one() -> None:
    driver = Driver().tell(joined(), joined("b0", "B"), submitted("j1"))
    first, _ = driver.next_round()
    driver.tell(measured(first), cancelled("j1"), submitted("j2", gpu_types=["A"]))
    assert driver.all(JobProfiled)[-1].known


def test_a_type_a_job_names_is_waited_for_and_then_left_out() -> None:
    driver = Driver(attempts=2).tell(joined("a0", "A"), joined("b0", "B"), lost("b0"))
    driver.tell(submitted(gpu_types=["A", "B"]))
    [run] = driver.next_round()
    driver.tell(measured(run))
    assert not driver.all(JobProfiled)
    driver.next_round()
    [profiled] = driver.all(JobProfiled)
    assert profiled.unusable == {"B": "no node of this type can take a measurement"}


def test_a_type_that_the_job_does_not_name_is_not_waited_for() -> None:
    driver = Driver().tell(joined("a0", "A"), joined("b0", "B"), lost("b0"), submitted())
    driver.tell(*(measured(run) for run in driver.next_round()))
    assert list(driver.all(JobProfiled)[0].modules) == ["A"]


def test_a_job_is_not_rejected_because_all_its_nodes_are_away() -> None:
    driver = Driver(attempts=1).tell(joined("a0", "A"), lost("a0"), submitted(gpu_types=["A"]))
    driver.until(10 * ROUND_S)
    assert not driver.all(JobRejected)
    driver.tell(NodeReturned(at=1.0, node_id=NodeId("a0")))
    assert len(driver.next_round()) == 1


def test_nothing_is_measured_on_a_drained_node() -> None:
    driver = Driver().tell(joined("a0"), joined("a1"), NodeDrained(at=1.0, node_id=NodeId("a0")), submitted())
    assert [run.node_id for run in driver.next_round()] == ["a1"]


def test_a_fit_that_fails_falls_back_to_one_component() -> None:
    core = Profiler(round_s=ROUND_S, timeout_s=600, attempts=3)
    for fact in (joined(), submitted()):
        core.handle(fact, 0.0)
    [planned] = core.resume(0.0)
    assert isinstance(planned, Publish)
    assert isinstance(planned.event, ProfilingPlanned)
    core.handle(planned.event, 0.0)
    [work] = core.handle(measured(planned.event.runs[0]), 0.0)
    assert isinstance(work, Work)
    assert isinstance(work.task, Fit)
    [verdict] = core.handle(WorkFailed(work.task, "TimeoutError"), 0.0)
    assert isinstance(verdict, Publish)
    assert isinstance(verdict.event, JobProfiled)
    assert len(verdict.event.modules["A"].data) == 1  # type: ignore[index]


def test_a_replay_after_a_restart_finishes_open_measurements() -> None:
    driver = Driver().tell(joined("a0", "A"), joined("b0", "B"), submitted())
    first, second = driver.next_round()
    driver.tell(measured(first))
    restarted = Profiler(round_s=ROUND_S, timeout_s=600, attempts=3)
    for fact in driver.stream:
        restarted.handle(fact, fact.at)  # the effects are dropped
    again = Driver(restarted)
    again.perform(restarted.resume(10.0))
    again.tell(measured(second))
    assert sorted(again.all(JobProfiled)[0].modules) == ["A", "B"]


def test_the_state_survives_a_snapshot() -> None:
    driver = Driver().tell(joined("a0", "A"), joined("b0", "B"), submitted())
    first, _ = driver.next_round()
    driver.tell(measured(first))
    blob = msgspec.msgpack.encode(driver.core.state)
    assert msgspec.msgpack.decode(blob, type=State) == driver.core.state


def test_a_failure_seen_only_in_the_replay_is_published_at_resume() -> None:
    driver = Driver().tell(joined("a0"), submitted())
    [run] = driver.next_round()
    driver.core.handle(lost("a0"), 1.0)  # and the process dies before its effects are out
    failures = [
        effect.event
        for effect in driver.core.resume(2.0)
        if isinstance(effect, Publish) and isinstance(effect.event, ProfileFailed)
    ]
    assert [fact.placement_id for fact in failures] == [run.placement_id]


# ---- somebody else's loading times


def test_loading_times_are_fitted_on_request() -> None:
    core, times = (
        Profiler(round_s=ROUND_S, timeout_s=600, attempts=3),
        (0.1, 0.11, 0.1, 0.09) * 8 + (2.0,) * 8,
    )
    [work] = core.handle(Asked(3, FitLoading(data_s=times)), 0.0)
    assert isinstance(work, Work)
    assert isinstance(work.task, FitTimes)
    [reply] = core.handle(fit_times(work.task), 0.0)
    assert isinstance(reply, Reply)
    assert isinstance(reply.message, FittedLoading)
    assert [mode.probability for mode in reply.message.data] == [0.8, 0.2]


def test_invalid_loading_times_are_refused() -> None:
    core = Profiler(round_s=ROUND_S, timeout_s=600, attempts=3)
    for times in ((), (-1.0,), (float("nan"),)):
        [reply] = core.handle(Asked(3, FitLoading(data_s=times)), 0.0)
        assert isinstance(reply, Reply)
        assert isinstance(reply.message, Refused)


def test_a_failed_fit_is_refused_with_the_reason() -> None:
    core = Profiler(round_s=ROUND_S, timeout_s=600, attempts=3)
    failed_fit = WorkFailed(FitTimes(3, (0.1,)), "no memory")
    assert core.handle(failed_fit, 0.0) == [Reply(3, Refused(reason="no memory"))]


@pytest.mark.parametrize("round_s", [2 * ROUND_S, ROUND_S / 2, 250.0])
def test_rounds_go_on_after_a_restart_with_rounds_of_another_length(round_s: float) -> None:
    """Each is opened once, at its boundary, and under a number that no earlier one has."""
    earlier = Driver().tell(joined(), submitted("j1")).until(1_000 * ROUND_S + 5.0)
    driver = Driver(round_s=round_s).after(earlier)
    driver.until(earlier.now + 10 * round_s)
    opened = driver.all(ProfilingPlanned)
    late = opened[0].at == earlier.now  # rounds have become shorter
    assert len(opened) == 10 + late
    assert [fact.at % round_s for fact in opened[late:]] == pytest.approx([0.0] * 10, abs=1e-6)
    numbers = [earlier.core.state.round, *(fact.round for fact in opened)]
    assert numbers == sorted(set(numbers))


@pytest.mark.parametrize("every_job", [True, False])
def test_whether_known_workloads_are_measured_may_change_with_a_restart(every_job: bool) -> None:  # noqa: FBT001
    earlier = Driver(every_job=not every_job).tell(joined(), submitted("j1"), submitted("j2"))
    first = earlier.next_round()[0]
    earlier.tell(measured(first))
    driver = Driver(every_job=every_job).after(earlier)
    driver.tell(submitted("j3"), submitted("j4"))
    driver.tell(*(measured(run) for run in driver.next_round()))
    known = {fact.job_id: fact.known for fact in (*earlier.all(JobProfiled), *driver.all(JobProfiled))}
    assert (known[JobId("j3")], known[JobId("j4")]) == (False, not every_job)
    assert not driver.core.state.jobs.keys() & {"j1", "j3", "j4"}
