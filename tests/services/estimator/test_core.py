"""The estimator's decisions, with its workers doing the work inline."""

import msgspec
import numpy as np
import pytest

from schemas.accuracy import AccuracyReport
from schemas.archive import NodeLine, entry_of
from schemas.base import Event, Sample
from schemas.calibration import BandwidthRow, Calibration, Path
from schemas.cluster import Node
from schemas.events import (
    GpusWithheld,
    JobCancelled,
    JobCompleted,
    JobQueued,
    JobTypeEstimated,
    JobTypeProfiled,
    NodeLost,
)
from schemas.ids import GpuType, JobId, NodeId, PlacementId
from schemas.placement import Gang, Proportional
from schemas.plans import Layer
from schemas.questions import (
    Calibrate,
    EstimateQuestion,
    Estimates,
    ExportStore,
    Imported,
    ImportStore,
    Refused,
    ShowAccuracy,
    ShowStatus,
    StorePage,
)
from schemas.samples import ThroughputObserved
from services.estimator.core import BATCH, Estimator
from services.estimator.lookup.layers import EvidenceThreshold
from services.estimator.state import State
from services.estimator.store.contract import Loading, StoreUnavailable
from services.estimator.store.memory_store import MemoryStore
from services.estimator.tasks import (
    Answered,
    Correct,
    Estimate,
    Learn,
    MeasurePaths,
    ReadStore,
    Refine,
    WriteExecutions,
    WriteObservations,
)
from services.estimator.theory.refinement import FIRST_AT
from services.estimator.work.workers import StoreWorkers
from shared.domain.accuracy import executions_of
from shared.domain.core import Asked, Effect, Effects, Input, Publish, Reply, Work, WorkFailed
from shared.runtime.shell.snapshots import packed, unpacked
from tests.fact_builders import whole_life, worker_stopped
from tests.services.estimator.estimator_builders import (
    joined,
    mode,
    modules,
    node,
    observed,
    profiled,
    question,
    ran,
    spec,
    submitted,
    workload,
)

FLUSH_S = 10.0


class Driver:
    def __init__(self) -> None:
        self.core = Estimator(flush_s=FLUSH_S)
        self.store = MemoryStore(half_life_s=1e6)
        self.workers = StoreWorkers(self.store, EvidenceThreshold(observations=3, seconds=60.0))
        self.published: list[Event] = []
        self.replies: list[object] = []

    def tell(self, *inputs: Event | Sample | Asked, now: float = 5.0) -> "Driver":
        for one in inputs:
            self.perform(self.core.handle(one, now))
        return self

    def ask(self, asked: EstimateQuestion) -> object:
        self.tell(Asked(1, asked))
        return self.replies[-1]

    def perform(self, effects: Effects) -> None:
        for effect in effects:
            self._perform(effect)

    def _perform(self, effect: Effect) -> None:
        match effect:
            case Publish(event):
                self.published.append(event)
                self.tell(event)
            case Reply(_, message):
                self.replies.append(message)
            case Work(WriteObservations() as task):
                self.workers.record(task)
            case Work(Correct() as task):
                self.workers.correct(task)
            case Work(WriteExecutions() as task):
                self.workers.log(task)
            case Work(ReadStore() as task):
                self.perform(self.core.handle(self.workers.look(task), 5.0))
            case Work(Estimate() as task):
                self.perform(self.core.handle(self.workers.answer(task), 5.0))
            case Work(Learn() as task):
                self.perform(self.core.handle(self.workers.learn(task), 5.0))
            case _:
                raise AssertionError(effect)


def ready() -> Driver:
    return Driver().tell(joined(), joined(node("a1")), submitted(), profiled(), *ran(observed()))


def running(*seen: ThroughputObserved) -> Estimator:
    """A core that believes observations of these gangs."""
    core = Estimator(flush_s=FLUSH_S)
    for fact in ran(*seen):
        core.handle(fact, fact.at)
    return core


def throughput(reply: object) -> list[float]:
    assert isinstance(reply, Estimates)
    return list(np.frombuffer(reply.throughput, dtype="<f8"))


def test_a_profiled_job_is_queued_with_age_and_sensitivity() -> None:
    """100 samples/s alone; a pair takes 1.5 s instead of 1 s an iteration; R_avg is 2."""
    [queued] = ready().published
    assert isinstance(queued, JobQueued)
    assert queued.age_s == pytest.approx(6e6 / (100 * 2))
    assert queued.sensitivity == pytest.approx(1.5)
    assert queued.single_gpu == pytest.approx({"A": 100.0})


def test_the_sensitivity_of_a_type_with_one_node_is_that_of_two_like_it() -> None:
    [queued] = Driver().tell(joined(), submitted(), profiled()).published
    assert isinstance(queued, JobQueued)
    assert queued.sensitivity == pytest.approx(1.5)


def test_the_sensitivity_of_a_type_is_that_of_nodes_that_are_there() -> None:
    slow = msgspec.structs.replace(node("a0"), network_bandwidth=1e6)
    driver = Driver().tell(joined(slow), joined(node("a1")), NodeLost(at=1.0, node_id=slow.node_id))
    [queued] = driver.tell(submitted(), profiled()).published
    assert isinstance(queued, JobQueued)
    assert queued.sensitivity == pytest.approx(1.5)


def test_age_weighs_types_by_their_gpus() -> None:
    """Both types run alike, so the shares cancel; a lost node's type has share 0 and counts no more."""
    driver = Driver().tell(joined(), joined(node("b0", "B")), NodeLost(at=1.0, node_id=NodeId("b0")))
    [queued] = driver.tell(submitted(), profiled(gpu_types=("A", "B"))).published
    assert isinstance(queued, JobQueued)
    assert queued.age_s == pytest.approx(6e6 / (100 * 2))


def test_evidence_of_an_earlier_job_counts_for_the_next_one() -> None:
    driver = ready()
    driver.store.add([observed(throughput=50.0)] * 3)
    driver.tell(submitted("j2"), profiled("j2"))
    queued = driver.published[-1]
    assert isinstance(queued, JobQueued)
    assert queued.single_gpu == pytest.approx({"A": 50.0})


def test_a_question_is_answered() -> None:
    asked = question(nodes=("a0", "a1"), job=(0, 0), start=(0, 1, 3), node=(0, 0, 1), gpus=(1, 1, 1))
    assert throughput(ready().ask(asked)) == pytest.approx([100.0, 2 * 100 / 1.5])


PLAIN = question(nodes=("a0", "a1"), job=(0,), start=(0, 2), node=(0, 1), gpus=(1, 1))
UNLIKE = Proportional(samples=(120, 80))


def in_shares(rate: float) -> ThroughputObserved:
    """What the leader of a gang with unlike shares sends."""
    gang = Gang.of({NodeId("a0"): 1, NodeId("a1"): 1}, UNLIKE)
    return msgspec.structs.replace(observed("a0", throughput=rate, place="p2"), gang=gang)


def test_a_gang_of_unlike_shares_is_no_evidence_of_its_gpus_pace() -> None:
    """120 samples: forward 0.36 s; the exchange of 1 s hides the backward pass; the update takes 0.2 s."""
    asked = msgspec.structs.replace(PLAIN, samples=np.array([120, 80], dtype="<i4").tobytes())
    driver = ready().tell(*ran(in_shares(1.0)))
    [before] = throughput(driver.ask(asked))
    assert before == pytest.approx(200 / (0.36 + 1.0 + 0.2))
    driver.tell(*[in_shares(before / 2 * 0.5)] * BATCH)
    assert throughput(driver.ask(PLAIN)) == pytest.approx([2 * 100 / 1.5])
    assert throughput(driver.ask(asked)) == pytest.approx([0.5 * before])
    assert not driver.store.observations(0, BATCH)


def test_how_far_an_estimate_was_off_is_learnt_step_by_step() -> None:
    asked = msgspec.structs.replace(PLAIN, samples=np.array([120, 80], dtype="<i4").tobytes())
    driver = ready().tell(*ran(in_shares(1.0)))
    [before] = throughput(driver.ask(asked))
    for expected in (1.0 + 0.3 * 0.5, 1.0 + 0.51 * 0.5):
        driver.tell(in_shares(before / 2 * 1.5))
        driver.perform(driver.core.wake(1e9))
        assert throughput(driver.ask(asked)) == pytest.approx([expected * before])


def of_two_models() -> Driver:
    """One type in servers of two models, of which one runs half as fast as the other and as theory has it."""
    servers = {"a0": "old", "a1": "old", "a2": "new", "a3": "new"}
    driver = Driver().tell(
        *(joined(msgspec.structs.replace(node(one), server=model)) for one, model in servers.items()),
        submitted(),
        profiled(),
    )
    for name, rate in (("a0", 50.0), ("a2", 100.0)):
        pair = {name: 1, "x": 1}
        driver.store.add([observed(name, throughput=rate), observed(name, configuration=pair)] * 3)
    return driver


def test_an_answer_does_not_depend_on_which_nodes_the_question_names() -> None:
    driver, names = of_two_models(), ("a0", "a1", "a2", "a3")
    every = throughput(
        driver.ask(question(nodes=names, job=(0,) * 4, start=range(5), node=range(4), gpus=(1,) * 4))
    )
    assert every == pytest.approx([50.0, 50.0, 100.0, 100.0])
    assert [throughput(driver.ask(question(nodes=(one,))))[0] for one in names] == every
    others = [throughput(driver.ask(question(nodes=(one,), gpus=(2,))))[0] for one in names]
    of_all = question(nodes=names, job=(0,) * 4, start=range(5), node=range(4), gpus=(2,) * 4)
    assert throughput(driver.ask(of_all)) == others, "theory, corrected by what all servers showed"


def test_a_correction_is_to_the_estimate_that_the_planner_gets() -> None:
    """Of a server whose model is slow; one of the other model is the first of its type."""
    driver = of_two_models()
    shares = {"nodes": ("a1", "a3"), "start": (0, 2), "node": (0, 1), "gpus": (1, 1)}
    asked = question(**shares)  # type: ignore[arg-type]
    asked = msgspec.structs.replace(asked, samples=np.array([120, 80], dtype="<i4").tobytes())
    [estimated] = throughput(driver.ask(asked))
    gang = Gang.of({NodeId("a1"): 1, NodeId("a3"): 1}, UNLIKE)
    seen = msgspec.structs.replace(observed("a1", throughput=estimated / 2), gang=gang)
    driver.tell(*ran(seen), seen)
    driver.perform(driver.core.wake(1e9))
    [known] = driver.store.theory([observed().fingerprint]).values()
    assert known.corrections["A"].factor == pytest.approx(1.0)


def test_an_export_has_all_nodes_that_joined_and_an_import_passes_over_them() -> None:
    lost = NodeLost(at=1.0, node_id=NodeId("a1"))
    driver = Driver().tell(joined(), joined(node("a1")), lost, Asked(1, ExportStore()))
    [exported] = driver.replies
    assert isinstance(exported, StorePage)
    assert [entry_of(line) for line in exported.lines] == [NodeLine(node=node(one)) for one in ("a0", "a1")]
    driver.tell(Asked(1, ImportStore(lines=exported.lines)))
    assert driver.replies[-1] == Imported(entered=0, known=2)


def test_an_export_can_be_read_while_all_gpus_of_a_node_are_withheld() -> None:
    withheld = GpusWithheld(at=1.0, node_id=NodeId("a0"), gpus={0: "broken"})
    driver = Driver().tell(joined(node(gpus=1)), withheld, Asked(1, ExportStore()))
    [exported] = driver.replies
    assert isinstance(exported, StorePage)
    assert [entry_of(line) for line in exported.lines] == [NodeLine(node=node(gpus=1))]


def test_a_gang_with_an_unknown_node_teaches_nothing() -> None:
    seen = in_shares(1.0)
    driver = Driver().tell(joined(), submitted(), profiled(), *ran(seen), seen)
    driver.perform(driver.core.wake(1e9))
    fingerprint = observed().fingerprint
    assert driver.store.theory([fingerprint])[fingerprint].corrections == {}


def test_unknown_jobs_and_nodes_get_no_number() -> None:
    asked = question(
        jobs=("j1", "j9"), nodes=("a0", "z9"), job=(1, 0), start=(0, 1, 2), node=(0, 1), gpus=(1, 1)
    )
    assert np.isnan(throughput(ready().ask(asked))).all()


@pytest.mark.parametrize(
    "asked",
    [
        question(start=(0, 2)),
        question(start=(0,)),
        question(job=(7,)),
        question(node=(-1,)),
        question(gpus=(0,)),
        question(gpus=(1, 1)),
        question(job=(0, 0), start=(0, 1, 1)),
        msgspec.structs.replace(question(), gpus=b"abc"),
    ],
)
def test_columns_that_do_not_fit_are_refused(asked: EstimateQuestion) -> None:
    assert isinstance(ready().ask(asked), Refused)


def test_a_question_may_carry_the_workloads_of_its_jobs() -> None:
    """The planner asks once for all jobs of a workload, and about jobs the estimator has not heard of yet."""
    driver, asked = ready(), question(jobs=("j9",))
    assert np.isnan(throughput(driver.ask(asked))).all()
    given = msgspec.structs.replace(asked, workloads=(spec().workload.fingerprint,))
    assert throughput(driver.ask(given)) == pytest.approx([100.0])


def test_other_questions_are_refused() -> None:
    driver = ready().tell(Asked(1, ShowStatus()))
    assert isinstance(driver.replies[-1], Refused)


def test_a_store_that_fails_refuses_the_question() -> None:
    core = ready().core
    [work] = core.handle(Asked(3, question()), 5.0)
    assert isinstance(work, Work)
    assert core.handle(WorkFailed(work.task, "disk full"), 5.0) == [Reply(3, Refused(reason="disk full"))]


def test_observations_are_written_in_batches() -> None:
    core = running(observed())
    effects = [core.handle(observed(), 0.0) for _ in range(BATCH)]
    assert not any(effects[:-1])
    assert effects[-1] == [Work(WriteObservations((observed(),) * BATCH, 0.0))]


def test_observations_do_not_wait_for_ever() -> None:
    core = running(observed())
    core.handle(observed(), 3.0)
    assert core.next_wakeup() == 3.0 + FLUSH_S
    assert core.wake(3.0 + FLUSH_S) == [Work(WriteObservations((observed(),), 3.0 + FLUSH_S))]
    assert core.next_wakeup() is None


def test_observations_that_could_not_be_written_are_tried_again_at_their_time() -> None:
    core = running(observed())
    core.handle(WorkFailed(WriteObservations((observed(),) * BATCH, 0.0), "disk full"), 0.0)
    assert core.handle(observed(), 1.0) == []
    [work] = core.wake(FLUSH_S)
    assert isinstance(work, Work)
    assert isinstance(work.task, WriteObservations)
    assert len(work.task.observations) == BATCH + 1


def test_what_a_write_that_was_given_up_wrote_all_the_same_is_not_written_twice() -> None:
    driver = Driver().tell(*ran(observed()))
    for at in range(2):
        driver.core.handle(observed(at=float(at)), 0.0)
    [first] = driver.core.wake(FLUSH_S)
    assert isinstance(first, Work)
    assert isinstance(first.task, WriteObservations)
    driver.core.handle(WorkFailed(first.task, "TimeoutError"), FLUSH_S)
    driver.workers.record(first.task)  # the disk answers after all
    driver.core.handle(observed(at=2.0), FLUSH_S)
    driver.perform(driver.core.wake(2 * FLUSH_S))
    assert [seen.at for seen in driver.store.observations(0, 10)] == [0.0, 1.0, 2.0]
    driver.core.handle(observed(at=3.0), FLUSH_S)
    assert driver.core.wake(1e9) == [Work(WriteObservations((observed(at=3.0),), 1e9))]


def test_an_observation_by_a_clock_that_is_ahead_outweighs_no_later_ones() -> None:
    driver = ready()
    for at, now, rate in ((1e9, 0.0, 1.0), *((now, now, 80.0) for now in (4e6, 4.5e6, 5e6))):
        driver.core.handle(observed(throughput=rate, at=at), now)
        driver.perform(driver.core.wake(now + FLUSH_S))
    assert throughput(driver.ask(question())) == pytest.approx([80.0], rel=0.05)


def test_an_agent_changes_no_evidence_of_nodes_with_which_it_does_not_run() -> None:
    """a9 may send samples about a0 if it says that a0 and a9 are one gang."""
    driver = ready().tell(*[observed(throughput=60.0)] * 3)
    lie = observed("a0", configuration={"a0": 1, "a9": 1}, throughput=1.0, seconds=1e9)
    driver.tell(lie, msgspec.structs.replace(lie, placement_id=PlacementId("none")))
    driver.perform(driver.core.wake(1e9))
    assert [seen.throughput for seen in driver.store.observations(0, BATCH)] == [60.0] * 3


@pytest.mark.parametrize("rate", [0.0, -1.0, float("nan"), float("inf")])
def test_impossible_observations_are_dropped(rate: float) -> None:
    core = running(observed())
    core.handle(observed(throughput=rate), 0.0)
    assert core.next_wakeup() is None


def test_a_job_that_could_not_be_learnt_is_tried_again() -> None:
    core = Estimator(flush_s=FLUSH_S)
    for fact in (joined(), submitted()):
        core.handle(fact, 0.0)
    [work] = core.handle(profiled(), 0.0)
    assert isinstance(work, Work)
    assert core.handle(WorkFailed(work.task, "disk full"), 0.0) == []
    assert core.wake(FLUSH_S) == [work]


def test_an_ended_job_is_forgotten() -> None:
    driver = ready().tell(JobCancelled(at=9.0, job_id=JobId("j1")))
    assert not driver.core.state.jobs
    assert not driver.tell(profiled()).core.state.jobs


def test_a_completion_that_is_void_changes_nothing() -> None:
    """The job never ran, so it cannot be complete."""
    driver = ready().tell(
        JobCompleted(at=9.0, job_id=JobId("j1"), placement_id=PlacementId("p1"), samples_done=1.0)
    )
    assert throughput(driver.ask(question())) == pytest.approx([100.0])


def test_a_restart_fills_an_empty_store_and_queues_no_job_twice() -> None:
    before = ready()
    after = Driver()
    blob = msgspec.msgpack.encode(before.core.state)
    after.core.state = msgspec.msgpack.decode(blob, type=State)
    after.perform(after.core.resume(100.0))
    assert after.published == []
    assert throughput(after.ask(question())) == pytest.approx([100.0])


def test_a_restart_replaces_no_newer_profile_by_that_of_an_older_job() -> None:
    """With `profile_known` a workload is profiled again."""
    driver, newer = ready(), modules(forward_s=0.6)
    again = msgspec.structs.replace(profiled("j2"), modules={GpuType("A"): newer})
    driver.tell(submitted("j2"), again, JobCancelled(at=9.0, job_id=JobId("j2")))
    driver.perform(driver.core.resume(100.0))
    name = workload().fingerprint
    assert driver.store.theory([name])[name].modules == {GpuType("A"): newer}


def test_a_profile_that_a_crash_kept_from_the_store_replaces_an_older_one() -> None:
    driver, newer = ready(), modules(forward_s=0.6)
    again = msgspec.structs.replace(profiled("j2"), modules={GpuType("A"): newer})
    for fact in (submitted("j2"), again):
        driver.core.handle(fact, fact.at)  # the effects are dropped
    driver.perform(driver.core.resume(100.0))
    name = workload().fingerprint
    assert driver.store.theory([name])[name].modules == {GpuType("A"): newer}


def test_a_job_that_was_not_queued_before_the_restart_is_queued_after_it() -> None:
    driver = Driver()
    for fact in (joined(), submitted(), profiled()):
        driver.core.handle(fact, fact.at)  # the effects are dropped
    driver.perform(driver.core.resume(100.0))
    assert [type(fact) for fact in driver.published] == [JobQueued]


def test_a_sample_of_a_gang_that_ended_before_a_restart_counts_once() -> None:
    """It came late: the gang had ended before the snapshot with which the next life begins."""
    early, late = observed("a0", throughput=40.0, at=1.0), observed("a0", throughput=80.0, at=2.0)
    end = worker_stopped("j1", place="p1", node_id="a0")
    before = ready().tell(*ran(early), early, end)
    after = Driver()
    _, after.core.state, _ = unpacked(packed(9, before.core.state, []), State)
    after.store = before.store
    after.workers = before.workers
    before.perform(before.core.wake(5.0 + FLUSH_S))
    after.perform(after.core.resume(20.0))
    after.tell(late, now=20.0)
    after.perform(after.core.wake(20.0 + FLUSH_S))
    assert after.store.observations(0, 9) == [early, late]


def further(driver: Driver) -> list[tuple[str, float]]:
    return [
        (fact.gpu_type, fact.single_gpu) for fact in driver.published if isinstance(fact, JobTypeEstimated)
    ]


def on_b() -> JobTypeProfiled:
    return JobTypeProfiled(
        at=7.0, job_id=JobId("j1"), workload=workload(), gpu_type=GpuType("B"), modules=modules(forward_s=0.8)
    )


def test_a_job_gets_estimates_on_a_type_that_is_profiled_later() -> None:
    driver = ready().tell(joined(node("b0", "B")), on_b())
    [(gpu_type, speed)] = further(driver)
    [_, on_a_and_b] = [driver.ask(question()), driver.ask(question(nodes=("b0",)))]
    assert gpu_type == "B"
    assert throughput(on_a_and_b) == pytest.approx([speed])
    assert len([fact for fact in driver.published if isinstance(fact, JobQueued)]) == 1


def test_a_type_that_is_profiled_before_the_job_is_known_to_be_queued_is_not_lost() -> None:
    """The stream has not brought `JobQueued` back when the second work is done."""
    driver = Driver()
    for fact in (joined(), joined(node("b0", "B")), submitted()):
        driver.core.handle(fact, 0.0)
    works = [*driver.core.handle(profiled(), 0.0), *driver.core.handle(on_b(), 0.0)]
    effects: list[Effect] = []
    for work in works:
        assert isinstance(work, Work)
        assert isinstance(work.task, Learn)
        effects += driver.core.handle(driver.workers.learn(work.task), 0.0)
    facts = [effect.event for effect in effects if isinstance(effect, Publish)]
    assert [type(fact) for fact in facts] == [JobQueued, JobTypeEstimated]


def test_a_restart_publishes_no_type_twice() -> None:
    before, after = ready().tell(joined(node("b0", "B")), on_b()), Driver()
    after.core.state = msgspec.msgpack.decode(msgspec.msgpack.encode(before.core.state), type=State)
    after.perform(after.core.resume(100.0))
    assert after.published == []


# ---- the prediction log, refinement, calibration


def test_an_execution_is_written_to_the_prediction_log() -> None:
    driver = Driver().tell(*whole_life())
    driver.perform(driver.core.wake(5.0 + FLUSH_S))
    [execution] = driver.store.executions()
    assert (execution.estimated, execution.measured, execution.layer) == (10.0, 10.0, Layer.THEORY)


def test_executions_that_a_crash_kept_from_the_log_are_written_at_the_next_start() -> None:
    driver = Driver().tell(*whole_life())
    assert driver.store.executions() == []
    driver.perform(driver.core.resume(200.0))
    assert len(driver.store.executions()) == 1


def test_executions_that_could_not_be_written_are_tried_again() -> None:
    core, lost = Estimator(flush_s=FLUSH_S), WriteExecutions(tuple(executions_of(whole_life())))
    core.handle(WorkFailed(lost, "disk full"), 0.0)
    assert core.wake(FLUSH_S) == [Work(lost)]


def test_accuracy_is_a_question() -> None:
    driver = Driver().tell(*whole_life(), Asked(1, ShowAccuracy(by=("model",))))
    [report] = driver.replies
    assert isinstance(report, AccuracyReport)
    assert [(row.key, row.accuracy) for row in report.rows] == [(("resnet-18",), 1.0)]


def test_accuracy_by_an_unknown_key_is_refused() -> None:
    driver = Driver().tell(Asked(1, ShowAccuracy(by=("moon",))))
    assert isinstance(driver.replies[-1], Refused)


def test_enough_news_about_a_workload_on_a_type_have_its_loading_refined() -> None:
    driver = ready()
    seen = msgspec.structs.replace(observed(), data_s=(0.1,) * 8, wait_s=(0.0,) * 8)
    recorded = driver.workers.record(WriteObservations((seen,) * FIRST_AT, 5.0))
    [work] = driver.core.handle(recorded, 5.0)
    assert work == Work(Refine(fingerprint=seen.fingerprint, node=node()))


def measured_nodes(effects: Effects) -> list[str]:
    [work] = effects
    assert isinstance(work, Work)
    assert isinstance(work.task, MeasurePaths)
    return [one.node_id for one in work.task.nodes]


def calibrating(*nodes: Node) -> Estimator:
    core = Estimator(flush_s=FLUSH_S, calibrates=True)
    for one in nodes:
        core.handle(joined(one), 0.0)
    return core


def calibrated(
    *, link: float | None = 1e9, network: float | None = 1e9, paths: tuple[Path, ...] = ()
) -> Answered:
    row = BandwidthRow(
        gpu_type=GpuType("A"), link=link, network=network, at=0.0, measurements=1, error=0.0, paths=paths
    )
    return Answered(None, Calibration(rows=(row,)))


def test_types_that_join_are_measured_once_where_that_is_wanted() -> None:
    core = calibrating(node("a0"), node("a1"), node("b0", "B"))
    assert measured_nodes(core.wake(FLUSH_S)) == ["a0", "a1", "b0"]
    assert core.handle(calibrated(), 15.0) == []
    core.handle(joined(node("a2")), 20.0)
    assert core.next_wakeup() is None


@pytest.mark.parametrize(
    "ended",
    [
        pytest.param(calibrated(network=None), id="the network could not be measured"),
        pytest.param(Answered(None, Calibration(rows=())), id="the only node was in use"),
        pytest.param(WorkFailed(MeasurePaths(ticket=None, nodes=(), now=0.0), "disk full"), id="it failed"),
    ],
)
def test_what_is_lacking_is_measured_when_the_next_node_of_the_type_joins(ended: Input) -> None:
    core = calibrating(node("a0"))
    assert measured_nodes(core.wake(FLUSH_S)) == ["a0"]
    assert core.handle(ended, 20.0) == []
    assert core.next_wakeup() is None  # nobody is asked again and again
    core.handle(joined(node("a1")), 60.0)
    assert measured_nodes(core.wake(1e9)) == ["a0", "a1"]


@pytest.mark.parametrize("nodes", [1, 2])
def test_a_restart_measures_no_path_that_the_store_has(nodes: int) -> None:
    core = calibrating(*[node(f"a{n}") for n in range(nodes)])
    *_, work = core.resume(10.0)
    assert work == Work(ReadStore(None, Calibrate(measure=False), 10.0))
    assert core.wake(1e3) == []
    core.handle(calibrated(), 1e3)
    assert core.wake(1e4) == []
    core.handle(joined(node("b0", "B")), 1e4)
    assert measured_nodes(core.wake(1e5)) == ["b0"]


@pytest.mark.parametrize(
    "answer",
    [
        Answered(None, Calibration(rows=())),
        WorkFailed(ReadStore(None, Calibrate(measure=False), 10.0), "disk full"),
    ],
)
def test_a_restart_measures_what_the_store_lacks_or_does_not_tell(answer: Input) -> None:
    core = calibrating(node("a0"))
    core.resume(10.0)
    assert core.handle(answer, 20.0) == []
    assert measured_nodes(core.wake(1e9)) == ["a0"]


def test_a_node_that_joins_during_a_measurement_waits_for_its_end() -> None:
    core = calibrating(node("a0"))
    core.wake(FLUSH_S)
    core.handle(joined(node("a1")), 12.0)
    assert core.wake(1e9) == []
    core.handle(calibrated(network=None), 30.0)
    assert core.next_wakeup() == 30.0 + FLUSH_S
    assert measured_nodes(core.wake(1e9)) == ["a0", "a1"]


def test_larger_nodes_that_join_later_are_measured_too() -> None:
    """The rings that were measured have two GPUs a node; larger ones have other paths."""
    core = calibrating(node("a0", gpus=2), node("a1", gpus=2))
    core.wake(FLUSH_S)
    rings = ((False, 2), (True, 1), (True, 2))
    paths = [Path(distributed=several, gpus=gpus, latency_s=0.0, bandwidth=1e9) for several, gpus in rings]
    core.handle(calibrated(paths=tuple(paths)), 20.0)
    core.handle(joined(node("a2", gpus=2)), 30.0)
    assert core.next_wakeup() is None
    core.handle(joined(node("b0", gpus=4)), 40.0)
    assert measured_nodes(core.wake(1e9)) == ["a0", "a1", "a2", "b0"]


def test_no_path_inside_a_node_with_one_gpu_is_lacking() -> None:
    core = calibrating(node("a0", gpus=1))
    assert core.wake(FLUSH_S) == []
    core.handle(joined(node("a1", gpus=1)), 20.0)
    assert measured_nodes(core.wake(1e9)) == ["a0", "a1"]
    core.handle(calibrated(link=None), 40.0)
    core.handle(joined(node("a2", gpus=1)), 50.0)
    assert core.wake(1e9) == []


# ---- what cannot be


def poisoned(*gpu_types: str) -> Driver:
    """A store that imported loading by which a pair takes less than no time, on some of two types."""
    driver = Driver().tell(joined(), joined(node("b0", "B")))
    loading = Loading(data=(mode(0.1, 0.01),), wait_factor=-50.0, wait_s=-5.0, iterations=3)
    driver.store.keep(workload(), {GpuType(one): modules() for one in ("A", "B")})
    for one in gpu_types:
        driver.store.refine(workload().fingerprint, GpuType(one), loading)
    return driver.tell(submitted())


def test_a_type_without_a_possible_pace_is_left_out_and_the_fact_can_be_read() -> None:
    driver = poisoned("A").tell(profiled(gpu_types=("A", "B")))
    [queued] = driver.published
    assert isinstance(queued, JobQueued)
    assert queued.single_gpu == pytest.approx({"B": 100.0})
    assert (queued.age_s, queued.sensitivity) == pytest.approx((6e6 / (100 * 2), 1.5))
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(queued), type=JobQueued) == queued


def test_a_job_without_any_possible_pace_waits_and_the_store_says_why() -> None:
    driver = poisoned("A", "B")
    [work] = driver.core.handle(profiled(gpu_types=("A", "B")), 5.0)
    assert isinstance(work, Work)
    assert isinstance(work.task, Learn)
    with pytest.raises(StoreUnavailable, match="no throughput on any GPU type"):
        driver.workers.learn(work.task)


def test_modules_of_no_time_give_no_number() -> None:
    driver = ready()
    none = modules(forward_s=0.0, backward_s=0.0, update_s=0.0)
    driver.store.keep(workload(), {GpuType("A"): none})
    assert np.isnan(throughput(driver.ask(question()))).all()
