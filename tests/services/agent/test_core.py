"""The agent's core: what it makes of orders and of what the runner reports."""

import msgspec
import pytest

from schemas.calibration import AllReduceMeeting, Ring
from schemas.cluster import Node
from schemas.events import (
    NodeJoined,
    Outcome,
    ProfileFailed,
    ProfileMeasured,
    WorkerCheckpointed,
    WorkerStarted,
    WorkerStopped,
)
from schemas.ids import JobId, NodeId, PlacementId
from schemas.measurements import Measured, Stretch
from schemas.output import OutputPage
from schemas.placement import Lockstep
from schemas.questions import JoinAllReduce, OpenAllReduce, ReadOutput, Refused
from schemas.samples import ThroughputObserved
from services.agent.core import Agent, Superseded
from services.agent.folds import ENDED_REMEMBERED
from services.agent.state import State, WorkerState
from services.agent.tasks import (
    AllReducesTimed,
    Completed,
    Failed,
    GpusSeen,
    Interrupted,
    LinesRead,
    Observed,
    Profiled,
    ReadLines,
    Saved,
    Started,
    StartWorker,
    Stopped,
    StopWorker,
    TimeAllReduces,
    TrainWorker,
)
from shared.domain.core import Asked, Publish, Reply, Work, WorkFailed
from tests.services.agent.agent_bench import (
    HERE,
    LIFE,
    MODES,
    THERE,
    Bench,
    formed,
    joined,
    node,
    only,
    start,
    stop,
)

P1 = PlacementId("p1")


def up(bench: Bench, name: str = "p1", gpus: int = 1) -> None:
    bench.tell(start(name, gpus=gpus))
    bench.tell(Started(PlacementId(name)))


def test_a_life_begins_with_an_empty_node() -> None:
    facts = Bench().log
    assert facts == [joined(LIFE)]


def test_an_order_claims_the_lowest_free_gpus_and_starts_the_processes() -> None:
    bench = Bench()
    up(bench, "p0", gpus=1)
    order = start(gpus=2)
    assert bench.tell(order) == []
    assert bench.work[-1] == StartWorker(order, (1, 2))


def test_a_worker_has_started_once_its_processes_are_up() -> None:
    bench = Bench()
    bench.tell(start(gpus=2))
    fact = only(bench.tell(Started(P1), at=10.0), WorkerStarted)
    assert (fact.gpu_indices, fact.at) == ((0, 1), 10.0)


def test_the_same_order_again_changes_nothing() -> None:
    bench = Bench()
    up(bench)
    before = msgspec.msgpack.encode(bench.core.state)
    assert bench.tell(start()) == []
    assert len(bench.work) == 1
    assert msgspec.msgpack.encode(bench.core.state) == before


def test_an_order_for_more_gpus_than_are_free_is_refused() -> None:
    bench = Bench(gpus=4)
    up(bench, gpus=3)
    fact = only(bench.tell(start("p2", gpus=2)), WorkerStopped)
    assert (fact.outcome, fact.leads) == (Outcome.REFUSED, False)
    assert fact.reason == "2 GPUs wanted, 1 free"


def test_a_refused_placement_never_starts_later() -> None:
    bench = Bench(gpus=1)
    up(bench)
    bench.tell(start("p2"))
    bench.tell(Completed(P1, 1_000.0))
    assert bench.tell(start("p2")) == []
    assert bench.owners() == {}


def test_a_placement_that_ended_here_does_not_start_again() -> None:
    bench = Bench()
    up(bench)
    bench.tell(Stopped(P1, 50.0))
    assert bench.tell(start()) == []
    assert len(bench.work) == 1


def test_the_leader_trains_once_the_gang_has_formed() -> None:
    bench = Bench()
    up(bench)
    assert TrainWorker(P1) not in bench.work
    bench.tell(formed())
    assert bench.work[-1] == TrainWorker(P1)


def test_processes_that_have_to_meet_are_ordered_to_where() -> None:
    bench = Bench()
    bench.tell(start(gpus=2))
    fact = only(bench.tell(Started(P1, meeting="10.0.0.1:29500", samples_restored=400.0)), WorkerStarted)
    assert (fact.meeting, fact.samples_restored) == ("10.0.0.1:29500", 400.0)
    bench.tell(formed(meeting=fact.meeting))
    assert bench.work[-1] == TrainWorker(P1, "10.0.0.1:29500")


def test_a_gang_forms_once() -> None:
    bench = Bench()
    up(bench)
    bench.tell(formed())
    bench.tell(formed())
    assert bench.work.count(TrainWorker(P1)) == 1


def test_a_stop_is_handed_to_the_runner_once() -> None:
    bench = Bench()
    up(bench)
    bench.tell(stop())
    assert bench.tell(stop()) == []
    assert bench.work.count(StopWorker(P1)) == 1


def test_a_stop_while_starting_leaves_no_started_worker_behind() -> None:
    bench = Bench()
    bench.tell(start())
    bench.tell(stop())
    assert bench.tell(Started(P1)) == []
    fact = only(bench.tell(Stopped(P1, 0.0)), WorkerStopped)
    assert fact.outcome is Outcome.CHECKPOINTED
    assert bench.owners() == {}


def test_a_gang_that_forms_while_its_leader_stops_does_not_train() -> None:
    bench = Bench()
    up(bench)
    bench.tell(stop())
    bench.tell(formed())
    assert TrainWorker(P1) not in bench.work


def test_a_stop_of_an_unknown_placement_is_answered_without_samples() -> None:
    fact = only(Bench().tell(stop()), WorkerStopped)
    assert (fact.outcome, fact.samples_done, fact.leads) == (Outcome.CHECKPOINTED, 0.0, False)


def test_the_answer_to_a_late_stop_is_the_fact_that_was_published() -> None:
    bench = Bench()
    up(bench)
    end = only(bench.tell(Completed(P1, 1_000.0)), WorkerStopped)
    assert only(bench.tell(stop()), WorkerStopped).event_id == end.event_id


def test_the_end_of_a_script_that_ended_by_itself_says_after_how_many_samples() -> None:
    bench = Bench()
    up(bench)
    end = only(bench.tell(Completed(P1, 1_000.0, samples_trained=320.0)), WorkerStopped)
    assert (end.outcome, end.samples_done, end.samples_trained) == (Outcome.COMPLETED, 1_000.0, 320.0)
    assert end.reason.startswith("its script ended by itself after 320 of ")


def test_gpus_are_free_only_when_the_end_is_in_the_stream() -> None:
    bench = Bench(gpus=1)
    up(bench)
    bench.core.handle(Completed(P1, 1_000.0), 0.0)
    assert bench.owners() == {0: P1}


def test_a_stopped_leader_reports_the_samples_in_its_checkpoint() -> None:
    bench = Bench()
    up(bench)
    bench.tell(formed())
    bench.tell(stop())
    fact = only(bench.tell(Stopped(P1, 70.0)), WorkerStopped)
    assert (fact.outcome, fact.samples_done, fact.leads) == (Outcome.CHECKPOINTED, 70.0, True)


def test_a_follower_s_samples_do_not_count() -> None:
    bench = Bench()
    bench.tell(start(gang=[(node(NodeId("ahead")), 1), (node(), 2)]))
    bench.tell(Started(P1))
    bench.tell(stop())
    assert not only(bench.tell(Stopped(P1, 0.0)), WorkerStopped).leads


def test_a_complete_job_says_so() -> None:
    bench = Bench()
    up(bench)
    bench.tell(formed())
    fact = only(bench.tell(Completed(P1, 1_000.0)), WorkerStopped)
    assert (fact.outcome, fact.samples_done, fact.leads) == (Outcome.COMPLETED, 1_000.0, True)


def test_a_process_that_fails_says_why() -> None:
    bench = Bench()
    up(bench)
    fact = only(bench.tell(Failed(P1, "exit code 1", exit_code=1)), WorkerStopped)
    assert (fact.outcome, fact.reason, fact.exit_code) == (Outcome.FAILED, "exit code 1", 1)


def test_a_process_that_is_interrupted_says_by_what() -> None:
    bench = Bench()
    up(bench)
    fact = only(bench.tell(Interrupted(P1, "killed", samples_done=70.0, signal=9)), WorkerStopped)
    assert (fact.outcome, fact.reason, fact.signal) == (Outcome.INTERRUPTED, "killed", 9)
    assert fact.samples_done == 70.0


@pytest.mark.parametrize(("restored", "counted"), [(None, 500.0), (400.0, 400.0)])
def test_without_a_checkpoint_of_its_own_a_run_ends_where_it_began(
    restored: float | None, counted: float
) -> None:
    bench = Bench()
    bench.tell(start(samples_done=500.0))
    bench.tell(Started(P1, samples_restored=restored))
    assert only(bench.tell(Interrupted(P1, "killed")), WorkerStopped).samples_done == counted


def test_processes_that_cannot_be_started_are_interrupted() -> None:
    bench = Bench()
    order = start()
    bench.tell(order)
    fact = only(
        bench.perform(bench.core.handle(WorkFailed(StartWorker(order, (0,)), "EMFILE"), 0.0)), WorkerStopped
    )
    assert (fact.outcome, fact.reason) == (Outcome.INTERRUPTED, "could not be started: EMFILE")


def test_a_periodic_checkpoint_is_published() -> None:
    bench = Bench()
    up(bench)
    assert only(bench.tell(Saved(P1, 40.0)), WorkerCheckpointed).samples_done == 40.0


def test_a_stretch_is_sent_for_every_node_of_the_gang() -> None:
    bench = Bench()
    gang = [(node(), 1), (node(THERE), 3)]
    bench.tell(start(gang=gang))
    stretch = Stretch(throughput=8.0, data_s={HERE: (0.1,), THERE: (0.2,)}, wait_s={HERE: (0.3,)})
    bench.tell(Observed(P1, 120.0, stretch), at=150.0)
    here, there = bench.sent
    assert isinstance(here, ThroughputObserved)
    assert isinstance(there, ThroughputObserved)
    assert (here.node_id, here.gpus_on_node, here.throughput, here.data_s) == (HERE, 1, 2.0, (0.1,))
    assert (there.node_id, there.gpus_on_node, there.throughput, there.wait_s) == (THERE, 3, 2.0, ())
    assert here.gang.configuration == {HERE: 1, THERE: 3}


def test_a_measurement_is_published_and_ends_its_worker() -> None:
    bench = Bench()
    bench.tell(start(profile_iterations=1))
    bench.tell(Started(P1))
    one = (0.1,)
    numbers = Measured(
        data_s=one, forward_s=one, backward_s=one, update_s=one, iteration_s=(0.4,), parameters=1e6
    )
    measured, stopped = bench.tell(Profiled(P1, numbers))
    assert isinstance(measured, ProfileMeasured)
    assert isinstance(stopped, WorkerStopped)
    assert (measured.iteration_s, measured.gpu_type) == ((0.4,), "t4")
    assert (stopped.outcome, stopped.samples_done, stopped.leads) == (Outcome.COMPLETED, 0.0, False)


@pytest.mark.parametrize("lasting", [True, False])
def test_a_measurement_that_fails_does_not_fail_the_job(lasting: bool) -> None:  # noqa: FBT001
    bench = Bench()
    bench.tell(start(profile_iterations=10))
    failed, stopped = bench.tell(Failed(P1, "out of memory", lasting=lasting, whole_workload=lasting))
    assert isinstance(failed, ProfileFailed)
    assert isinstance(stopped, WorkerStopped)
    assert (failed.final, failed.whole_workload, failed.reason) == (lasting, lasting, "out of memory")
    assert failed.repeatable is not lasting
    assert stopped.outcome is Outcome.COMPLETED


@pytest.mark.parametrize("lasting", [True, False])
def test_a_worker_that_failed_says_whether_it_would_again(lasting: bool) -> None:  # noqa: FBT001
    bench = Bench()
    bench.tell(start())
    bench.tell(Started(P1))
    (stopped,) = bench.tell(Failed(P1, "out of memory", lasting=lasting))
    assert isinstance(stopped, WorkerStopped)
    assert (stopped.outcome, stopped.final) == (Outcome.FAILED, lasting)


def test_a_report_about_an_unknown_worker_is_ignored() -> None:
    assert Bench().tell(Completed(P1, 1.0)) == []


# ---- lives


def test_orders_to_an_earlier_life_start_no_worker() -> None:
    core = Agent(node(), "life-2", MODES)
    for fact in (joined("life-1"), start(), stop("p9")):
        assert core.handle(fact, 5.0) == []
    core.handle(joined("life-2"), 5.0)
    assert core.state.workers == {}


def test_an_order_to_an_earlier_life_stays_ended_in_the_next() -> None:
    core = Agent(node(), "life-2", MODES)
    for fact in (joined("life-1"), start(), joined("life-2")):
        core.handle(fact, 5.0)
    assert core.handle(start(), 6.0) == []


def test_a_new_life_has_all_gpus() -> None:
    core = Agent(node(), "life-2", MODES)
    for fact in (joined("life-1"), start("old", gpus=4), joined("life-2")):
        core.handle(fact, 5.0)
    order = start("new", gpus=4)
    [effect] = core.handle(order, 6.0)
    assert getattr(effect, "task", None) == StartWorker(order, (0, 1, 2, 3))


def test_an_agent_ends_when_another_one_takes_its_node() -> None:
    bench = Bench(life="life-1")
    with pytest.raises(Superseded, match="here"):
        bench.tell(joined("life-2"))


def test_a_replay_gives_the_same_state() -> None:
    bench = Bench()
    up(bench, "p0", gpus=2)
    bench.tell(formed("p0"))
    up(bench, "p1")
    bench.tell(stop("p0"))
    bench.tell(start("p2", gpus=4))
    again = Agent(node(), "life-2", MODES)
    for fact in bench.log:
        again.handle(fact, fact.at)
    assert again.state == bench.core.state
    assert again.state.workers[PlacementId("p0")].state is WorkerState.STOPPING


def test_the_state_survives_a_snapshot() -> None:
    bench = Bench()
    up(bench)
    blob = msgspec.msgpack.encode(bench.core.state)
    assert msgspec.msgpack.decode(blob, type=State) == bench.core.state


def test_only_so_many_ended_placements_are_remembered() -> None:
    bench = Bench()
    for number in range(ENDED_REMEMBERED + 5):
        bench.tell(stop(f"p{number}"))
    assert len(bench.core.state.ended) == ENDED_REMEMBERED


def test_an_order_for_a_gang_without_this_node_is_refused() -> None:
    fact = only(Bench().tell(start(gang=[(node(THERE), 1)])), WorkerStopped)
    assert fact.outcome is Outcome.REFUSED


def test_the_joined_node_is_the_agent_s_own() -> None:
    [fact] = Bench(gpus=8).log
    assert isinstance(fact, NodeJoined)
    assert (fact.node_id, fact.node.gpus) == (NodeId("here"), 8)
    assert not fact.runs_commands, "unless its runner says so"


def test_a_node_says_whether_jobs_are_processes_there() -> None:
    [effect] = Agent(node(), "life", frozenset({Lockstep}), runs_commands=True).resume(0.0)
    assert isinstance(effect, Publish)
    assert isinstance(effect.event, NodeJoined)
    assert effect.event.runs_commands


# ---- questions

OTHERS = (THERE, NodeId("elsewhere"))
"""before and after this node in the alphabet"""


def asked(gpus: int = 2, leader: Node | None = None) -> Asked:
    ring = Ring(members=((leader or node(), gpus),))
    return Asked(7, OpenAllReduce(node_id=(leader or node()).node_id, ring=ring, sizes=(1e6,)))


def test_free_gpus_may_time_their_paths() -> None:
    core, question = Bench().core, asked()
    assert isinstance(question.question, OpenAllReduce)
    assert core.handle(question, 0.0) == [Work(TimeAllReduces(7, question.question, (0, 1, 2, 3)))]
    times = AllReduceMeeting(meeting="here:1", sizes=(1e6,))
    assert core.handle(AllReducesTimed(7, times), 1.0) == [Reply(7, times)]


def test_joining_another_node_s_timing_takes_free_gpus_too() -> None:
    bench = Bench()
    ring = Ring(members=((node(THERE), 4), (node(), 3)))
    join = JoinAllReduce(node_id=HERE, ring=ring, sizes=(1e6,), repeats=2, meeting="there:1")
    assert bench.core.handle(Asked(7, join), 0.0) == [Work(TimeAllReduces(7, join, (0, 1, 2, 3)))]
    up(bench, gpus=2)
    assert bench.core.handle(Asked(8, join), 0.0) == [Reply(8, Refused(reason="3 GPUs wanted, 2 free"))]


def test_all_reduces_are_not_timed_on_gpus_in_use() -> None:
    bench = Bench()
    up(bench, gpus=3)
    [reply] = bench.core.handle(asked(gpus=2), 0.0)
    assert reply == Reply(7, Refused(reason="2 GPUs wanted, 1 free"))


def test_all_reduces_are_not_timed_on_withheld_gpus() -> None:
    bench = Bench(seen=GpusSeen(busy={0: "in use by process 7"}, broken={}))
    up(bench, gpus=1)
    [work] = bench.core.handle(asked(gpus=2), 0.0)
    assert isinstance(work, Work)
    assert isinstance(work.task, TimeAllReduces)
    assert work.task.gpu_indices == (2, 3)


def test_an_agent_refuses_to_time_paths_that_another_node_leads() -> None:
    for other in OTHERS:
        [reply] = Bench().core.handle(asked(leader=node(other)), 0.0)
        assert isinstance(reply, Reply)
        assert isinstance(reply.message, Refused)


@pytest.mark.parametrize("other", OTHERS)
def test_only_its_own_gpus_of_a_ring_have_to_be_free(other: NodeId) -> None:
    ring = Ring(members=((node(other), 4), (node(), 1)))
    question = OpenAllReduce(node_id=HERE, ring=ring, sizes=(1e6,))
    bench = Bench()
    up(bench, gpus=3)
    assert bench.core.handle(Asked(7, question), 0.0) == [Work(TimeAllReduces(7, question, (3,)))]


def test_no_path_is_timed_by_a_node_outside_the_ring() -> None:
    question = OpenAllReduce(node_id=HERE, ring=Ring(members=((node(THERE), 1),)), sizes=(1e6,))
    assert Bench().core.handle(Asked(7, question), 0.0) == [Reply(7, Refused(reason="0 GPUs wanted, 4 free"))]


# ---- what jobs printed


def test_the_output_of_a_job_is_read_outside_and_answered() -> None:
    question = ReadOutput(node_id=HERE, job_id=JobId("job-1"))
    core = Bench().core
    assert core.handle(Asked(7, question), 0.0) == [Work(ReadLines(7, question))]
    page = OutputPage(ranks=())
    assert core.handle(LinesRead(7, page), 0.0) == [Reply(7, page)]
    refused = Refused(reason="no disk")
    assert core.handle(WorkFailed(ReadLines(7, question), "no disk"), 0.0) == [Reply(7, refused)]


def test_the_output_of_another_node_is_not_here() -> None:
    for other in OTHERS:
        [reply] = Bench().core.handle(Asked(7, ReadOutput(node_id=other, job_id=JobId("job-1"))), 0.0)
        assert isinstance(reply, Reply)
        assert isinstance(reply.message, Refused)
