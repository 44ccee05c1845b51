"""What a job draws at random does not change with a restart. Ranks differ in it where they should."""

import re
import subprocess
from pathlib import Path

import pytest

from tests.hopjob.agent import SCRIPTS, Agent, Rank, stop, surroundings
from tests.torch_python import torch_python

pytestmark = pytest.mark.torch

DRAWS = SCRIPTS / "draws.py"


def drawn(*ranks: Rank) -> dict[str, str]:
    """What was drawn for each batch, by the samples before it."""
    lines = "".join(rank.log.read_text() for rank in ranks)
    return dict(re.findall(r"^at (\d+): (.*)$", lines, re.MULTILINE))


def held_out(rank: Rank) -> str:
    return rank.log.read_text().splitlines()[0]


def test_a_restart_changes_nothing_that_is_drawn(tmp_path: Path) -> None:
    whole, halves = tmp_path / "whole", tmp_path / "halves"
    whole.mkdir()
    halves.mkdir()
    with Agent(whole) as agent:
        [rank] = agent.run(DRAWS)
        assert rank.end() == 0, rank.output()
        expected = drawn(rank)
    with Agent(halves) as agent:
        [before] = agent.run(DRAWS, PACE=0.05)
        before.wait_for("observed", 2)
        assert stop([before]) == [0], before.output()
        [after] = agent.run(DRAWS)
        assert after.end() == 0, after.output()
    assert held_out(before) == held_out(after) == held_out(rank)
    assert drawn(before, after) == expected
    assert len(drawn(after)) < len(expected) == 2 * 400 / 8


def test_ranks_hold_the_same_samples_out_and_draw_other_augmentations(tmp_path: Path) -> None:
    with Agent(tmp_path) as agent:
        ranks = agent.run(DRAWS, 2)
        assert [rank.end() for rank in ranks] == [0, 0], ranks[0].output()
        assert held_out(ranks[0]) == held_out(ranks[1])
        numbers = [re.findall(r"\[(\d\.[^]]+)\]", "".join(drawn(rank).values())) for rank in ranks]
        first, second = ({one for text in texts for one in text.split(", ")} for texts in numbers)
        assert len(first) == len(second) == 400
        assert not first & second


ORDERS = """
import random, torch
from torch.utils.data import RandomSampler
from hopjob.batches import epoch_order
seeded = []
torch.cuda.manual_seed_all = seeded.append
torch.manual_seed(3)
del seeded[:]
before = torch.get_rng_state(), random.getstate()
first, second = (epoch_order(RandomSampler(range(50)), 1, epoch) for epoch in (0, 1))
assert sorted(first) == sorted(second) == list(range(50)) and first != second
assert torch.equal(torch.get_rng_state(), before[0]) and random.getstate() == before[1]
assert not seeded, "dropout on a GPU would not go on where it was"
"""


def test_the_order_of_an_epoch_disturbs_no_other_numbers() -> None:
    environment = {key: str(value) for key, value in surroundings().items()}
    ran = subprocess.run(
        [torch_python(), "-c", ORDERS], env=environment, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
