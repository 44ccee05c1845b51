import numpy as np
import pytest
from planner_builders import job, linear, nodes

from schemas.codec import decode_question, encode
from schemas.plans import Layer
from schemas.questions import EstimateQuestion, Estimates
from services.planner.configurations import Configurations, configurations_for
from services.planner.estimates import Remembered, estimated, hashes, question


def columns(*names: str, demand: tuple[int, ...] = (1, 4)) -> Configurations:
    return configurations_for([job(name, demand) for name in names], nodes(8, 3, 2), 1.4)


def reply(throughput: list[float], layer: list[int]) -> Estimates:
    return Estimates(
        throughput=np.array(throughput).tobytes(),
        variance=b"",
        count=b"",
        layer=np.array(layer, dtype=np.uint8).tobytes(),
    )


def test_the_question_carries_the_columns() -> None:
    wanted = columns("x", "y")
    asked = decode_question(encode(question(wanted)))
    assert isinstance(asked, EstimateQuestion)
    assert (asked.jobs, asked.nodes) == (wanted.jobs, wanted.nodes)
    for name in ("job", "start", "node", "gpus"):
        assert np.array_equal(np.frombuffer(getattr(asked, name), dtype="<i4"), getattr(wanted, name))


def test_what_is_not_a_throughput_is_unknown() -> None:
    answer = estimated(reply([5.0, float("nan"), 0.0, float("inf"), -1.0], [0, 1, 2, 2, 2]), 5)
    assert np.nan_to_num(answer.throughput, nan=-9).tolist() == [5.0, -9, -9, -9, -9]
    assert answer.layer_at(0) == Layer.ENTITY


@pytest.mark.parametrize("broken", [reply([1.0], [0]), reply([1.0, 2.0], [0, 9])])
def test_a_reply_of_another_shape_is_an_error(broken: Estimates) -> None:
    with pytest.raises(ValueError, match="for 2 configurations"):
        estimated(broken, 2)


def test_known_configurations_are_remembered_across_plans() -> None:
    memory, wanted = Remembered(), columns("x", "y")
    memory.learn(wanted, linear(wanted))
    later = columns("w", "y")
    recalled = memory.recall(later)
    known = later.job == 1
    assert np.array_equal(recalled.throughput[known], linear(later).throughput[known])
    assert np.isnan(recalled.throughput[~known]).all()
    assert recalled.layer_at(0) == Layer.CACHED


def test_the_last_estimate_counts() -> None:
    memory, wanted = Remembered(), columns("x", demand=(1,))
    for factor in (1.0, 2.0):
        news = linear(wanted)
        memory.learn(wanted, type(news)(throughput=news.throughput * factor, layer=news.layer))
    assert memory.recall(wanted).throughput.tolist() == [20.0, 20.0, 20.0]


def test_memory_has_a_limit() -> None:
    memory, first, second = Remembered(limit=6), columns("x"), columns("y")
    memory.learn(first, linear(first))
    memory.learn(second, linear(second))
    assert not memory.recall(first).known()
    assert memory.recall(second).known()


def test_different_configurations_have_different_hashes() -> None:
    wanted = configurations_for([job(f"j{i}", tuple(range(1, 17))) for i in range(30)], nodes(*[8] * 30), 1.4)
    assert len(np.unique(hashes(wanted))) == len(wanted)
