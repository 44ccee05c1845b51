import numpy as np
import pytest
from msgspec.structs import replace

from schemas.codec import decode_question, encode
from schemas.ids import Fingerprint
from schemas.plans import Layer
from schemas.questions import EstimateQuestion, Estimates
from services.planner.policies.contract import estimates as contract_estimates
from services.planner.policies.contract.checks import misfit
from services.planner.policies.contract.configurations import Configurations, configurations_for
from services.planner.policies.contract.estimates import (
    Inquiry,
    Remembered,
    estimated,
    hashes,
    inquiry,
    question,
)
from tests.services.planner.planner_builders import job, linear, nodes, present, view


def about(*names: str, demand: tuple[int, ...] = (1, 4), **workloads: str) -> Inquiry:
    jobs = [job(name, demand, workload=Fingerprint(workloads.get(name, ""))) for name in names]
    return inquiry(configurations_for(jobs, nodes(8, 3, 2), 1.4), view(jobs, nodes(8, 3, 2)))


def reply(throughput: list[float], layer: list[int]) -> Estimates:
    return Estimates(
        throughput=np.array(throughput).tobytes(),
        variance=b"",
        count=b"",
        layer=np.array(layer, dtype=np.uint8).tobytes(),
    )


def test_the_question_carries_the_columns() -> None:
    wanted = about("x", "y", y="resnet").asked
    asked = decode_question(encode(question(about("x", "y", y="resnet"))))
    assert isinstance(asked, EstimateQuestion)
    assert (asked.jobs, asked.nodes, asked.workloads) == (wanted.jobs, wanted.nodes, ("", "resnet"))
    for name in ("job", "start", "node", "gpus"):
        assert np.array_equal(np.frombuffer(getattr(asked, name), dtype="<i4"), getattr(wanted, name))


def sharing(*samples: int) -> Configurations:
    """One gang on two nodes, once for each pair of samples."""
    rows = len(samples) // 2
    plain = configurations_for([job("x", (2,))], nodes(1, 1), 1.4)
    return Configurations(
        jobs=plain.jobs,
        nodes=plain.nodes,
        job=np.zeros(rows, dtype=np.int32),
        start=np.arange(0, 2 * rows + 1, 2, dtype=np.int32),
        node=np.array([0, 1] * rows, dtype=np.int32),
        gpus=np.ones(2 * rows, dtype=np.int32),
        samples=np.array(samples, dtype=np.int32),
    )


def test_the_question_carries_shares() -> None:
    seen = view([job("x", (2,))], nodes(1, 1))
    asked = decode_question(encode(question(inquiry(sharing(0, 0, 3, 5), seen))))
    assert isinstance(asked, EstimateQuestion)
    assert np.frombuffer(asked.samples, dtype="<i4").tolist() == [0, 0, 3, 5]


def test_remembered_answers_are_distinguished_by_shares() -> None:
    seen = view([job("x", (2,))], nodes(1, 1))
    about_shares = inquiry(sharing(0, 0, 3, 5, 5, 3, 4, 4), seen)
    assert len(set(hashes(about_shares).tolist())) == 4
    memory = Remembered()
    memory.learn(about_shares, linear(about_shares.asked))
    assert memory.recall(inquiry(sharing(3, 5), seen)).known()
    assert not memory.recall(inquiry(sharing(2, 6), seen)).known()


def test_lockstep_is_remembered_alike_with_shares_beside_it_and_without() -> None:
    seen = view([job("x", (2,))], nodes(1, 1))
    plain = replace(sharing(0, 0), samples=np.empty(0, dtype=np.int32))
    assert hashes(inquiry(plain, seen)).tolist() == hashes(inquiry(sharing(0, 0, 1, 7), seen)).tolist()[:1]


@pytest.mark.parametrize(
    ("samples", "reason"),
    [
        ((0, 0, 3, 5), None),
        ((0, 0, 0, 5), "a row has samples for only some of its GPUs"),
        ((0, 0, -1, 5), "a row has samples for only some of its GPUs"),
    ],
)
def test_shares_that_do_not_fit_the_gpus_of_their_row_are_refused(
    samples: tuple[int, ...], reason: str | None
) -> None:
    assert misfit(view([job("x", (2,))], nodes(1, 1)), sharing(*samples)) == reason


def test_samples_of_some_cells_alone_are_refused() -> None:
    short = replace(sharing(3, 5), samples=np.array([3], dtype=np.int32))
    assert misfit(view([job("x", (2,))], nodes(1, 1)), short) == "not as many samples as nodes"


def test_jobs_of_one_workload_are_asked_about_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contract_estimates, "FEW", 0)
    shared = about("w", "x", "y", "z", x="resnet", z="resnet", w="bert", y="bert")
    assert np.array_equal(shared.asked.job, about("w", "x", w="bert", x="resnet").asked.job)
    assert len(shared.which) == 2 * len(shared.asked)


@pytest.mark.parametrize(("few", "saved"), [(17, True), (18, False)])
def test_every_configuration_gets_the_estimate_of_its_workload_on_its_gpus(
    few: int,
    saved: bool,  # noqa: FBT001
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of 18, those that repeat others are left out, unless so few are all asked about."""
    monkeypatch.setattr(contract_estimates, "FEW", few)
    jobs = [
        job(f"job-{index}", demand, workload=Fingerprint(workload), present=present(a0=2, a2=2))
        for index, (demand, workload) in enumerate([((1, 4), "r"), ((2, 4), "b"), ((4,), "r"), ((4,), "")])
    ]
    seen = view(jobs, nodes(8, 3, 2))
    wanted = configurations_for(jobs, seen.nodes, 1.4, stay=True)
    asked_about = inquiry(wanted, seen)
    asked, which = asked_about.asked, asked_about.which
    assert len(wanted) == 18
    assert (len(asked) < len(wanted)) == saved
    for row in range(len(wanted)):
        assert asked.at(which[row]) == wanted.at(row)
        names = (asked_about.workloads[job] for job in (asked.job[which[row]], wanted.job[row]))
        assert len(set(names)) == 1


def test_an_answer_that_is_no_throughput_is_unknown() -> None:
    answer = estimated(reply([5.0, float("nan"), 0.0, float("inf"), -1.0], [0, 1, 2, 2, 2]), 5)
    assert np.nan_to_num(answer.throughput, nan=-9).tolist() == [5.0, -9, -9, -9, -9]
    assert answer.layer_at(0) == Layer.ENTITY


@pytest.mark.parametrize("broken", [reply([1.0], [0]), reply([1.0, 2.0], [0, 9])])
def test_a_reply_of_another_shape_is_an_error(broken: Estimates) -> None:
    with pytest.raises(ValueError, match="for 2 configurations"):
        estimated(broken, 2)


def test_answers_are_remembered_across_plans() -> None:
    memory, learnt = Remembered(), about("x", "y")
    memory.learn(learnt, linear(learnt.asked))
    later = about("w", "y")
    recalled = memory.recall(later)
    known = later.asked.job == 1
    assert np.array_equal(recalled.throughput[known], linear(later.asked).throughput[known])
    assert np.isnan(recalled.throughput[~known]).all()
    assert recalled.layer_at(0) == Layer.CACHED


def test_answers_for_a_workload_hold_for_its_next_job() -> None:
    memory, learnt, later = Remembered(), about("x", x="resnet"), about("y", y="resnet")
    memory.learn(learnt, linear(learnt.asked))
    assert np.array_equal(memory.recall(later).throughput, linear(later.asked).throughput)


def test_the_last_estimate_counts() -> None:
    memory, learnt = Remembered(), about("x", demand=(1,))
    for factor in (1.0, 2.0):
        news = linear(learnt.asked)
        memory.learn(learnt, type(news)(throughput=news.throughput * factor, layer=news.layer))
    assert memory.recall(learnt).throughput.tolist() == [20.0, 20.0, 20.0]


def test_memory_has_a_limit() -> None:
    memory, first, second = Remembered(limit=6), about("x"), about("y")
    memory.learn(first, linear(first.asked))
    memory.learn(second, linear(second.asked))
    assert not memory.recall(first).known()
    assert memory.recall(second).known()


def test_estimates_are_sorted_in_once_there_are_more_rows_than_are_remembered() -> None:
    news = about("x", demand=(1,))
    memory = Remembered(limit=2 * len(news.asked))
    unsorted = []
    for _ in range(5):
        memory.learn(news, linear(news.asked))
        unsorted.append(len(memory._unsorted))
    assert unsorted == [1, 2, 0, 1, 2]
    assert memory.recall(news).known()


def test_different_configurations_have_different_hashes() -> None:
    jobs, cluster = [job(f"j{i}", tuple(range(1, 17))) for i in range(30)], nodes(*[8] * 30)
    learnt = inquiry(configurations_for(jobs, cluster, 1.4), view(jobs, cluster))
    assert len(np.unique(hashes(learnt))) == len(learnt.asked)
