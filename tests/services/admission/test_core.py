"""The core: what is accepted, refused, known again, cancelled."""

from typing import Any

import msgspec
import pytest

from schemas.codec import decode_fact, encode
from schemas.events import (
    JobCancelled,
    JobHeld,
    JobPriorityChanged,
    JobProfiled,
    JobReleased,
    JobSubmitted,
    NodeDrained,
    NodeLost,
    NodeRemoved,
    NodeRestored,
    PolicyChosen,
)
from schemas.ids import JobId, NodeId
from schemas.jobs import Checkpoint
from schemas.tokens import Identity, Role
from schemas.views import (
    Cancelled,
    HoldView,
    JobHold,
    JobPriority,
    JobView,
    NodeDrain,
    NodeRemoval,
    PolicyChoice,
    PolicyPage,
    Problem,
    Submitted,
)
from services.admission.core import CaughtUp
from services.admission.questions import (
    Cancel,
    RemoveNode,
    SetDrain,
    SetHold,
    SetPolicy,
    SetPriority,
    ShowFresh,
    ShowPolicies,
    ShowPolicy,
    Submit,
    SubmitHeld,
    handed_on,
    taken_over,
)
from services.admission.state import AdmissionState
from shared.domain.core import Asked, Reply
from shared.domain.demand import job_spec
from tests.services.admission.admission_world import (
    Driver,
    job_facts,
    job_file,
    joined,
    node,
    spec,
    submitted,
)


def problem(reply: object) -> Problem:
    assert isinstance(reply, Problem)
    return reply


def cancel(job_id: str) -> Cancel:
    return Cancel(job_id=JobId(job_id))


def test_a_job_is_accepted_under_its_name_and_a_running_number() -> None:
    driver = Driver()
    assert driver.submit(name="bert") == Submitted(job_id=JobId("bert-1"), created=True)
    assert driver.submit(name="vit") == Submitted(job_id=JobId("vit-2"), created=True)


def test_an_accepted_job_is_published_with_every_choice_made() -> None:
    driver = Driver()
    driver.submit(key="k", gpus={"min": 1, "max": 4, "choices": 2}, gpu_types=["v100", "k80"])
    (fact,) = driver.published
    assert isinstance(fact, JobSubmitted)
    assert (fact.at, fact.key, fact.spec.demand) == (1.0, "k", (1, 4))
    assert fact.spec.gpu_types == ("k80", "v100")


def test_a_job_that_only_all_types_together_can_hold_is_accepted() -> None:
    driver = Driver(nodes=(node("a", "v100", 8), node("b", "k80", 4)))
    assert isinstance(driver.submit(gpus=[12, 16]), Submitted)
    refused = problem(driver.submit(gpus=[12, 16], gpu_types=["v100"]))
    assert refused.detail.endswith("at least 12 GPUs; the cluster has 8 of v100")


@pytest.mark.parametrize(
    ("job", "field"),
    [
        ({"gpus": 5_000}, "$.gpus"),
        ({"gpus": [1, 5_000]}, "$.gpus[1]"),
        ({"gpus": {"min": 1, "max": 5_000}}, "$.gpus.max"),
        ({"gpus": {"min": 4, "max": 2}}, "$.gpus.max"),
        ({"gpus": [13, 16]}, "$.gpus"),
        ({"gpus": [6], "gpu_types": ["k80"]}, "$.gpus"),
        ({"gpu_types": ["v100", "h100"]}, "$.gpu_types[1]"),
        ({"samples": None}, "$.samples"),
        ({"epochs": 3}, "$.epochs"),
        ({"samples": None, "epochs": 3}, "$.workload.dataset_samples"),
        ({"learning_rates": {1: 0.1}}, "$.learning_rates"),
        ({"command": ["x" * 300_000]}, "$.command"),
        ({"workload": {"model": "a\nb", "dataset": "c", "batch_size": 1}}, "$.workload.model"),
    ],
)
def test_an_impossible_job_is_refused_by_field_and_changes_no_state(job: dict[str, Any], field: str) -> None:
    driver = Driver(nodes=(node("a", "v100", 8), node("b", "k80", 4)))
    before = msgspec.msgpack.encode(driver.core.state)
    refused = problem(driver.submit(**job))
    assert (refused.status, refused.field) == (422, field)
    assert driver.published == []
    assert msgspec.msgpack.encode(driver.core.state) == before


def test_a_script_has_data_for_an_update_on_as_many_gpus_as_it_asks_for() -> None:
    workload = {"model": "a", "dataset": "b", "batch_size": 8, "dataset_samples": 24}
    driver, script = Driver(nodes=(node(gpus=8),)), ["python", "train.py"]
    refused = problem(driver.submit(workload=workload, command=script, gpus=[1, 2, 4]))
    assert (refused.status, refused.field) == (422, "$.gpus[2]")
    assert refused.detail.endswith("has 24 samples, and an update on 4 GPUs takes 32: ask for 3 at most")
    assert isinstance(driver.submit(workload=workload, command=script, gpus=[1, 3]), Submitted)
    assert isinstance(driver.submit(workload=workload, command=script, gpus=4), Submitted), "it may pad"
    assert isinstance(driver.submit(workload=workload, gpus=[1, 4]), Submitted), "emulated"


def test_a_count_out_of_reach_stays_in_the_demand_beside_one_that_is_not() -> None:
    driver = Driver(nodes=(node(gpus=8),))
    driver.submit(gpus=[8, 64])
    (fact,) = driver.published
    assert isinstance(fact, JobSubmitted)
    assert fact.spec.demand == (8, 64)


def test_with_no_node_known_any_gpu_type_is_taken() -> None:
    assert isinstance(Driver().submit(gpu_types=["h100"], gpus=100), Submitted)


def test_a_node_that_joined_makes_its_type_known() -> None:
    driver = Driver(nodes=(node("a", "v100"),))
    assert problem(driver.submit(gpu_types=["h100"])).field == "$.gpu_types[0]"
    driver.fold(joined("b", "h100"))
    assert isinstance(driver.submit(gpu_types=["h100"]), Submitted)


def test_a_node_in_the_file_that_joins_counts_once() -> None:
    driver = Driver(nodes=(node("n-0", gpus=8),))
    driver.fold(joined("n-0", gpus=8))
    assert problem(driver.submit(gpus=16)).field == "$.gpus"


def test_the_same_key_is_the_same_job() -> None:
    driver = Driver()
    first = driver.submit(key="k")
    assert driver.submit(key="k") == Submitted(job_id=JobId("train-1"), created=False)
    assert first == Submitted(job_id=JobId("train-1"), created=True)
    assert len(driver.published) == 1


@pytest.mark.parametrize("held", [False, True])
def test_no_two_unfinished_jobs_keep_their_checkpoints_in_one_folder(*, held: bool) -> None:
    driver = Driver()
    driver.held = held
    there: dict[str, Any] = {"checkpoint": {"folder": "/shared/bert"}}
    first = driver.submit_id(key="k", **there)
    driver.held = held
    for other_name in ("/shared//bert/", "//shared/bert", "///shared/./bert"):
        refused = problem(driver.submit(checkpoint={"folder": other_name}))
        assert (refused.status, refused.field) == (422, "$.checkpoint.folder")
        assert first in refused.detail
        driver.held = held
    assert driver.submit(key="k", **there) == Submitted(job_id=first, created=False)
    driver.held = held
    assert isinstance(driver.submit(checkpoint={"folder": "/shared/vit"}), Submitted)
    driver.release()
    driver.fold(JobProfiled(at=9.0, job_id=first, workload=spec().workload, modules={}, known=True))
    assert problem(driver.submit(**there)).field == "$.checkpoint.folder"
    driver.ask(cancel(first))
    assert isinstance(driver.submit(**there), Submitted)


def test_the_same_key_is_the_same_job_while_the_first_is_in_flight() -> None:
    driver = Driver()
    driver.held = True
    driver.submit(key="k")
    assert driver.submit(key="k") == Submitted(job_id=JobId("train-1"), created=False)
    assert {fact.event_id for fact in driver.published} == {"job.submitted/train-1"}


OTHERS: list[dict[str, Any]] = [
    {"name": "other"},
    {"gpus": 3},
    {"samples": 2e6},
    {"samples": None},
    {"user": "bob"},
]


@pytest.mark.parametrize("other", OTHERS)
@pytest.mark.parametrize("held", [True, False])
def test_a_key_is_of_one_job_alone(other: dict[str, Any], *, held: bool) -> None:
    driver = Driver()
    driver.held = held
    driver.submit(key="k")
    refused = problem(driver.submit(key="k", **other))
    assert (refused.status, "train-1" in str(refused.detail)) == (422, True)
    assert {fact.event_id for fact in driver.published} == {"job.submitted/train-1"}


@pytest.mark.parametrize("number", [3, 3.0, 3.3333333333333335])
def test_a_job_is_known_again_after_its_way_through_the_stream(number: float) -> None:
    file = msgspec.structs.replace(
        job_file(),
        samples=number,
        priority=number,
        learning_rates=dict.fromkeys((1, 2, 4), number),
        checkpoint=Checkpoint(interval_s=number),
    )
    fact = JobSubmitted(at=1.0, job_id=JobId("train-1"), spec=job_spec(file), key="k")
    read = decode_fact(encode(fact))
    assert isinstance(read, JobSubmitted)
    driver = Driver()
    driver.fold(read)
    answer = driver.ask(Submit(job=file, key="k"))
    assert answer == Submitted(job_id=JobId("train-1"), created=False)


def test_the_key_of_an_ended_job_is_still_known() -> None:
    driver = Driver()
    driver.submit(key="k")
    driver.ask(cancel("train-1"))
    assert driver.submit(key="k") == Submitted(job_id=JobId("train-1"), created=False)


def test_two_jobs_in_flight_have_two_numbers() -> None:
    driver = Driver()
    driver.held = True
    assert driver.submit_id(key="a") != driver.submit_id(key="b")


def test_a_job_id_that_is_already_in_the_log_is_skipped() -> None:
    driver = Driver()
    driver.fold(submitted("train-2", key="foreign"))
    assert driver.submit_id() == "train-3"


def test_unfinished_jobs_are_limited_and_those_in_flight_count() -> None:
    driver = Driver(jobs_open_max=2)
    driver.submit()
    driver.held = True
    driver.submit()
    assert problem(driver.submit()).status == 429
    driver.release()
    driver.ask(cancel("train-1"))
    assert isinstance(driver.submit(), Submitted)


def test_a_known_key_is_answered_at_the_limit() -> None:
    driver = Driver(jobs_open_max=1)
    driver.submit(key="k")
    assert isinstance(driver.submit(key="k"), Submitted)


def test_a_cancelled_job_has_ended() -> None:
    driver = Driver()
    job_id = driver.submit_id()
    assert driver.ask(cancel(job_id)) == Cancelled(job_id=job_id)
    assert driver.published[-1] == JobCancelled(at=2.0, job_id=job_id)
    assert driver.core.state.open == {}


def test_a_job_in_flight_can_be_cancelled() -> None:
    driver = Driver()
    driver.held = True
    job_id = driver.submit_id()
    assert isinstance(driver.ask(cancel(job_id)), Cancelled)
    driver.release()
    assert driver.core.state.ended[job_id].state == "cancelled"


def test_cancelling_an_ended_job_is_a_conflict() -> None:
    driver = Driver()
    job_id = driver.submit_id()
    driver.ask(cancel(job_id))
    assert problem(driver.ask(cancel(job_id))).status == 409
    assert len(driver.published) == 2


def test_cancelling_an_unknown_job_says_so() -> None:
    assert problem(Driver().ask(cancel("nobody-1"))).status == 404


def test_the_priority_of_a_job_is_changed_until_it_has_ended() -> None:
    driver = Driver()
    job_id = driver.submit_id(key="k", priority=3)
    changed = driver.ask(SetPriority(job_id=job_id, priority=7.0))
    assert changed == JobPriority(job_id=job_id, priority=7.0)
    assert driver.published[-1] == JobPriorityChanged(at=2.0, job_id=job_id, priority=7.0)
    fresh = driver.ask(ShowFresh(job_id=job_id))
    assert isinstance(fresh, JobView)
    assert fresh.spec.priority == 7.0
    assert driver.submit(key="k", priority=3) == Submitted(job_id=job_id, created=False)
    again = msgspec.structs.replace(driver.published[-1], priority=8.0)
    assert again.event_id != driver.published[-1].event_id, "changes at the same time are all stored"
    driver.ask(cancel(job_id))
    refused = problem(driver.ask(SetPriority(job_id=job_id, priority=1.0)))
    assert (refused.status, refused.detail) == (409, f"job {job_id} has ended already: it is cancelled")


def test_a_job_is_held_and_released_as_often_as_one_asks() -> None:
    driver = Driver()
    job_id = driver.submit_id()
    for _ in range(2):
        assert driver.ask(SetHold(job_id=job_id, held=True)) == JobHold(job_id=job_id, held=True)
    for _ in range(2):
        assert driver.ask(SetHold(job_id=job_id, held=False)) == JobHold(job_id=job_id, held=False)
    assert [type(fact) for fact in driver.published[1:]] == [JobHeld, JobHeld, JobReleased, JobReleased]
    driver.ask(cancel(job_id))
    for wanted in (True, False):
        assert problem(driver.ask(SetHold(job_id=job_id, held=wanted))).status == 409


def test_a_job_is_on_hold_from_its_submission_on() -> None:
    driver = Driver()
    job_id = driver.submit_id(key="k", held=True)
    assert driver.submit(key="k", held=True) == Submitted(job_id=job_id, created=False)
    [fact] = driver.published
    assert isinstance(fact, JobSubmitted)
    assert fact.on_hold
    fresh = driver.ask(ShowFresh(job_id=job_id))
    assert isinstance(fresh, JobView)
    assert (fresh.hold, fresh.wait_s) == (HoldView(at=fact.at), 0.0)


def test_a_fresh_job_is_shown_on_hold_as_long_as_it_is() -> None:
    driver = Driver()
    job_id = driver.submit_id(held=True)
    shown = []
    for held in (False, True, True, False):
        driver.ask(SetHold(job_id=job_id, held=held))
        fresh = driver.ask(ShowFresh(job_id=job_id))
        assert isinstance(fresh, JobView)
        shown.append((fresh.hold, fresh.wait_s))
    assert shown == [(None, 2.0), (HoldView(at=4.0), 3.0), (HoldView(at=4.0), 3.0), (None, 8.0)]
    driver.ask(cancel(job_id))
    driver.fold(JobHeld(at=9.0, job_id=job_id))
    assert driver.core.state.illegal == 1


def test_an_admission_that_does_not_know_of_submissions_on_hold_refuses_one() -> None:
    """It ignores fields that it does not know, and so would have run the job."""
    earlier: msgspec.msgpack.Decoder[Submit | Cancel] = msgspec.msgpack.Decoder(Submit | Cancel)
    question = handed_on(SubmitHeld(job=job_file(), key="k"))
    assert taken_over(question) == SubmitHeld(job=job_file(), key="k")
    with pytest.raises(msgspec.DecodeError):
        earlier.decode(question.asked)


def test_a_job_that_keeps_its_gpus_to_its_end_is_held_only_while_it_waits() -> None:
    driver = Driver()
    facts = job_facts()
    fixed = msgspec.structs.replace(spec(), preemptible=False)
    driver.fold(msgspec.structs.replace(submitted(), spec=fixed), *facts[1:3])
    hold = SetHold(job_id=JobId("train-1"), held=True)
    assert isinstance(driver.ask(hold), JobHold)
    driver.fold(facts[3])
    refused = problem(driver.ask(hold))
    assert (refused.status, "is not preemptible" in refused.detail) == (409, True)
    assert isinstance(driver.ask(SetHold(job_id=JobId("train-1"), held=False)), JobHold)


def test_a_fresh_job_can_be_shown_in_flight_and_after() -> None:
    driver = Driver()
    driver.held = True
    job_id = driver.submit_id()
    for _ in range(2):
        view = driver.ask(ShowFresh(job_id=job_id))
        assert isinstance(view, JobView)
        assert (view.job_id, view.state, view.submitted_at) == (job_id, "submitted", 1.0)
        driver.release()


NAMED_WRONG = Identity(role=Role.OPERATOR, user="ada\n", token_id="t")


def test_what_could_not_be_read_back_is_refused_and_leaves_nothing_behind() -> None:
    driver = Driver(jobs_open_max=1)
    refused = problem(driver.ask(Submit(job=job_file(), key="k", caller=NAMED_WRONG)))
    assert (refused.status, "cannot be stored" in refused.detail) == (422, True)
    assert driver.published == []
    job_id = driver.submit_id()
    assert job_id == "train-2"
    for question in (
        Cancel(job_id=job_id, caller=NAMED_WRONG),
        SetPolicy(policy="fifo", caller=NAMED_WRONG),
    ):
        assert problem(driver.ask(question)).status == 422
    assert len(driver.published) == 1


@pytest.mark.parametrize(("monitor_seq", "status"), [(0, 503), (6, 503), (7, 410), (9, 410)])
def test_an_ended_job_is_forgotten_once_the_monitor_has_read_of_its_end(
    monitor_seq: int, status: int
) -> None:
    driver = Driver()
    job_id = driver.submit_id()
    driver.core.state.seq = 7
    driver.ask(cancel(job_id))
    answer = driver.ask(ShowFresh(job_id=job_id, monitor_seq=monitor_seq))
    assert problem(answer).status == status


def test_a_job_that_went_on_is_left_to_the_monitor() -> None:
    driver = Driver()
    job_id = driver.submit_id()
    driver.ask(cancel(job_id))
    assert problem(driver.ask(ShowFresh(job_id=job_id))).status == 503
    assert problem(driver.ask(ShowFresh(job_id=JobId("nobody-1")))).status == 404


def test_a_node_is_drained_and_restored() -> None:
    driver = Driver()
    driver.fold(joined("n-0"))
    n_0 = NodeId("n-0")
    assert driver.ask(SetDrain(node_id=n_0, draining=True)) == NodeDrain(node_id=n_0, draining=True)
    assert driver.ask(SetDrain(node_id=n_0, draining=False)) == NodeDrain(node_id=n_0, draining=False)
    assert driver.published == [NodeDrained(at=1.0, node_id=n_0), NodeRestored(at=2.0, node_id=n_0)]


def test_a_lost_node_is_removed_once_and_its_gpus_with_it() -> None:
    driver = Driver(nodes=(node("n-0", "v100"), node("n-1", "k80")))
    driver.fold(joined("n-0", "v100"))
    n_0 = NodeId("n-0")
    alive = problem(driver.ask(RemoveNode(node_id=n_0)))
    assert (alive.status, alive.detail) == (409, "node n-0 is not lost: stop its agent, and wait until it is")
    driver.fold(NodeLost(at=2.0, node_id=n_0))
    assert isinstance(driver.submit(gpu_types=["v100"]), Submitted)
    assert driver.ask(RemoveNode(node_id=n_0)) == NodeRemoval(node_id=n_0)
    removed = driver.published[-1]
    assert isinstance(removed, NodeRemoved)
    driver.fold(removed)
    assert problem(driver.submit(gpu_types=["v100"])).field == "$.gpu_types[0]"
    for question in (RemoveNode(node_id=n_0), SetDrain(node_id=n_0, draining=True)):
        assert problem(driver.ask(question)).status == 404
    driver.fold(joined("n-0", "v100"))
    assert isinstance(driver.submit(gpu_types=["v100"]), Submitted)


def test_jobs_need_no_command_once_the_nodes_that_run_them_are_removed() -> None:
    driver = Driver()
    driver.fold(msgspec.structs.replace(joined("real"), runs_commands=True))
    driver.fold(joined("emulated"))
    assert problem(driver.submit()).field == "$.command"
    driver.fold(NodeLost(at=2.0, node_id=NodeId("real")))
    assert problem(driver.submit()).field == "$.command"
    driver.fold(NodeRemoved(at=3.0, node_id=NodeId("real")))
    assert isinstance(driver.submit(), Submitted)


def test_a_node_that_never_joined_cannot_be_drained() -> None:
    driver = Driver(nodes=(node("n-0"),))
    assert problem(driver.ask(SetDrain(node_id=NodeId("n-0"), draining=True))).status == 404


@pytest.mark.parametrize("policy", ["fifo", "hops+moving_cost_s=15", "lab.policies.mine:Mine", "a.b:C+d=1 2"])
def test_a_policy_is_chosen_with_its_options(policy: str) -> None:
    driver = Driver(policies_allowed="lab.policies.mine:Mine a.b:C")
    assert driver.ask(ShowPolicy()) == PolicyChoice(policy="hops")
    assert driver.ask(SetPolicy(policy=policy)) == PolicyChoice(policy=policy)
    assert driver.published == [PolicyChosen(at=2.0, policy=policy)]
    assert driver.ask(ShowPolicy()) == PolicyChoice(policy=policy)


def test_a_policy_that_the_operator_did_not_allow_is_refused_with_the_choices() -> None:
    driver = Driver(policies_allowed="mine:Own")
    assert driver.ask(ShowPolicies()) == PolicyPage(policies=("fifo", "hops", "mine:Own"))
    refused = problem(driver.ask(SetPolicy(policy="json:loads")))
    assert (refused.status, refused.field) == (422, "$.policy")
    assert refused.detail.startswith("no such policy json:loads; there are fifo, hops, mine:Own;")
    assert driver.published == []


def test_any_policy_is_accepted_where_the_operator_allows_any() -> None:
    driver = Driver(policies_allowed="*", policy="mine:Own+jobs=2")
    assert driver.ask(SetPolicy(policy="json:loads")) == PolicyChoice(policy="json:loads")
    assert driver.ask(ShowPolicies()) == PolicyPage(policies=("fifo", "hops", "mine:Own", "*"))
    assert problem(driver.ask(SetPolicy(policy="nonsense"))).field == "$.policy"


def test_the_subject_of_a_policy_keeps_its_four_parts() -> None:
    for policy in ("a.b:C", "tiresias+thresholds=3250 7200.5", "yarn-cs+capacities=a*=1 >=2"):
        subject = PolicyChosen(at=0.0, policy=policy).subject
        assert subject.count(".") == 3
        assert not set(subject) & set(" *>")


@pytest.mark.parametrize(
    "policy", ["sia", "sia+power=1", "hops+", "", "a b:c", "a:b:c", "a.b", "m:" + "x" * 300]
)
def test_an_unknown_policy_is_refused(policy: str) -> None:
    driver = Driver()
    assert problem(driver.ask(SetPolicy(policy=policy))).field == "$.policy"
    assert driver.published == []


def test_a_restart_restores_jobs_keys_nodes_policy_and_numbering() -> None:
    driver = Driver()
    driver.fold(joined("n-0"))
    driver.submit(key="k")
    driver.ask(SetPolicy(policy="fifo"))
    again = Driver()
    again.core.state = msgspec.msgpack.decode(msgspec.msgpack.encode(driver.core.state), type=AdmissionState)
    assert again.core.state == driver.core.state
    assert again.core.resume(5.0) == []
    assert again.submit(key="k") == Submitted(job_id=JobId("train-1"), created=False)
    assert again.submit_id() == "train-2"


def test_questions_wait_until_the_core_has_caught_up() -> None:
    core = Driver(caught_up=False).core
    submit = Submit(job=job_file(), key="k")
    assert core.handle(Asked(1, submit), 1.0) == []
    core.handle(submitted("train-1", key="k"), 1.0)
    [again] = core.handle(CaughtUp(), 2.0)
    assert again == Asked(1, submit)
    assert core.handle(again, 2.0) == [Reply(1, Submitted(job_id=JobId("train-1"), created=False))]


def test_the_questions_that_wait_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.admission.core.QUESTIONS_WAITING_MAX", 1)
    core = Driver(caught_up=False).core
    assert core.handle(Asked(1, ShowPolicy()), 1.0) == []
    (effect,) = core.handle(Asked(2, ShowPolicy()), 1.0)
    assert isinstance(effect, Reply)
    assert problem(effect.message).status == 503


def test_the_core_has_no_timers() -> None:
    core = Driver().core
    assert core.next_wakeup() is None
    assert core.wake(1.0) == []


def test_a_model_unknown_to_all_emulated_nodes_is_refused_with_the_list() -> None:
    driver = Driver()
    known = ("resnet50 on imagenet", "vgg16 on cifar10")
    driver.fold(msgspec.structs.replace(joined(), workloads=known))
    refused = problem(driver.submit())
    assert (refused.status, refused.field) == (422, "$.workload.model")
    assert refused.detail == (
        "no node can train resnet-50; did you mean resnet50?; the emulated nodes know resnet50, vgg16"
    )
    workload = {"model": "vgg16", "dataset": "imagenet", "batch_size": 1}
    refused = problem(driver.submit(key="another", workload=workload))
    assert refused.field == "$.workload.dataset"
    assert refused.detail == "no node can train vgg16 on imagenet; the emulated nodes know vgg16 on cifar10"
    workload = {"model": "vgg16", "dataset": "cifar10", "batch_size": 1}
    assert isinstance(driver.submit(key="other", workload=workload), Submitted)


def test_a_node_that_takes_any_job_is_enough() -> None:
    driver = Driver()
    driver.fold(msgspec.structs.replace(joined(), workloads=("vgg16 on cifar10",)), joined("n-1"))
    assert isinstance(driver.submit(), Submitted)


def test_a_job_without_a_command_is_refused_where_a_node_runs_real_ones() -> None:
    driver = Driver()
    driver.fold(joined())
    assert isinstance(driver.submit(), Submitted), "emulated nodes need no command"
    driver.fold(msgspec.structs.replace(joined("n-1"), runs_commands=True))
    refused = problem(driver.submit(key="other"))
    assert (refused.status, refused.field) == (422, "$.command")
    assert refused.detail == "is missing; n-1 starts jobs by their command"
    assert isinstance(driver.submit(key="third", command=["python", "train.py"]), Submitted)


def test_nodes_that_run_real_jobs_are_counted_when_they_are_many() -> None:
    driver = Driver()
    driver.fold(*[msgspec.structs.replace(joined(f"n-{number}"), runs_commands=True) for number in range(3)])
    refused = problem(driver.submit())
    assert refused.detail.startswith("is missing; n-0 and 2 more nodes start jobs by their command")


def test_a_command_is_no_longer_required_once_the_node_comes_back_emulated() -> None:
    driver = Driver()
    driver.fold(msgspec.structs.replace(joined(), runs_commands=True))
    driver.fold(msgspec.structs.replace(joined(), life="another"))
    assert isinstance(driver.submit(), Submitted)
