"""Ranks with unlike shares of a batch train the model that one process with the whole batch would."""

import json
from pathlib import Path
from statistics import mean
from typing import Any

import pytest

from tests.hopjob.agent import SCRIPTS, Agent, stop
from tests.hopjob.ledgers import losses, trained
from tests.hopjob.test_elastic import BATCH, DATASET, LEDGER, exact

pytestmark = pytest.mark.torch

WEIGHED = SCRIPTS / "weighed.py"
NOISE = 1e-12


def ended(folder: Path, world: int = 1, **environment: Any) -> list[dict[str, Any]]:  # noqa: ANN401
    """What each rank wrote at its end."""
    folder.mkdir()
    with Agent(folder) as agent:
        ranks = agent.run(WEIGHED, world, **environment)
        assert [rank.end() for rank in ranks] == [0] * world, ranks[0].output()
        return [json.loads(rank.log.read_text("utf-8").rpartition("end ")[2]) for rank in ranks]


@pytest.mark.parametrize(
    ("shares", "sizes", "more"),
    [
        ("7,4,1", (7, 4, 1), {}),
        ("4,4,4", (4, 4, 4), {}),
        ("7,4,1", (7, 4, 1), {"PENALTY": 0.01}),
        ("7,4,1", (7, 4, 1), {"GIVEN": 1}),
        ("14,8,2", (7, 4, 1), {"ACCUMULATE": 2}),
        ("7,4,1", (7, 4, 1), {"CHECKPOINTING": "reentrant"}),
        ("7,4,1", (7, 4, 1), {"CHECKPOINTING": "not reentrant"}),
        ("7,4,1", (7, 4, 1), {"UNTOLD": 1, "CHECKPOINTING": "reentrant"}),
        ("14,8,2", (7, 4, 1), {"UNTOLD": 1, "ACCUMULATE": 2}),
    ],
)
def test_the_gradient_is_that_of_the_whole_batch(
    tmp_path: Path, shares: str, sizes: tuple[int, ...], more: dict[str, Any]
) -> None:
    [alone] = ended(tmp_path / "alone", BATCH=12, **more)
    together = ended(tmp_path / "together", 3, BATCH=4, HOPJOB_SHARES=shares, **more)
    assert [tuple(rank["sizes"]) for rank in together] == [(size,) for size in sizes]
    for rank in together:
        assert rank["parameters"] == pytest.approx(alone["parameters"], rel=NOISE, abs=NOISE)


def test_a_torch_version_without_a_needed_hook_is_named(tmp_path: Path) -> None:
    """Where it would matter: ranks with equal shares weigh nothing."""
    said = {}
    for shares in ("7,4,1", ""):
        folder = tmp_path / (shares or "equal")
        folder.mkdir()
        with Agent(folder) as agent:
            ranks = agent.run(WEIGHED, 3, BATCH=4, UNTOLD=1, HOPJOB_SHARES=shares)
            assert [rank.end() for rank in ranks] == [0] * 3
            said[shares] = "does not tell which backward pass a thread runs" in ranks[0].log.read_text(
                "utf-8"
            )
    assert said == {"7,4,1": True, "": False}


def test_without_weights_the_gradient_would_differ(tmp_path: Path) -> None:
    """So the test above would see them missing: ranks of 7, 4 and 1 samples, each as much as the others."""
    [alone] = ended(tmp_path / "alone", BATCH=12)
    [other] = ended(tmp_path / "other", BATCH=11)
    assert alone["parameters"] != pytest.approx(other["parameters"], rel=1e-3)


def test_every_sample_is_trained_on_once_from_shares_to_other_shares(tmp_path: Path) -> None:
    with Agent(tmp_path) as agent:
        before: list[float] = []
        samples = 0.0
        job = {"EPOCHS": 12, "DATASET": DATASET, "BATCH": BATCH}
        for shares, stopped in (("27,5", True), ("30,11,7", True), ("", True), ("3,29", False)):
            world = shares.count(",") + 1
            ranks = agent.run(LEDGER, world, **job, PACE=0.04 * stopped, HOPJOB_SHARES=shares)
            assert ranks[0].said("up")[0]["samples"] == samples
            if stopped:
                ranks[0].wait_for("observed", 2)
                assert ranks[0].said("observed")[-1]["batch"] == world * BATCH
                assert stop(ranks) == [0] * world
                samples = ranks[0].said("stopped")[0]["samples"]
            else:
                assert [rank.end() for rank in ranks] == [0] * world
            if before:
                assert mean(losses(ranks[0])[:10]) < 2.0 * mean(before[-10:]) + 0.1
            before = losses(ranks[0])
    exact(trained(tmp_path), epochs=12, most_left_out=3 * BATCH)
