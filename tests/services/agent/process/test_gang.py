"""The gang as a state machine: no process, no clock, no socket."""

import signal
from collections.abc import Iterator

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas import placement
from schemas.events import StartOrdered
from schemas.ids import NodeId
from services.agent.process.gang import messages
from services.agent.process.gang.effects import (
    Actions,
    Kill,
    PrintLine,
    SendLastReport,
    SendLine,
    SendReport,
    SetTimer,
    Spawn,
    Terminate,
    Timer,
)
from services.agent.process.gang.machine import LAST_WORDS_S, NO_COPY, NO_TASKS, Gang, GangState
from services.agent.process.gang.verdicts import MemoryState, ProcessEnd
from services.agent.tasks import (
    Completed,
    Failed,
    Interrupted,
    LastReport,
    Observed,
    Profiled,
    Saved,
    Started,
    Stopped,
)
from tests.services.agent.agent_bench import HERE, node, start
from tests.services.agent.process.process_bench import P1, order

CLEAN, KILLED = ProcessEnd(code=0), ProcessEnd(signal=signal.SIGKILL)
BEFORE = NodeId("a")


def a_gang(of: StartOrdered | None = None, *, has_plugin: bool = True, port: int | None = None) -> Gang:
    return Gang(of or order(gpus=2), has_plugin=has_plugin, host="h", port=port, observe_every_s=10.0)


def trained(of: StartOrdered | None = None) -> Gang:
    gang = a_gang(of)
    gang.begin()
    for rank in gang.ranks:
        gang.heard(rank, messages.Hello(P1, rank, 1, attached=True))
        gang.heard(rank, messages.Up(port=7 if rank == 0 else None, samples=40.0, elastic=True))
    gang.train("h:7")
    return gang


def last_of(actions: Actions) -> LastReport | None:
    return next((action.report for action in actions if isinstance(action, SendLastReport)), None)


def test_a_gang_is_up_once_all_its_ranks_are() -> None:
    gang = a_gang()
    assert gang.begin() == [Spawn("")]
    assert gang.heard(1, messages.Up(samples=40.0)) == []
    assert gang.heard(0, messages.Up(port=7, samples=40.0)) == [SendReport(Started(P1, "h:7", 40.0))]
    assert gang.train("h:7") == [SendLine(messages.go("h:7"))]
    assert gang.train("h:7") == []


def test_a_follower_has_the_ranks_after_those_before_it_and_no_meeting() -> None:
    gang = a_gang(start(gang=[(node(BEFORE), 3), (node(HERE), 2)]))
    assert list(gang.ranks) == [3, 4]
    gang.heard(3, messages.Up())
    assert gang.heard(4, messages.Up(samples=8.0)) == [SendReport(Started(P1, "", 8.0))]


def test_a_rank_that_reconnects_gets_its_last_order_again() -> None:
    gang = trained()
    assert gang.heard(1, messages.Hello(P1, 1, 1, attached=True)) == [SendLine(messages.go("h:7"), 1)]
    gang.stop()
    assert gang.heard(1, messages.Hello(P1, 1, 1, attached=True)) == [SendLine(messages.stop(), 1)]


def test_a_stop_lasts_as_long_as_its_job_asks_and_at_least_as_long_as_saving_takes() -> None:
    gang = trained(order(grace_s=4.0))
    gang.heard(0, messages.SavedMessage(80.0, seconds=10.0))
    assert gang.stop() == [SendLine(messages.stop()), Terminate(), SetTimer(Timer.GRACE, 22.5)]
    assert gang.stop() == []
    assert gang.timer_fired(Timer.GRACE) == [Kill()]
    assert last_of(gang.ended(0, KILLED)) == Stopped(P1, 80.0)


def test_one_bad_end_gives_the_others_a_moment() -> None:
    gang = trained()
    assert gang.ended(1, ProcessEnd(code=3, lines=("a", "b"))) == [SetTimer(Timer.LAST_WORDS, LAST_WORDS_S)]
    assert gang.timer_fired(Timer.LAST_WORDS) == [Kill()]
    assert last_of(gang.ended(0, KILLED)) == Failed(P1, "rank 1 ended with exit code 3\na\nb", exit_code=3)


def test_a_good_end_lets_the_others_go_on() -> None:
    gang = trained()
    gang.heard(1, messages.CompletedMessage(1_000.0))
    assert gang.ended(1, CLEAN) == []
    gang.heard(0, messages.CompletedMessage(1_000.0))
    assert last_of(gang.ended(0, CLEAN)) == Completed(P1, 1_000.0)


def test_a_lost_peer_that_had_ended_without_an_error_is_named() -> None:
    gang = a_gang()
    gang.begin()
    gang.ended(1, CLEAN)
    gang.heard(0, messages.LostMessage("it lost a peer: connection closed"))
    last = last_of(gang.ended(0, ProcessEnd(code=75, lines=("step 20",))))
    assert isinstance(last, Interrupted)
    assert last.reason.splitlines() == [
        "rank 0 was interrupted: it lost a peer: connection closed",
        "rank 1 had ended before, without an error",
        "step 20",
    ]


def test_a_rank_s_own_failure_is_reported_rather_than_its_peer_s_lost_connection() -> None:
    gang = trained()
    gang.heard(0, messages.LostMessage("connection closed by peer"))
    gang.ended(0, ProcessEnd(code=75))
    gang.heard(1, messages.FailedMessage("KeyError: 'x'"))
    assert last_of(gang.ended(1, ProcessEnd(code=1))) == Failed(
        P1, "rank 1 failed: KeyError: 'x'", exit_code=1
    )


def test_the_rank_that_was_killed_first_explains_later_failures() -> None:
    gang = trained()
    gang.heard(0, messages.SavedMessage(80.0))
    gang.ended(1, KILLED)
    last = last_of(gang.ended(0, ProcessEnd(code=1)))
    assert last == Interrupted(P1, "rank 1 was ended by SIGKILL", 80.0, None, signal.SIGKILL)


@pytest.mark.parametrize(
    ("end", "kind"),
    [
        (ProcessEnd(signal=signal.SIGKILL, memory=MemoryState.NODE_FULL), Interrupted),
        (ProcessEnd(signal=signal.SIGKILL, memory=MemoryState.OVER_LIMIT), Failed),
        (ProcessEnd(code=1, disk_full="/run"), Interrupted),
        (ProcessEnd(code=137), Interrupted),
        (ProcessEnd(code=143), Interrupted),
        (ProcessEnd(code=130), Failed),
        (ProcessEnd(), Interrupted),
    ],
)
def test_the_end_of_a_rank_is_a_failure_or_an_interruption(end: ProcessEnd, kind: type) -> None:
    assert isinstance(last_of(trained(order()).ended(0, end)), kind)


def test_a_rank_stopped_without_an_order_is_interrupted_with_what_it_saved() -> None:
    gang = trained(order())
    gang.heard(0, messages.StoppedMessage(160.0))
    last = last_of(gang.ended(0, CLEAN))
    assert isinstance(last, Interrupted)
    assert last.samples_done == 160.0


def test_a_stop_beside_a_failure_does_not_hide_it() -> None:
    gang = trained()
    gang.stop()
    gang.heard(1, messages.FailedMessage("ValueError"))
    gang.ended(1, ProcessEnd(code=1))
    assert isinstance(last_of(gang.ended(0, KILLED)), Failed)


def test_a_stop_before_the_start_starts_no_rank() -> None:
    gang = a_gang(order(samples_done=8.0))
    assert last_of(gang.stop()) == Stopped(P1, 8.0)
    assert gang.begin() == []


def test_a_measurement_out_of_gpu_memory_is_a_lasting_failure() -> None:
    gang = a_gang(order(profile_iterations=10))
    gang.begin()
    gang.heard(0, messages.FailedMessage("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate"))
    last = last_of(gang.ended(0, ProcessEnd(code=1)))
    assert isinstance(last, Failed)
    assert last.lasting
    assert last.whole_workload


def test_a_measurement_beyond_the_job_s_own_memory_says_nothing_of_other_jobs() -> None:
    gang = trained(order(profile_iterations=10))
    last = last_of(gang.ended(0, ProcessEnd(signal=signal.SIGKILL, memory=MemoryState.OVER_LIMIT)))
    assert isinstance(last, Failed)
    assert (last.lasting, last.whole_workload) == (True, False)


NO_SCRIPT = ProcessEnd(
    code=2, lines=("python: can't open file '/a.py': [Errno 2] No such file or directory",)
)


@pytest.mark.parametrize(
    ("end", "absent"),
    [
        (ProcessEnd(code=127), True),
        (ProcessEnd(code=126), True),
        (NO_SCRIPT, True),
        (ProcessEnd(code=2, lines=("usage: train.py [-h]",)), False),
        (ProcessEnd(code=125), False),
        (ProcessEnd(code=1), False),
    ],
)
def test_a_measurement_whose_program_is_missing_says_so(end: ProcessEnd, *, absent: bool) -> None:
    gang = a_gang(order(profile_iterations=10))
    gang.begin()
    last = last_of(gang.ended(0, end))
    assert isinstance(last, Failed)
    assert last.absent == absent


def test_an_exit_code_of_a_job_that_was_up_is_its_own() -> None:
    gang = a_gang(order(profile_iterations=10))
    gang.begin()
    gang.heard(0, messages.Up(samples=0.0))
    last = last_of(gang.ended(0, ProcessEnd(code=127)))
    assert isinstance(last, Failed)
    assert not last.absent


def test_an_image_that_is_not_there_is_one_of_these() -> None:
    gang = a_gang(order(profile_iterations=10, image="nowhere/none"))
    gang.begin()
    last = last_of(gang.ended(0, ProcessEnd(code=125)))
    assert isinstance(last, Failed)
    assert last.absent


def test_a_measurement_reports_its_times_and_does_not_wait_for_a_gang() -> None:
    gang = a_gang(order(profile_iterations=2))
    gang.begin()
    assert gang.heard(0, messages.Up(samples=0.0)) == [SendReport(Started(P1, "", None))]
    two = (0.1, 0.2)
    gang.heard(
        0,
        messages.ProfiledMessage(
            two, two, two, two, two, 9.0, modes=("proportional", "lockstep", "unheard-of")
        ),
    )
    last = last_of(gang.ended(0, CLEAN))
    assert isinstance(last, Profiled)
    assert last.measured.parameters == 9.0
    assert last.measured.modes == ("lockstep", "proportional"), "those that there are"


def test_a_script_of_a_later_plug_in_that_names_no_mode_that_there_is_trains_in_lockstep_alone() -> None:
    gang = a_gang(order(profile_iterations=2))
    gang.begin()
    gang.heard(0, messages.Up(samples=0.0))
    two = (0.1, 0.2)
    gang.heard(0, messages.ProfiledMessage(two, two, two, two, two, 9.0, modes=("unheard-of",)))
    last = last_of(gang.ended(0, CLEAN))
    assert isinstance(last, Profiled)
    assert last.measured.modes == ("lockstep",)


def test_a_rigid_script_that_ends_well_is_complete() -> None:
    gang = a_gang(order())
    gang.begin()
    gang.heard(0, messages.Hello(P1, 0, 1))
    gang.heard(0, messages.Up(samples=0.0))
    gang.train("")
    assert last_of(gang.ended(0, CLEAN)) == Completed(P1, 1_000.0)


def test_a_rigid_script_that_ends_well_after_an_order_to_stop_is_not_complete() -> None:
    """It may have saved on SIGTERM, as it is advised to."""
    gang = a_gang(order())
    gang.begin()
    gang.heard(0, messages.Hello(P1, 0, 1))
    gang.heard(0, messages.Up(samples=0.0))
    gang.train("")
    gang.stop()
    gang.heard(0, messages.CompletedMessage(samples=320.0))
    gang.heard(0, messages.CompletedMessage(samples=320.0))
    assert last_of(gang.ended(0, CLEAN)) == Stopped(P1, 0.0)


def test_a_rigid_script_that_was_complete_before_the_order_to_stop_stays_so() -> None:
    """A job that was complete ran again from its first sample. The file repeats what the connection said."""
    gang = a_gang(order())
    gang.begin()
    gang.heard(0, messages.Hello(P1, 0, 1))
    gang.heard(0, messages.Up(samples=0.0))
    gang.train("")
    gang.heard(0, messages.CompletedMessage(samples=320.0))
    gang.stop()
    gang.heard(0, messages.CompletedMessage(samples=320.0))
    assert last_of(gang.ended(0, CLEAN)) == Completed(P1, 1_000.0)


def test_of_an_elastic_script_that_ends_by_itself_it_is_reported_after_how_many_samples() -> None:
    gang = trained(order())
    gang.heard(0, messages.CompletedMessage(samples=320.0))
    assert last_of(gang.ended(0, CLEAN)) == Completed(P1, 1_000.0, samples_trained=320.0)


def test_an_elastic_script_may_complete_after_an_order_to_stop() -> None:
    gang = trained(order())
    gang.heard(0, messages.Hello(P1, 0, 1, attached=True))
    gang.stop()
    gang.heard(0, messages.CompletedMessage(samples=1_000.0))
    assert last_of(gang.ended(0, CLEAN)) == Completed(P1, 1_000.0)


def test_an_elastic_script_that_ends_well_after_an_order_to_stop_is_complete_if_it_did_all() -> None:
    """It may end itself on SIGTERM, by a handler that it has set after `attach`."""
    gang = trained(order())
    gang.stop()
    gang.heard(0, messages.CompletedMessage(samples=320.0))
    gang.heard(0, messages.CompletedMessage(samples=320.0))
    assert last_of(gang.ended(0, CLEAN)) == Stopped(P1, 40.0)


def test_a_copy_that_is_complete_has_done_its_share() -> None:
    gang = trained(msgspec.structs.replace(order(), until=320.0))
    gang.heard(0, messages.CompletedMessage(samples=320.0))
    assert last_of(gang.ended(0, CLEAN)) == Completed(P1, 320.0)


def test_a_command_without_the_plugin_trains_no_share() -> None:
    """It would train all of its job, on every node."""
    last = last_of(a_gang(msgspec.structs.replace(order(), until=320.0), has_plugin=False).begin())
    assert isinstance(last, Failed)
    assert NO_COPY in last.reason


def test_a_command_without_the_plugin_computes_one_batch_at_a_time() -> None:
    of = placement.Gang.of({HERE: 1}, placement.Relaxed(tasks=((3,),)))
    last = last_of(a_gang(msgspec.structs.replace(order(), gang=of), has_plugin=False).begin())
    assert isinstance(last, Failed)
    assert NO_TASKS in last.reason


def test_a_script_that_attaches_after_it_was_up_says_what_it_restored() -> None:
    gang = a_gang(msgspec.structs.replace(order(), until=320.0))
    gang.begin()
    gang.heard(0, messages.Hello(P1, 0, 1))
    gang.heard(0, messages.Up(samples=120.0))
    gang.train("")
    gang.heard(0, messages.Up(samples=80.0, elastic=True))
    assert gang.ranks[0].attached
    assert gang.state is GangState.TRAINING
    gang.stop()
    assert last_of(gang.ended(0, KILLED)) == Stopped(P1, 80.0)


def test_damaged_and_unwritten_checkpoints_are_reported_in_the_output() -> None:
    gang = trained(order())
    assert isinstance(gang.heard(0, messages.DamagedMessage("80.pt", "bad magic"))[0], PrintLine)
    assert isinstance(gang.heard(0, messages.UnsavedMessage("No space left on device"))[0], PrintLine)
    assert gang.heard(0, messages.SavedMessage(80.0, why="stop")) == []
    assert gang.heard(0, messages.SavedMessage(80.0)) == [SendReport(Saved(P1, 80.0))]


def test_observations_last_as_long_as_all_before_them() -> None:
    gang = trained()
    ran = messages.ObservedMessage(0.0, 5.0, 50.0, 16.0, ((0.1,), (0.2,)), ((0.0,), (0.3,)))
    seen = [
        action.report for _ in range(8) for action in gang.heard(0, ran) if isinstance(action, SendReport)
    ]
    assert [one.seconds for one in seen if isinstance(one, Observed)] == [10.0, 10.0, 20.0]
    first = seen[0]
    assert isinstance(first, Observed)
    assert first.stretch.throughput == 160.0
    assert first.stretch.data_s == {HERE: (0.1, 0.1, 0.2, 0.2)}
    assert first.stretch.wait_s == {HERE: (0.0, 0.0, 0.3, 0.3)}


def test_lines_that_are_no_words_are_named_and_later_words_passed_over() -> None:
    assert messages.message_in(b'{"tomorrow": {}}') is None
    assert messages.message_in(b'{"stopped": {"samples": 3, "more": 1}}') == messages.StoppedMessage(3.0)
    for line in (b"", b"{", b"[]", b'{"hello": {}}', b'{"up": 3}', b"\xff"):
        with pytest.raises(messages.NotAMessage):
            messages.message_in(line)
        assert messages.message_in_file(line) is None


# ---- whatever happens

WORDS = st.sampled_from(
    [
        messages.Hello(P1, 0, 1, attached=True),
        messages.Up(port=1, samples=0.0, elastic=True),
        messages.SavedMessage(8.0, 0.1),
        messages.ObservedMessage(8.0, 0.5, 5, 16),
        messages.StoppedMessage(8.0),
        messages.CompletedMessage(1_000.0),
        messages.FailedMessage("x"),
        messages.LostMessage("y"),
    ]
)
ENDS = st.sampled_from([CLEAN, KILLED, ProcessEnd(code=1), ProcessEnd(), ProcessEnd(code=75)])
HAPPENINGS = st.one_of(
    st.tuples(st.just("heard"), st.integers(0, 1), WORDS),
    st.tuples(st.just("train"), st.just("h:1")),
    st.tuples(st.just("stop")),
    st.tuples(st.just("timer_fired"), st.sampled_from(list(Timer))),
)


@settings(max_examples=300)
@given(st.lists(HAPPENINGS, max_size=12), st.permutations([0, 1]), st.tuples(ENDS, ENDS))
def test_every_gang_has_one_last_report_once_its_ranks_have_ended(
    happenings: list[tuple[object, ...]], ranks: list[int], ends: tuple[ProcessEnd, ProcessEnd]
) -> None:
    gang = a_gang()
    reports = list(_lasts(gang.begin()))
    for name, *arguments in happenings:
        reports += _lasts(getattr(gang, str(name))(*arguments))
    assert reports == []
    for rank in ranks:
        reports += _lasts(gang.ended(rank, ends[rank]))
    assert len(reports) == 1
    assert gang.state is GangState.GONE


def _lasts(actions: Actions) -> Iterator[LastReport]:
    return (action.report for action in actions if isinstance(action, SendLastReport))
