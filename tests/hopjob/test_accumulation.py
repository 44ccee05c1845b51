"""A gang whose GPUs compute several batches of an update trains the model that one process would."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.hopjob.agent import Agent, stop
from tests.hopjob.test_elastic import LEDGER
from tests.hopjob.test_shares import NOISE, WEIGHED, ended

pytestmark = pytest.mark.torch

UPDATES = 2 * 120 // (6 * 4)
"""of two epochs, in updates of six batches of four"""
ALL: dict[str, Any] = {"PENALTY": 0.01, "CLIPPED": 0.2}
"""what a script does between two batches, and must do once an update"""


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> list[float]:
    """One process, over the same six batches an update."""
    [rank] = ended(tmp_path_factory.mktemp("of") / "alone", BATCH=4, ACCUMULATE=6, **ALL)
    assert rank["batches"] == 6 * UPDATES
    parameters: list[float] = rank["parameters"]
    return parameters


@pytest.mark.parametrize(
    ("tasks", "more"),
    [
        ("6", {"CLEARED": "before", "SCALED": 1}),
        ("1,3,2", {"CLEARED": "before"}),
        ("2,1", {"ACCUMULATE": 2}),
        ("2,4", {"HOPJOB_TURNS": 1}),
    ],
)
def test_an_update_is_the_same_wherever_its_batches_are_computed(
    tmp_path: Path, alone: list[float], tasks: str, more: dict[str, Any]
) -> None:
    counts = [int(one) * more.get("ACCUMULATE", 1) for one in tasks.split(",")]
    together = ended(tmp_path / "together", len(counts), BATCH=4, HOPJOB_TASKS=tasks, **ALL, **more)
    assert [rank["batches"] for rank in together] == [count * UPDATES for count in counts]
    for rank in together:
        assert rank["parameters"] == pytest.approx(alone, rel=NOISE, abs=NOISE)


def test_a_job_without_its_turn_computes_no_batch_and_can_be_stopped(tmp_path: Path) -> None:
    with Agent(tmp_path) as agent:
        agent.grants = False
        [rank] = agent.run(LEDGER, HOPJOB_TURNS=1, BATCH=4)
        for number in (1, 2):
            assert rank.wait_for("ready", number)["round"] == number
            assert len(rank.said("done")) == number - 1
            rank.tell(turn={"round": number - 1})  # a turn that nobody wants any more
            rank.tell(turn={"round": number, "next": 7 * number})
        ready = rank.wait_for("ready", 3)
        assert (ready["round"], ready["due"]) == (3, 14)
        assert stop([rank]) == [0]
        assert rank.said("stopped") == [{"samples": 8.0}]
        assert len(rank.said("done")) == 2


def test_a_rank_computes_in_its_turn_while_the_others_wait_for_theirs(tmp_path: Path) -> None:
    """DistributedDataParallel gives the buffers of a model to all ranks as a forward pass begins."""
    settings = {"BATCH": 4, "NORM": "batch"}
    plain = ended(tmp_path / "plain", 2, **settings)
    (tmp_path / "turns").mkdir()
    with Agent(tmp_path / "turns") as agent:
        agent.grants = False
        ranks = agent.run(WEIGHED, 2, HOPJOB_TURNS=1, **settings)
        updates = plain[0]["batches"]
        due = 0
        for number in range(1, updates + 1):
            for late, rank in enumerate((ranks[number % 2], ranks[1 - number % 2])):
                ready = rank.wait_for("ready", number)
                assert (ready["round"], ready["due"]) == (number, due)
                rank.tell(turn={"round": number, "next": 10 * number + late})
                rank.wait_for("done", number)
            due = 10 * number + 1  # the later of what the two agents say
        assert [rank.end() for rank in ranks] == [0, 0]
        turned = [json.loads(rank.log.read_text("utf-8").rpartition("end ")[2]) for rank in ranks]
    assert turned[0]["buffers"] == turned[1]["buffers"]
    for key in ("parameters", "buffers"):
        assert turned[0][key] == pytest.approx(plain[0][key], rel=NOISE, abs=NOISE)


def test_a_model_with_synchronised_layers_is_refused_in_turns(tmp_path: Path) -> None:
    with Agent(tmp_path) as agent:
        ranks = agent.run(WEIGHED, 2, HOPJOB_TURNS=1, BATCH=4, NORM="synced")
        assert [rank.end() for rank in ranks] == [1, 1]
        assert "no layer may talk to other ranks" in ranks[0].last_word()["failed"]["reason"]


def test_a_script_without_an_optimizer_step_fails_with_a_hint(tmp_path: Path) -> None:
    with Agent(tmp_path) as agent:
        [rank] = agent.run(WEIGHED, HOPJOB_TASKS="3", BATCH=4, NO_STEP=1)
        assert rank.end() == 1
        assert "attach(..., accumulate=N)" in rank.last_word()["failed"]["reason"]


def test_a_trainers_loop_refuses_rounds_of_tasks(tmp_path: Path) -> None:
    (tmp_path / "trainer.py").write_text(
        "import torch\n"
        "from hopjob.trainers import Stream\n"
        "Stream(torch.utils.data.DataLoader(range(64), batch_size=4), seed=0)\n"
    )
    with Agent(tmp_path) as agent:
        [rank] = agent.run(tmp_path / "trainer.py", HOPJOB_TASKS="3")
        assert rank.end() == 1
        assert "only a script with hopjob.attach" in rank.last_word()["failed"]["reason"]
