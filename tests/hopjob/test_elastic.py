"""A job on real processes goes from one number of ranks to another: nothing twice, nothing lost."""

import signal
from collections import Counter
from pathlib import Path
from statistics import mean
from typing import Any

import pytest

from shared.runtime.process.ports import HeldPorts
from tests.hopjob.agent import SCRIPTS, Agent, Rank, go, kill, stop
from tests.hopjob.ledgers import learning_rates, losses, trained

pytestmark = pytest.mark.torch

LEDGER = SCRIPTS / "ledger.py"
DATASET, BATCH, EPOCHS = 1000, 16, 6


def test_samples_are_exact_over_1_2_1_3_ranks(tmp_path: Path) -> None:
    with Agent(tmp_path, forks=False) as agent:
        before: list[Rank] = []
        for world, stopped in ((1, True), (2, True), (1, True), (3, False)):
            ranks = agent.run(LEDGER, world, EPOCHS=EPOCHS, PACE=0.02, DATASET=DATASET, BATCH=BATCH)
            if before:
                assert ranks[0].said("up")[0]["samples"] == before[0].said("stopped")[0]["samples"]
            if stopped:
                ranks[0].wait_for("observed", 2)
                assert stop(ranks) == [0] * world
                assert ranks[0].said("saved")[-1]["why"] == "stop"
                assert ranks[0].last_word() == {"stopped": ranks[0].said("stopped")[0]}
            else:
                assert [rank.end() for rank in ranks] == [0] * world
                assert ranks[0].said("completed") == [{"samples": float(EPOCHS * DATASET)}]
            if before:
                assert mean(losses(ranks[0])[:10]) < 1.6 * mean(losses(before[0])[-10:]) + 0.1
            before = ranks
    exact(trained(tmp_path), epochs=EPOCHS, most_left_out=3 * BATCH)


def test_a_job_that_accumulates_stops_between_two_updates(tmp_path: Path) -> None:
    with Agent(tmp_path) as agent:
        job: dict[str, Any] = {"EPOCHS": 2, "PACE": 0.02, "ACCUMULATE": 4, "BATCH": 8, "DATASET": DATASET}
        ranks = agent.run(LEDGER, 2, **job)
        ranks[0].wait_for("observed", 2)
        assert ranks[0].said("observed")[-1]["batch"] == 2 * 4 * 8
        assert stop(ranks) == [0, 0]
        assert ranks[0].said("stopped")[0]["samples"] % DATASET % (2 * 4 * 8) == 0
        [rank] = agent.run(LEDGER, **job, DECLARED=1)
        assert rank.end() == 0
    exact(trained(tmp_path), epochs=2, most_left_out=2 * 4 * 8)


def test_the_same_number_of_ranks_goes_on_bit_by_bit(tmp_path: Path) -> None:
    """With dropout, momentum and workers that load."""
    whole, halves = tmp_path / "whole", tmp_path / "halves"
    whole.mkdir()
    halves.mkdir()
    job = {"EPOCHS": 2, "DATASET": 400, "WORKERS": 1}
    with Agent(whole) as agent:
        [rank] = agent.run(LEDGER, **job)
        assert rank.end() == 0
        expected = rank.output().rpartition("end ")[2]
    with Agent(halves) as agent:
        [rank] = agent.run(LEDGER, **job, PACE=0.05)
        rank.wait_for("observed", 2)
        assert stop([rank]) == [0]
        [rank] = agent.run(LEDGER, **job)
        assert rank.end() == 0
        assert rank.said("up")[0]["samples"] > 0
        assert rank.output().rpartition("end ")[2] == expected


@pytest.mark.parametrize("asked", [0, 1])
def test_a_signal_to_one_rank_stops_all(tmp_path: Path, asked: int) -> None:
    with Agent(tmp_path) as agent:
        ranks = agent.run(LEDGER, 2, EPOCHS=1000, PACE=0.02)
        ranks[0].wait_for("observed")
        ranks[asked].process.send_signal(signal.SIGTERM)
        assert [rank.end() for rank in ranks] == [0, 0]
        assert [len(rank.said("stopped")) for rank in ranks] == [1, 1]


def test_a_rank_stops_while_it_waits_for_the_others(tmp_path: Path) -> None:
    with Agent(tmp_path) as agent:
        ranks = agent.start(LEDGER, 2)
        ranks[0].wait_for("up")
        ranks[1].wait_for("up")
        assert kill(ranks[:1], signal.SIGTERM) == [0]
        assert stop(ranks[1:]) == [0]
        assert ranks[0].last_word() == ranks[1].last_word() == {"stopped": {"samples": 0.0}}


def test_the_learning_rate_is_set_as_ordered(tmp_path: Path) -> None:
    with Agent(tmp_path) as agent:
        ranks = agent.run(LEDGER, 2, EPOCHS=1000, PACE=0.02, HOPJOB_LEARNING_RATE=0.04)
        ranks[0].wait_for("observed", 2)
        stop(ranks)
        assert set(learning_rates(ranks[0])) == {0.04}
        [rank] = agent.run(LEDGER, EPOCHS=1000, PACE=0.02, HOPJOB_LEARNING_RATE=0.02)
        rank.wait_for("observed", 2)
        stop([rank])
        assert set(learning_rates(rank)) == {0.02}
        ranks = agent.run(LEDGER, 3, EPOCHS=1000, PACE=0.002, HOPJOB_LEARNING_RATE=0.06)
        ranks[0].wait_for("observed", 4)
        stop(ranks)
        grown = learning_rates(ranks[0])
        assert grown[0] < 0.025  # by and by
        assert grown == sorted(grown)
        assert grown[-1] == pytest.approx(0.06)


def test_the_script_runs_by_itself_too(tmp_path: Path) -> None:
    """No agent, no checkpoints; the interpreter ends as always."""
    with Agent(tmp_path) as agent:
        nothing: dict[str, Any] = {"HOPJOB_SOCKET": "", "HOPJOB_CHECKPOINTS": "", "HOPJOB_LAST": ""}
        [rank] = agent.start(LEDGER, launched=False, EPOCHS=1, **nothing)
        assert rank.end() == 0, rank.output()
        assert "end " in rank.output()
        assert rank.words == []
    exact(trained(tmp_path), epochs=1, most_left_out=BATCH)


ENDED = {0, -signal.SIGABRT}
"""exit codes of a rank that outlives rank 0: torch may abort once the store is gone, after all is said"""


def test_a_script_that_is_not_launched_by_us_says_that_it_is_complete(tmp_path: Path) -> None:
    with Agent(tmp_path) as agent:
        ranks = agent.start(LEDGER, 2, launched=False, EPOCHS=1)
        go(ranks)
        assert ranks[0].end() == 0
        assert ranks[1].end() in ENDED
        assert ranks[0].said("completed") == [{"samples": float(DATASET)}]


def test_ranks_of_a_command_that_is_no_script_meet_where_the_agent_says(tmp_path: Path) -> None:
    [port] = HeldPorts("").ports
    with Agent(tmp_path) as agent:
        ranks = agent.start(LEDGER, 2, launched=False, EPOCHS=1, MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
        for rank in ranks:
            rank.wait_for("up")
            rank.tell(go={"host": "127.0.0.1", "port": port})
        assert ranks[0].process.wait(60.0) == 0
        assert ranks[1].process.wait(60.0) in ENDED
        assert ranks[0].said("completed") == [{"samples": float(DATASET)}]


def exact(times: Counter[tuple[int, int]], *, epochs: int, most_left_out: int) -> None:
    """Each sample of each epoch at most once, and all but the epoch's remainder."""
    assert set(times.values()) == {1}
    for epoch in range(epochs):
        done = sum(1 for which, _ in times if which == epoch)
        assert DATASET - most_left_out < done <= DATASET
