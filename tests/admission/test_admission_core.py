"""The core: what is accepted, refused, known again, cancelled."""

from typing import Any

import msgspec
import pytest
from admission_world import Desk, job_file, joined, node, submitted

from schemas.codec import decode_fact, encode
from schemas.events import JobCancelled, JobSubmitted, NodeDrained, NodeRestored, PolicyChosen
from schemas.ids import JobId, NodeId
from schemas.jobs import Checkpoint
from schemas.views import Cancelled, JobView, NodeDrain, PolicyChoice, Problem, Submitted
from services.admission.core import CaughtUp
from services.admission.questions import Cancel, SetDrain, SetPolicy, ShowFresh, ShowPolicy, Submit
from services.admission.state import AdmissionState
from shared.domain.core import Asked, Reply
from shared.domain.demand import job_spec


def problem(reply: object) -> Problem:
    assert isinstance(reply, Problem)
    return reply


def cancel(job_id: str) -> Cancel:
    return Cancel(job_id=JobId(job_id))


def test_a_job_is_accepted_under_its_name_and_a_running_number() -> None:
    desk = Desk()
    assert desk.submit(name="bert") == Submitted(job_id=JobId("bert-1"), created=True)
    assert desk.submit(name="vit") == Submitted(job_id=JobId("vit-2"), created=True)


def test_an_accepted_job_is_told_with_every_choice_made() -> None:
    desk = Desk()
    desk.submit(key="k", gpus={"min": 1, "max": 4, "choices": 2}, gpu_types=["v100", "k80"])
    (fact,) = desk.told
    assert isinstance(fact, JobSubmitted)
    assert (fact.at, fact.key, fact.spec.demand) == (1.0, "k", (1, 4))
    assert fact.spec.gpu_types == ("k80", "v100")


@pytest.mark.parametrize(
    ("job", "field"),
    [
        ({"gpus": 5_000}, "$.gpus"),
        ({"gpus": [1, 5_000]}, "$.gpus[1]"),
        ({"gpus": {"min": 1, "max": 5_000}}, "$.gpus.max"),
        ({"gpus": {"min": 4, "max": 2}}, "$.gpus.max"),
        ({"gpus": [12, 16]}, "$.gpus"),
        ({"gpus": [6], "gpu_types": ["k80"]}, "$.gpus"),
        ({"gpu_types": ["v100", "h100"]}, "$.gpu_types[1]"),
        ({"samples": None}, "$.samples"),
        ({"epochs": 3}, "$.epochs"),
        ({"samples": None, "epochs": 3}, "$.workload.dataset_samples"),
        ({"learning_rates": {1: 0.1}}, "$.learning_rates"),
        ({"command": ["x" * 300_000]}, "$.command"),
    ],
)
def test_a_job_that_cannot_be_is_refused_by_field_and_leaves_nothing(job: dict[str, Any], field: str) -> None:
    desk = Desk(nodes=(node("a", "v100", 8), node("b", "k80", 4)))
    before = msgspec.msgpack.encode(desk.core.state)
    refused = problem(desk.submit(**job))
    assert (refused.status, refused.field) == (422, field)
    assert desk.told == []
    assert msgspec.msgpack.encode(desk.core.state) == before


def test_a_count_out_of_reach_stays_in_the_demand_beside_one_that_is_not() -> None:
    desk = Desk(nodes=(node(gpus=8),))
    desk.submit(gpus=[8, 64])
    (fact,) = desk.told
    assert isinstance(fact, JobSubmitted)
    assert fact.spec.demand == (8, 64)


def test_with_no_node_known_any_gpu_type_is_taken() -> None:
    assert isinstance(Desk().submit(gpu_types=["h100"], gpus=100), Submitted)


def test_a_node_that_joined_makes_its_type_known() -> None:
    desk = Desk(nodes=(node("a", "v100"),))
    assert problem(desk.submit(gpu_types=["h100"])).field == "$.gpu_types[0]"
    desk.fold(joined("b", "h100"))
    assert isinstance(desk.submit(gpu_types=["h100"]), Submitted)


def test_a_node_in_the_file_that_joins_counts_once() -> None:
    desk = Desk(nodes=(node("n-0", gpus=8),))
    desk.fold(joined("n-0", gpus=8))
    assert problem(desk.submit(gpus=16)).field == "$.gpus"


def test_the_same_key_is_the_same_job() -> None:
    desk = Desk()
    first = desk.submit(key="k")
    assert desk.submit(key="k") == Submitted(job_id=JobId("train-1"), created=False)
    assert first == Submitted(job_id=JobId("train-1"), created=True)
    assert len(desk.told) == 1


def test_the_same_key_is_the_same_job_while_the_first_is_in_flight() -> None:
    desk = Desk()
    desk.held = True
    desk.submit(key="k")
    assert desk.submit(key="k") == Submitted(job_id=JobId("train-1"), created=False)
    assert {fact.event_id for fact in desk.told} == {"job.submitted/train-1"}


OTHERS: list[dict[str, Any]] = [{"name": "other"}, {"gpus": 3}, {"samples": 2e6}, {"samples": None}]


@pytest.mark.parametrize("other", OTHERS)
@pytest.mark.parametrize("held", [True, False])
def test_a_key_is_of_one_job_alone(other: dict[str, Any], *, held: bool) -> None:
    desk = Desk()
    desk.held = held
    desk.submit(key="k")
    refused = problem(desk.submit(key="k", **other))
    assert (refused.status, "train-1" in str(refused.detail)) == (422, True)
    assert {fact.event_id for fact in desk.told} == {"job.submitted/train-1"}


@pytest.mark.parametrize("number", [3, 3.0, 3.3333333333333335])
def test_a_job_is_known_again_after_its_way_through_the_stream(number: float) -> None:
    file = msgspec.structs.replace(
        job_file(),
        samples=number,
        priority=number,
        learning_rates=dict.fromkeys((1, 2, 4), number),
        checkpoint=Checkpoint(interval_s=number),
    )
    told = JobSubmitted(at=1.0, job_id=JobId("train-1"), spec=job_spec(file), key="k")
    read = decode_fact(encode(told))
    assert isinstance(read, JobSubmitted)
    desk = Desk()
    desk.fold(read)
    answer = desk.ask(Submit(job=file, key="k"))
    assert answer == Submitted(job_id=JobId("train-1"), created=False)


def test_the_key_of_an_ended_job_is_still_known() -> None:
    desk = Desk()
    desk.submit(key="k")
    desk.ask(cancel("train-1"))
    assert desk.submit(key="k") == Submitted(job_id=JobId("train-1"), created=False)


def test_two_jobs_in_flight_have_two_numbers() -> None:
    desk = Desk()
    desk.held = True
    assert desk.submit_id(key="a") != desk.submit_id(key="b")


def test_a_job_id_that_somebody_else_told_of_is_passed_over() -> None:
    desk = Desk()
    desk.fold(submitted("train-2", key="foreign"))
    assert desk.submit_id() == "train-3"


def test_unfinished_jobs_are_limited_and_those_in_flight_count() -> None:
    desk = Desk(jobs_open_max=2)
    desk.submit()
    desk.held = True
    desk.submit()
    assert problem(desk.submit()).status == 429
    desk.release()
    desk.ask(cancel("train-1"))
    assert isinstance(desk.submit(), Submitted)


def test_a_known_key_is_answered_at_the_limit() -> None:
    desk = Desk(jobs_open_max=1)
    desk.submit(key="k")
    assert isinstance(desk.submit(key="k"), Submitted)


def test_a_cancelled_job_has_ended() -> None:
    desk = Desk()
    job_id = desk.submit_id()
    assert desk.ask(cancel(job_id)) == Cancelled(job_id=job_id)
    assert desk.told[-1] == JobCancelled(at=2.0, job_id=job_id)
    assert desk.core.state.open == {}


def test_a_job_in_flight_can_be_cancelled() -> None:
    desk = Desk()
    desk.held = True
    job_id = desk.submit_id()
    assert isinstance(desk.ask(cancel(job_id)), Cancelled)
    desk.release()
    assert desk.core.state.ended[job_id].state == "cancelled"


def test_cancelling_an_ended_job_is_a_conflict() -> None:
    desk = Desk()
    job_id = desk.submit_id()
    desk.ask(cancel(job_id))
    assert problem(desk.ask(cancel(job_id))).status == 409
    assert len(desk.told) == 2


def test_cancelling_an_unknown_job_says_so() -> None:
    assert problem(Desk().ask(cancel("nobody-1"))).status == 404


def test_a_fresh_job_can_be_shown_in_flight_and_after() -> None:
    desk = Desk()
    desk.held = True
    job_id = desk.submit_id()
    for _ in range(2):
        view = desk.ask(ShowFresh(job_id=job_id))
        assert isinstance(view, JobView)
        assert (view.job_id, view.state, view.submitted_at) == (job_id, "submitted", 1.0)
        desk.release()


def test_a_job_that_went_on_is_left_to_the_monitor() -> None:
    desk = Desk()
    job_id = desk.submit_id()
    desk.ask(cancel(job_id))
    assert problem(desk.ask(ShowFresh(job_id=job_id))).status == 503
    assert problem(desk.ask(ShowFresh(job_id=JobId("nobody-1")))).status == 404


def test_a_node_is_drained_and_restored() -> None:
    desk = Desk()
    desk.fold(joined("n-0"))
    n_0 = NodeId("n-0")
    assert desk.ask(SetDrain(node_id=n_0, draining=True)) == NodeDrain(node_id=n_0, draining=True)
    assert desk.ask(SetDrain(node_id=n_0, draining=False)) == NodeDrain(node_id=n_0, draining=False)
    assert desk.told == [NodeDrained(at=1.0, node_id=n_0), NodeRestored(at=2.0, node_id=n_0)]


def test_a_node_that_never_joined_cannot_be_drained() -> None:
    desk = Desk(nodes=(node("n-0"),))
    assert problem(desk.ask(SetDrain(node_id=NodeId("n-0"), draining=True))).status == 404


@pytest.mark.parametrize("policy", ["fifo", "lab.policies.mine:Mine"])
def test_a_policy_is_chosen_by_name_or_attribute(policy: str) -> None:
    desk = Desk()
    assert desk.ask(ShowPolicy()) == PolicyChoice(policy="hops")
    assert desk.ask(SetPolicy(policy=policy)) == PolicyChoice(policy=policy)
    assert desk.told == [PolicyChosen(at=2.0, policy=policy)]
    assert desk.ask(ShowPolicy()) == PolicyChoice(policy=policy)


def test_the_subject_of_a_policy_keeps_its_four_parts() -> None:
    assert PolicyChosen(at=0.0, policy="a.b:C").subject.count(".") == 3


@pytest.mark.parametrize("policy", ["sia", "", "a b:c", "a:b:c", "a.b", "m:" + "x" * 300])
def test_an_unknown_policy_is_refused(policy: str) -> None:
    desk = Desk()
    assert problem(desk.ask(SetPolicy(policy=policy))).field == "$.policy"
    assert desk.told == []


def test_a_restart_knows_jobs_keys_nodes_and_policy_and_goes_on_counting() -> None:
    desk = Desk()
    desk.fold(joined("n-0"))
    desk.submit(key="k")
    desk.ask(SetPolicy(policy="fifo"))
    again = Desk()
    again.core.state = msgspec.msgpack.decode(msgspec.msgpack.encode(desk.core.state), type=AdmissionState)
    assert again.core.state == desk.core.state
    assert again.core.resume(5.0) == []
    assert again.submit(key="k") == Submitted(job_id=JobId("train-1"), created=False)
    assert again.submit_id() == "train-2"


def test_questions_wait_until_the_core_has_caught_up() -> None:
    core = Desk(caught_up=False).core
    submit = Submit(job=job_file(), key="k")
    assert core.handle(Asked(1, submit), 1.0) == []
    core.handle(submitted("train-1", key="k"), 1.0)
    assert core.handle(CaughtUp(), 2.0) == [Reply(1, Submitted(job_id=JobId("train-1"), created=False))]


def test_the_questions_that_wait_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.admission.core.QUESTIONS_WAITING_MAX", 1)
    core = Desk(caught_up=False).core
    assert core.handle(Asked(1, ShowPolicy()), 1.0) == []
    (effect,) = core.handle(Asked(2, ShowPolicy()), 1.0)
    assert isinstance(effect, Reply)
    assert problem(effect.message).status == 503


def test_the_core_has_no_timers() -> None:
    core = Desk().core
    assert core.next_wakeup() is None
    assert core.wake(1.0) == []
