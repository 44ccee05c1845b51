"""What is measured of a script, with and without a line of hopyard's in it."""

import re
import signal
from pathlib import Path
from statistics import mean, median

import pytest

from tests.hopjob.agent import SCRIPTS, Agent, kill, stop

pytestmark = pytest.mark.torch

PLAIN, LEDGER, WEIGHED = SCRIPTS / "plain.py", SCRIPTS / "ledger.py", SCRIPTS / "weighed.py"
PARTS = ("data_s", "forward_s", "backward_s", "update_s")
LOAD_S, COMPUTE_S, ACCUMULATE = 0.004, 0.006, 2
SLACK = 3.0
"""how many times longer than asked for a sleep may take on a crowded machine, as a mean"""


def test_an_unchanged_script_is_profiled(tmp_path: Path) -> None:
    with Agent(tmp_path) as agent:
        [rank] = agent.start(PLAIN, HOPJOB_PROFILE=20, HOPJOB_CHECKPOINTS="")
        assert rank.end() == 0, rank.output()
        profiled = rank.said("profiled")[0]
        own = [float(text) for text in re.findall(r"^iteration (\S+)$", rank.output(), re.MULTILINE)]
    assert profiled["parameters"] == 9
    assert profiled["memory_share"] is None, "its ranks have equal batches, so none gets more"
    assert profiled["modes"] == ["lockstep"]
    assert {len(profiled[part]) for part in (*PARTS, "iteration_s")} == {20}
    assert rank.said("up") == [{"port": None, "samples": 0.0, "elastic": False}]
    assert ACCUMULATE * LOAD_S < median(profiled["data_s"]) < SLACK * ACCUMULATE * LOAD_S
    assert ACCUMULATE * COMPUTE_S < median(profiled["forward_s"]) < SLACK * ACCUMULATE * COMPUTE_S
    assert 2 * ACCUMULATE * COMPUTE_S < median(profiled["backward_s"]) < SLACK * 2 * ACCUMULATE * COMPUTE_S
    assert median(profiled["update_s"]) < ACCUMULATE * COMPUTE_S
    parts = [sum(values) for values in zip(*(profiled[part] for part in PARTS), strict=True)]
    assert parts == pytest.approx(profiled["iteration_s"])
    assert median(profiled["iteration_s"]) == pytest.approx(median(own[5:]), rel=0.1)  # by its own clock


def test_an_attached_script_is_profiled_by_one_rank_without_checkpoints(tmp_path: Path) -> None:
    with Agent(tmp_path) as agent:
        [rank] = agent.start(LEDGER, HOPJOB_PROFILE=30, PACE=0.005, EPOCHS=1, DATASET=64)
        assert rank.end() == 0, rank.output()
        profiled = rank.last_word()["profiled"]
        assert len(profiled["iteration_s"]) == 30
        assert mean(profiled["iteration_s"]) > 0.005
        assert profiled["parameters"] == 8 * 64 + 64 + 64 + 1
        assert 0.0 < profiled["memory_share"] < 1.0
        assert profiled["modes"] == [], "any"
        assert not (tmp_path / "checkpoints").exists()


def test_an_unchanged_script_that_divides_batches_reports_the_mode(tmp_path: Path) -> None:
    with Agent(tmp_path) as agent:
        [rank] = agent.start(PLAIN, HOPJOB_PROFILE=20, HOPJOB_CHECKPOINTS="", HOPJOB_DIVIDES=1)
        assert rank.end() == 0, rank.output()
        assert 0.0 < rank.last_word()["profiled"]["memory_share"] < 1.0
        assert rank.last_word()["profiled"]["modes"] == ["lockstep", "proportional"]


def test_a_model_with_synchronised_layers_is_not_profiled_as_relaxed(tmp_path: Path) -> None:
    with Agent(tmp_path) as agent:
        [rank] = agent.start(WEIGHED, HOPJOB_PROFILE=5, BATCH=4, NORM="synced", HOPJOB_CHECKPOINTS="")
        assert rank.end() == 0, rank.output()
        assert rank.last_word()["profiled"]["modes"] == ["forked", "lockstep", "proportional"]


def test_a_script_too_short_to_measure_says_so(tmp_path: Path) -> None:
    with Agent(tmp_path) as agent:
        [rank] = agent.start(PLAIN, HOPJOB_PROFILE=20, DATASET=8)
        assert rank.end() == 1
        assert "after 1 updates" in rank.last_word()["failed"]["reason"]
        [rank] = agent.start(PLAIN, HOPJOB_PROFILE=20, DATASET=64)
        assert rank.end() == 0, "some iterations are better than none"
        assert len(rank.last_word()["profiled"]["iteration_s"]) == 4


def test_an_unchanged_script_of_two_ranks_meets_by_go_and_is_observed(tmp_path: Path) -> None:
    with Agent(tmp_path) as agent:
        ranks = agent.run(PLAIN, 2, EPOCHS=3, HOPJOB_BATCH_SIZE=8)
        assert [rank.end() for rank in ranks] == [0, 0], ranks[0].output()
        assert ranks[0].said("completed") == [{"samples": 3 * 50 * 16.0}]
        observed = ranks[0].said("observed")[-1]
        assert ranks[1].said("observed") == []
    assert observed["batch"] == 16
    assert observed["seconds"] / observed["iterations"] > ACCUMULATE * (LOAD_S + 3 * COMPUTE_S)
    assert len(observed["data_s"]) == len(observed["wait_s"]) == 2
    assert len(observed["data_s"][0]) > 0
    assert median(observed["data_s"][1]) > ACCUMULATE * LOAD_S
    assert min(map(min, zip(*observed["wait_s"], strict=True))) == 0


def test_a_signal_is_a_rigid_scripts_own_business(tmp_path: Path) -> None:
    with Agent(tmp_path) as agent:
        [rank] = agent.run(PLAIN, EPOCHS=1000)
        rank.wait_for("observed")
        rank.tell(stop={})
        assert kill([rank], signal.SIGTERM) == [-signal.SIGTERM]
        assert not rank.last.exists()


SAVES = """
import signal, sys, time
def save(*_):
    time.sleep(1.0)
    sys.exit(0)
signal.signal(signal.SIGTERM, save)
"""


def test_a_rigid_script_that_saves_and_exits_when_it_is_to_stop_has_not_completed(tmp_path: Path) -> None:
    script = tmp_path / "saves.py"
    script.write_text(SAVES + PLAIN.read_text())
    with Agent(tmp_path) as agent:
        [rank] = agent.run(script, EPOCHS=1000)
        rank.wait_for("observed")
        rank.tell(stop={})
        assert kill([rank], signal.SIGTERM) == [0], rank.output()
        assert rank.last_word() == {"stopped": {"samples": None}}


def test_a_scripts_own_exit_code_is_the_processes(tmp_path: Path) -> None:
    (tmp_path / "leaves.py").write_text("raise SystemExit(7)")
    (tmp_path / "says.py").write_text("raise SystemExit('no data')")
    with Agent(tmp_path) as agent:
        assert agent.run(tmp_path / "leaves.py")[0].end() == 7
        [rank] = agent.run(tmp_path / "says.py")
        assert rank.end() == 1
        assert rank.output() == "no data\n"
        assert not rank.last.exists()


@pytest.mark.parametrize("forks", [False, True])
@pytest.mark.parametrize("script", ["none.py", "-m none", "-m none.of.these", "-m json"])
def test_a_script_that_is_missing_ends_as_pythons_does_before_it_is_up(
    tmp_path: Path, script: str, *, forks: bool
) -> None:
    with Agent(tmp_path, forks=forks) as agent:
        [rank] = agent.start(script)
        assert rank.end() == 2
        assert "can't open file" in rank.output()
        assert rank.words == []
        assert not rank.last.exists()


def test_a_module_without_its_library_is_no_missing_script(tmp_path: Path) -> None:
    (tmp_path / "pack").mkdir()
    (tmp_path / "pack" / "__init__.py").write_text("import no_such_library")
    with Agent(tmp_path) as agent:
        [rank] = agent.run("-m pack.train")
        assert rank.end() == 1
        assert "no_such_library" in rank.last_word()["failed"]["reason"]


def test_the_slowest_rank_waits_least(tmp_path: Path) -> None:
    with Agent(tmp_path) as agent:
        ranks = agent.start(LEDGER, 2, EPOCHS=10_000, PACE=0.01, PACE_OF_RANK_1=0.05)
        ups = [rank.wait_for("up") for rank in ranks]
        for rank in ranks:
            rank.tell(go={"host": "127.0.0.1", "port": ups[0]["port"]})
        observed = ranks[0].wait_for("observed", 4)
        stop(ranks)
    fast, slow = (median(one) for one in observed["wait_s"])
    assert slow < 0.01
    assert fast == pytest.approx(0.04, rel=0.5)


def test_a_checkpoint_is_no_wait_for_a_peer(tmp_path: Path) -> None:
    job = {"SCRIPT": LEDGER, "EPOCHS": 10_000, "PACE": 0.05, "HOPJOB_CHECKPOINT_INTERVAL_S": 1.0}
    with Agent(tmp_path) as agent:
        ranks = agent.run(SCRIPTS / "slow_saves.py", 2, **job)
        ranks[0].wait_for("saved", 3)
        ranks[0].wait_for("observed", len(ranks[0].said("observed")) + 2)
        stop(ranks)
        waited = [max(times) for one in ranks[0].said("observed") for times in one["wait_s"]]
    assert max(waited) < 0.5


@pytest.mark.parametrize("world", [1, 2])
def test_overhead_is_small(tmp_path: Path, world: int) -> None:
    """CPU seconds of one process, blocks taking turns; the bound is for a crowded machine."""
    with Agent(tmp_path) as agent:
        ranks = agent.run(SCRIPTS / "overhead.py", world)
        assert [rank.end() for rank in ranks] == [0] * world, ranks[0].output()
        print(ranks[0].output())
        ratio = float(ranks[0].output().rpartition("ratio ")[2].split()[0])
    assert ratio < 1.1


def test_a_rank_that_outlives_rank_0_prints_no_error(tmp_path: Path) -> None:
    (tmp_path / "outlives.py").write_text("import os, time; time.sleep(3 * int(os.environ['RANK']))")
    with Agent(tmp_path) as agent:
        ranks = agent.run("outlives.py", 2)
        assert [rank.end() for rank in ranks] == [0, 0]
        assert "Traceback" not in ranks[1].output()
