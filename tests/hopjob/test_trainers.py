"""A job in a trainer's loop goes on after a restart as if there had been none."""

import re
from pathlib import Path

import pytest

from tests.hopjob.agent import SCRIPTS, Agent, Rank, stop

pytestmark = pytest.mark.torch

SAMPLES = 800


def end(rank: Rank) -> str:
    assert rank.end() == 0, rank.output()
    return rank.log.read_text().rpartition("end ")[2].partition("\n")[0]


@pytest.mark.parametrize("script", ["gan.py", "masks.py"])
def test_a_restart_changes_nothing(tmp_path: Path, script: str) -> None:
    whole, halves = tmp_path / "whole", tmp_path / "halves"
    whole.mkdir()
    halves.mkdir()
    job = {"HOPJOB_SAMPLES": SAMPLES, "HOPJOB_BATCH_SIZE": 8}
    with Agent(whole) as agent:
        [rank] = agent.run(SCRIPTS / script, **job)
        expected = end(rank)
    with Agent(halves) as agent:
        [before] = agent.run(SCRIPTS / script, **job, PACE=0.03)
        assert [one["elastic"] for one in before.said("up")] == [True]
        before.wait_for("observed")
        assert stop([before]) == [0], before.output()
        [after] = agent.run(SCRIPTS / script, **job, PACE=0.03)
        assert end(after) == expected
    done = before.said("stopped")[0]["samples"]
    assert 0 < done < SAMPLES
    assert min(one["samples"] for one in after.said("observed")) > done, "its progress goes on too"


def test_a_trainer_that_ends_by_its_own_settings_says_so(tmp_path: Path) -> None:
    with Agent(tmp_path) as agent:
        [rank] = agent.run(SCRIPTS / "masks.py", HOPJOB_SAMPLES=2 * SAMPLES, HOPJOB_BATCH_SIZE=8)
        assert rank.end() == 0, rank.output()
        assert rank.said("completed")[0]["samples"] == SAMPLES
        assert f"the script ended by itself after {SAMPLES} of {2 * SAMPLES} samples" in rank.output()


def test_the_ordered_rate_is_that_of_all_optimizers(tmp_path: Path) -> None:
    with Agent(tmp_path) as agent:
        [rank] = agent.run(SCRIPTS / "gan.py", HOPJOB_SAMPLES=400, HOPJOB_LEARNING_RATE=0.005)
        end(rank)
        rates = re.findall(r"^rates (.*)$", rank.log.read_text(), re.MULTILINE)
    assert (rates[0], rates[-1]) == ("[0.005, 0.01]", "[0.00125, 0.0025]")


def test_a_module_may_make_its_data_as_the_trainer_sets_it_up(tmp_path: Path) -> None:
    with Agent(tmp_path) as agent:
        [rank] = agent.run(SCRIPTS / "sets_up.py", LOADER="one", HOPJOB_SAMPLES=128)
        assert rank.end() == 0, rank.output()
        assert "trained in 16 updates" in rank.output()


@pytest.mark.parametrize(
    ("loader", "reason"),
    [
        ("two", "a trainer needs one DataLoader of torch, and has a dict"),
        ("endless", "a data set without indices cannot be dealt among ranks"),
        ("unbatched", "a loader with a batch sampler of its own, or without batches"),
        ("sampled", "a loader with a batch sampler of its own, or without batches"),
    ],
)
def test_what_cannot_be_dealt_is_refused_with_the_reason(tmp_path: Path, loader: str, reason: str) -> None:
    with Agent(tmp_path) as agent:
        [rank] = agent.run(SCRIPTS / "sets_up.py", LOADER=loader, HOPJOB_SAMPLES=128)
        assert rank.end() == 1
        assert reason in rank.last_word()["failed"]["reason"]
