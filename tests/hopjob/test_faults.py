"""What may go wrong with a job's processes: each has its last word, and the next placement goes on."""

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.hopjob.agent import SCRIPTS, Agent, go, kill, stop, until
from tests.hopjob.ledgers import trained
from tests.paths import ROOT
from tests.torch_python import torch_python

pytestmark = pytest.mark.torch

LEDGER = SCRIPTS / "ledger.py"
LONG: dict[str, Any] = {"EPOCHS": 10_000, "PACE": 0.01}
LOST = 75
LAST = """
import os, signal, torch, hopjob
from torch.utils.data import DataLoader, TensorDataset
model = torch.nn.Linear(1, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
job = hopjob.attach(model, optimizer)
for (x,) in job.batches(DataLoader(TensorDataset(torch.ones(8, 1)), batch_size=8)):
    os.kill(os.getpid(), signal.SIGTERM)
    job.model(x).sum().backward()
    optimizer.step()
"""
SIGNALLED = """
import os, signal, torch, hopjob
from hopjob.agent.connection import Connection
plain = Connection._write
def write(connection, message):
    if "up" in message:
        os.kill(os.getpid(), signal.SIGTERM)
    plain(connection, message)
Connection._write = write
model = torch.nn.Linear(1, 1)
hopjob.attach(model, torch.optim.SGD(model.parameters(), lr=0.1))
"""


def test_a_damaged_checkpoint_is_passed_over_and_named(tmp_path: Path) -> None:
    with Agent(tmp_path) as agent:
        [rank] = agent.run(LEDGER, **LONG, HOPJOB_CHECKPOINT_INTERVAL_S=0.5)
        rank.wait_for("saved", 2)
        stop([rank])
        older, newest = sorted((tmp_path / "checkpoints").glob("*.pt"))
        flipped = bytearray(newest.read_bytes())
        flipped[len(flipped) // 2] ^= 1
        newest.write_bytes(flipped)
        [rank] = agent.run(LEDGER, **LONG)
        assert rank.said("damaged")[0]["file"] == newest.name
        assert "CRC" in rank.said("damaged")[0]["reason"]
        assert rank.said("up")[0]["samples"] == int(older.name.partition("-")[0]) > 0
        stop([rank])
    assert newest.with_name(f"{newest.name}.damaged").read_bytes() == flipped


def test_files_of_the_scripts_own_beside_the_checkpoints_stay(tmp_path: Path) -> None:
    """An elastic script's sort above and below ours; a rigid one has the folder for itself."""
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    own = {"best-093.pt", "epoch-3.pt", "0-last.pt", "download.part", "12.part"}
    for name in own:
        (folder / name).write_bytes(b"own")
    with Agent(tmp_path) as agent:
        [rank] = agent.run(LEDGER, **LONG, HOPJOB_CHECKPOINT_INTERVAL_S=0.2)
        rank.wait_for("saved", 4)
        stop([rank])
        [rank] = agent.run(SCRIPTS / "plain.py", DATASET=16)
        assert rank.end() == 0, rank.output()
    names = {path.name for path in folder.iterdir()}
    assert own < names
    assert len(names - own - {"owner"}) == 2


def test_a_checkpoint_that_cannot_be_read_now_is_kept_for_later(tmp_path: Path) -> None:
    """A link in a circle raises ELOOP for root as well, as a share does that is stale for a while."""
    with Agent(tmp_path) as agent:
        [rank] = agent.run(LEDGER, **LONG, HOPJOB_CHECKPOINT_INTERVAL_S=0.5)
        rank.wait_for("saved", 2)
        stop([rank])
        newest = max((tmp_path / "checkpoints").glob("*.pt"))
        away = newest.rename(tmp_path / "away")
        newest.symlink_to(newest)
        ranks = agent.start(LEDGER, 2, **LONG)
        assert [rank.end() for rank in ranks] == [LOST, LOST]
        reason = ranks[0].last_word()["lost"]["reason"]
        assert "symbolic links" in reason
        assert newest.name in reason
        assert ranks[0].said("damaged") == []
        newest.unlink()
        away.rename(newest)
        [rank] = agent.run(LEDGER, **LONG)
        assert rank.said("up")[0]["samples"] == int(newest.name.partition("-")[0])
        stop([rank])


def test_a_folder_that_cannot_be_read_is_no_beginning(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").symlink_to("checkpoints")
    with Agent(tmp_path) as agent:
        [rank] = agent.start(LEDGER, **LONG)
        assert rank.end() == LOST
        assert "symbolic links" in rank.last_word()["lost"]["reason"]


def test_all_checkpoints_damaged_is_a_start_from_the_beginning(tmp_path: Path) -> None:
    with Agent(tmp_path) as agent:
        [rank] = agent.run(LEDGER, **LONG)
        rank.wait_for("observed")
        stop([rank])
        for path in (tmp_path / "checkpoints").glob("*.pt"):
            path.write_bytes(path.read_bytes()[:100])
        ranks = agent.run(LEDGER, 2, **LONG)
        assert ranks[0].said("up")[0]["samples"] == 0
        ranks[0].wait_for("observed")
        assert stop(ranks) == [0, 0]


DAMAGES = """
import random, sys
from pathlib import Path
import torch
from hopjob.state.checkpoints import Folder, FolderClaimed

folder = Folder(sys.argv[1], "placement-1")
folder.claim()
older, newer = (folder.save({"model": torch.zeros(8), "samples": n}, n) for n in (100, 200))
whole, chance, heard = newer.read_bytes(), random.Random(1), []
mutants = [b"", bytes(300), chance.randbytes(300), *(whole[:cut] for cut in range(0, len(whole), 97))]
mutants += [whole[:at] + bytes([whole[at] ^ 0x55]) + whole[at + 1:] for at in range(0, len(whole), 61)]
for mutant in mutants:
    newer.write_bytes(mutant)
    name, state = folder.newest(lambda name, why: heard.append(name))
    assert (name, state["samples"]) == (older.name, 100), mutant[:20]
assert heard == [newer.name] * len(mutants)
newer.write_bytes(whole)
for named in ("000000000000300-00000000.pt", "x" + newer.name, newer.name + "x"):
    renamed = newer.rename(newer.with_name(named))
    assert folder.newest(lambda name, why: None)[0] == older.name, named
    renamed.rename(newer)
for owner in (b"", bytes(40), chance.randbytes(40), b"placement-2"):
    (folder.path / "owner").write_bytes(owner)
    try:
        folder.save({"samples": 300}, 300)
    except FolderClaimed:
        continue
    raise AssertionError(owner)
folder.claim()
assert folder.save({"samples": 300}, 300).exists()
print(len(mutants), "damages")
"""


def test_a_checkpoint_damaged_anywhere_is_replaced_by_another(tmp_path: Path) -> None:
    command = [str(torch_python()), "-c", DAMAGES, str(tmp_path / "checkpoints")]
    ran = subprocess.run(
        command, env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    assert int(ran.stdout.split()[0]) > 20


def test_kill_during_a_save_leaves_the_checkpoint_before(tmp_path: Path) -> None:
    with Agent(tmp_path) as agent:
        large = {**LONG, "WIDTH": 1_000_000, "HOPJOB_CHECKPOINT_INTERVAL_S": 1, "DATASET": 64}
        [rank] = agent.run(LEDGER, **large)
        rank.wait_for("saved")
        until(lambda: list((tmp_path / "checkpoints").glob("*0.part")))
        assert kill([rank]) == [-signal.SIGKILL]
        assert list((tmp_path / "checkpoints").glob("*0.part"))
        [rank] = agent.run(LEDGER, **large)
        assert rank.said("damaged") == []
        assert rank.said("up")[0]["samples"] > 0
        assert list((tmp_path / "checkpoints").glob("*.part")) == []
        stop([rank])


def test_a_full_disk_is_reported_and_training_goes_on(tmp_path: Path) -> None:
    with small_disk(tmp_path / "checkpoints") as environment, Agent(tmp_path) as agent:
        job: dict[str, Any] = {
            "WIDTH": 100_000,
            "DATASET": 200,
            "EPOCHS": 20,
            "HOPJOB_CHECKPOINT_INTERVAL_S": 0.2,
        }
        [rank] = agent.run(SCRIPTS / "gives_up_soon.py", SCRIPT=LEDGER, **job, **environment)
        assert rank.end() == LOST, rank.output()
        assert len(rank.said("unsaved")) > 2
        assert rank.said("saved") == []
        [[kind, said]] = rank.last_word().items()
        assert (kind, said["reason"]) == ("lost", rank.said("unsaved")[-1]["reason"])
        assert said["reason"].startswith("no checkpoint of 4000 samples: ")
        assert list((tmp_path / "checkpoints").glob("*.p*t")) == []
    assert set(trained(tmp_path).values()) == {1}


def test_all_ranks_are_interrupted_where_the_trained_model_cannot_be_saved(tmp_path: Path) -> None:
    """The job was complete, and its model nowhere."""
    with Agent(tmp_path) as agent:
        job: dict[str, Any] = {"SCRIPT": LEDGER, "DATASET": 32, "EPOCHS": 2, "NO_ROOM": 1}
        ranks = agent.run(SCRIPTS / "gives_up_soon.py", 2, **job)
        assert [rank.end() for rank in ranks] == [LOST, LOST]
        assert [rank.last_word()["lost"]["reason"] for rank in ranks] == [
            "no checkpoint of 64 samples: [Errno 28] No space left on device"
        ] * 2


def test_a_checkpoint_that_failed_is_saved_at_the_end(tmp_path: Path) -> None:
    """A failed checkpoint was taken for saved: the job was complete, and its model was nowhere."""
    job: dict[str, Any] = {"SCRIPT": LEDGER, "DATASET": 32, "EPOCHS": 2, "PACE": 0.3, "WHOLE": 64}
    with Agent(tmp_path) as agent:
        [rank] = agent.run(SCRIPTS / "fails_to_save.py", **job, HOPJOB_CHECKPOINT_INTERVAL_S=0)
        assert rank.end() == 0, rank.output()
        assert len(rank.said("unsaved")) == 1
        assert [one["why"] for one in rank.said("saved") if one["samples"] == 64] == ["end"]
        assert list((tmp_path / "checkpoints").glob(f"{64:015d}-*.pt"))


def test_an_agent_that_comes_back_learns_of_its_workers(tmp_path: Path) -> None:
    with Agent(tmp_path) as agent:
        ranks = agent.run(LEDGER, 2, **LONG)
        ranks[0].wait_for("observed")
        agent.close()
        seen = len(ranks[0].words)
        agent.open()
        for rank in ranks:
            rank.wait_for("hello", 2)
        assert ranks[0].said("hello")[1]["samples"] > 0
        ranks[0].wait_for("observed", len(ranks[0].said("observed")) + 1)
        assert len(ranks[0].words) > seen
        assert stop(ranks) == [0, 0]


def test_an_agent_that_comes_back_before_go_learns_which_ranks_are_up(tmp_path: Path) -> None:
    with Agent(tmp_path) as agent:
        ranks = agent.start(LEDGER, 2, **LONG)
        for rank in ranks:
            rank.wait_for("up")
        agent.close()
        agent.open()
        for rank in ranks:
            rank.wait_for("up", 2)
        go(ranks)
        ranks[0].wait_for("observed")
        assert stop(ranks) == [0, 0]


def test_the_last_word_is_kept_for_an_agent_that_is_away(tmp_path: Path) -> None:
    with Agent(tmp_path) as agent:
        [rank] = agent.run(LEDGER, **LONG)
        rank.wait_for("observed")
        agent.close()
        assert kill([rank], signal.SIGTERM) == [0]
        assert rank.last_word()["stopped"]["samples"] > 0


def test_ranks_save_and_end_when_their_agent_stays_away(tmp_path: Path) -> None:
    with Agent(tmp_path) as agent:
        ranks = agent.run(LEDGER, 2, **LONG, HOPJOB_ORPHAN_S=1)
        ranks[0].wait_for("observed")
        agent.close()
        assert [rank.end() for rank in ranks] == [0, 0]
        done = ranks[0].last_word()["stopped"]["samples"]
        [saved] = (tmp_path / "checkpoints").glob("*.pt")
        assert int(saved.name.partition("-")[0]) == done > 0


def test_ranks_that_their_agent_refuses_ask_now_and_then_and_end(tmp_path: Path) -> None:
    with Agent(tmp_path) as agent, (tmp_path / "refused").open("w") as refused:
        [rank] = agent.run(LEDGER, **LONG, HOPJOB_ORPHAN_S=2)
        rank.wait_for("observed")
        agent.close()
        begin = time.monotonic()
        agent.open(refused=refused)
        assert rank.end() == 0
        attempts = (tmp_path / "refused").read_text().count("\n")
        assert 1 < attempts <= 1 + (time.monotonic() - begin) / 0.2  # AGAIN_S of the line
        assert rank.last_word()["stopped"]["samples"] > 0


@pytest.mark.parametrize(("obeys", "number"), [(1, signal.SIGTERM), (0, signal.SIGKILL)])
def test_a_script_without_a_line_ends_without_its_agent(tmp_path: Path, obeys: int, number: int) -> None:
    with Agent(tmp_path) as agent:
        [rank] = agent.run(SCRIPTS / "stays.py", OBEYS=obeys, HOPJOB_ORPHAN_S=1)
        until(lambda: "stays" in rank.output())
        agent.close()
        assert rank.end() == -number


def test_an_error_of_the_scripts_own_is_its_failure(tmp_path: Path) -> None:
    with Agent(tmp_path, forks=False) as agent:
        ranks = agent.run(SCRIPTS / "raises.py", 2, RAISES=1)
        assert ranks[1].end() == 1
        assert ranks[1].last_word() == {"failed": {"reason": "ValueError: this loss is no loss"}}
        assert ranks[1].output().count("Traceback") == 1
        assert "launch.py" not in ranks[1].output()
        assert ranks[0].end() == LOST
        assert ranks[0].last_word()["lost"]["reason"].startswith("it lost a peer: ")


def test_ranks_are_lost_when_a_peer_was_killed(tmp_path: Path) -> None:
    with Agent(tmp_path) as agent:
        ranks = agent.run(LEDGER, 3, **LONG)
        ranks[0].wait_for("observed")
        kill(ranks[2:])
        assert [rank.end() for rank in ranks[:2]] == [LOST, LOST]
        assert ranks[0].said("lost")[0]["reason"]


@pytest.mark.parametrize("evaluates", ["first", "all"])
def test_an_evaluation_stops_with_a_checkpoint(tmp_path: Path, evaluates: str) -> None:
    with Agent(tmp_path) as agent:
        ranks = agent.run(SCRIPTS / "evaluates.py", 2, EVALUATES=evaluates)
        until(lambda: "evaluates" in ranks[0].output() or ranks[0].process.poll() is not None)
        for rank in ranks:
            rank.tell(stop={})
        assert ranks[0].end() == 0, ranks[0].output()
        assert ranks[0].last_word() == {"stopped": {"samples": 41 * 16.0}}
        assert ranks[0].said("saved")[-1]["samples"] == 41 * 16
        if evaluates == "first":  # the other was waiting for rank 0
            assert ranks[1].end() == 0
            assert "stopped" in ranks[1].last_word()


def test_iterations_that_become_slow_do_not_keep_an_order_to_stop_waiting(tmp_path: Path) -> None:
    with Agent(tmp_path) as agent:
        ranks = agent.run(SCRIPTS / "slows.py", 2)
        until(lambda: "slow\n" in ranks[0].output() or ranks[0].process.poll() is not None)
        assert stop(ranks) == [0, 0], ranks[0].output()
        assert 3001 * 8 < ranks[0].said("saved")[-1]["samples"] < 3030 * 8


def test_a_job_that_was_started_elsewhere_meanwhile_does_not_write_there(tmp_path: Path) -> None:
    with Agent(tmp_path) as agent:
        [rank] = agent.run(LEDGER, **LONG)
        rank.wait_for("observed")
        (tmp_path / "checkpoints" / "owner").write_text("another")
        assert stop([rank]) == [LOST]
        assert "another" in rank.last_word()["lost"]["reason"]
        assert list((tmp_path / "checkpoints").glob("*.pt")) == []


def test_checkpoints_are_tensors_and_plain_types(tmp_path: Path) -> None:
    with Agent(tmp_path) as agent:
        [rank] = agent.run(LEDGER, **LONG)
        rank.wait_for("observed")
        stop([rank])
        [path] = (tmp_path / "checkpoints").glob("*.pt")
        read = f"import torch; print(sorted(torch.load({str(path)!r}, weights_only=True)))"
        said = subprocess.run([torch_python(), "-c", read], capture_output=True, text=True, check=True).stdout
        assert "'model', 'optimizer', 'others', 'ranks', 'rng', 'samples'" in said


@contextmanager
def small_disk(folder: Path) -> Iterator[dict[str, Any]]:
    """A folder on a disk of 64 KiB for root; for others, what limits the size of files."""
    folder.mkdir()
    if os.geteuid():
        yield {"LIMIT": 65536}
        return
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", folder], check=True)
    try:
        yield {}
    finally:
        subprocess.run(["umount", folder], check=True)


REFUSED = 'import urllib.request; urllib.request.urlopen("http://127.0.0.1:9/data")'


def test_a_signal_while_a_message_is_sent_ends_the_rank(tmp_path: Path) -> None:
    (tmp_path / "signalled.py").write_text(SIGNALLED)
    with Agent(tmp_path) as agent:
        [rank] = agent.start("signalled.py")
        assert rank.process.wait(20.0) == 0
        assert rank.last_word() == {"stopped": {"samples": 0.0}}


def test_a_stop_in_the_last_update_comes_too_late(tmp_path: Path) -> None:
    """The job would wait in the queue to train on nothing."""
    (tmp_path / "last.py").write_text(LAST)
    with Agent(tmp_path) as agent:
        [rank] = agent.run("last.py", HOPJOB_SAMPLES=8)
        assert rank.end() == 0
        assert rank.last_word() == {"completed": {"samples": 8.0}}
        assert [one["samples"] for one in rank.said("saved")] == [8]


def test_a_connection_of_the_script_that_is_refused_is_its_own_failure(tmp_path: Path) -> None:
    """And no lost peer, for which the job would be started again."""
    script, raises = tmp_path / "connects.py", 'raise ValueError("this loss is no loss")'
    text = (SCRIPTS / "raises.py").read_text()
    assert raises in text
    script.write_text(text.replace(raises, REFUSED))
    with Agent(tmp_path) as agent:
        ranks = agent.run(script, 2, RAISES=1)
        assert ranks[1].end() == 1
        assert "Connection refused" in ranks[1].last_word()["failed"]["reason"]
