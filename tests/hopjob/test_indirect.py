"""A script that calls `attach` through a module that it imports is like one that calls it itself."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.hopjob.agent import SCRIPTS, Agent, go, stop

pytestmark = pytest.mark.torch

INDIRECT, LEDGER, PLAIN = SCRIPTS / "indirect.py", SCRIPTS / "ledger.py", SCRIPTS / "plain.py"
NOTHING = "its script does not call attach"
JOB: dict[str, Any] = {"SCRIPT": LEDGER, "EPOCHS": 1000, "PACE": 0.01, "HOPJOB_BATCH_SIZE": 16}
COPY: dict[str, Any] = {"HOPJOB_UNTIL": 320, "HOPJOB_NODE": "n"}


@pytest.mark.parametrize("world", [1, 2])
def test_it_goes_on_where_it_was(tmp_path: Path, world: int) -> None:
    with Agent(tmp_path) as agent:
        ranks = agent.run(INDIRECT, world, **JOB)
        ranks[0].wait_for("observed", 3)
        assert stop(ranks) == [0] * world, ranks[0].output()
        done = ranks[0].last_word()["stopped"]["samples"]
        ranks = agent.run(INDIRECT, world, **JOB)
        ranks[0].wait_for("observed", 4)
        assert stop(ranks) == [0] * world, ranks[0].output()
    ups = [{"samples": up["samples"], "elastic": up["elastic"]} for up in ranks[0].said("up")]
    assert ups == [{"samples": done, "elastic": False}, {"samples": done, "elastic": True}]
    seen = [done, *(one["samples"] for one in ranks[0].said("observed"))]
    assert all(earlier < later for earlier, later in pairwise(seen)), "one reports, and not from 0"


def test_it_trains_as_a_copy_and_with_several_batches(tmp_path: Path) -> None:
    with Agent(tmp_path) as agent:
        [rank] = agent.run(INDIRECT, **JOB, **COPY, HOPJOB_SAMPLES=320)
        assert rank.end() == 0, rank.output()
        assert rank.last_word()["completed"]["samples"] >= 320
        [rank] = agent.run(INDIRECT, **JOB, HOPJOB_TASKS="2", HOPJOB_SAMPLES=640)
        assert rank.end() == 0, rank.output()
        assert rank.last_word()["completed"]["samples"] >= 640


@pytest.mark.parametrize("order", [COPY, {"HOPJOB_TASKS": "2"}, {"HOPJOB_TURNS": 1}])
def test_a_script_that_does_not_attach_fails_at_its_first_update(tmp_path: Path, order: Any) -> None:  # noqa: ANN401
    with Agent(tmp_path) as agent:
        [rank] = agent.run(PLAIN, **order)
        assert rank.end() == 1
        assert NOTHING in rank.last_word()["failed"]["reason"]
        assert "iteration" not in rank.output()


@pytest.mark.parametrize("text", ["", "import hopjob"])
def test_a_script_that_does_not_train_completes_no_copy(tmp_path: Path, text: str) -> None:
    (tmp_path / "nothing.py").write_text(text)
    with Agent(tmp_path) as agent:
        [rank] = agent.start(tmp_path / "nothing.py", **COPY)
        if not text:
            go([rank])
        assert rank.end() == 1
        assert NOTHING in rank.last_word()["failed"]["reason"]
