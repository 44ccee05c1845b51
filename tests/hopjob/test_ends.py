"""The end of a script is that of `python SCRIPT`, and its rank says so only then."""

import signal
from pathlib import Path

import pytest

from tests.hopjob.agent import SCRIPTS, Agent, go, kill, until

pytestmark = pytest.mark.torch

HANGS = """
import atexit, time
def hang():
    print("hangs", flush=True)
    time.sleep(600)
atexit.register(hang)
"""

ELSEWHERE = """
import os
from pathlib import Path
os.chdir("/")
import helper
print((Path(__file__).parent.parent / "beside").read_text())
"""
SPAWNS = """
import multiprocessing
def child():
    print("spawned")
if __name__ == "__main__":
    process = multiprocessing.get_context("spawn").Process(target=child)
    process.start()
    process.join()
"""
FORKS = """
import os, time
child = os.fork()
if child:
    print("the fork has ended with", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
    time.sleep(600)
"""


@pytest.mark.parametrize("forks", [False, True])
@pytest.mark.parametrize(("end", "code"), [("0", 0), ("3", 3), ("error", 1)])
def test_what_a_script_leaves_to_python_is_done(tmp_path: Path, end: str, code: int, *, forks: bool) -> None:
    with Agent(tmp_path, forks=forks) as agent:
        [rank] = agent.run(SCRIPTS / "leaves.py", END=end)
        assert rank.end() == code, rank.output()
        assert (tmp_path / "file").read_text() == "all of it\n"
        for name in ("thread", "process", "handler"):
            assert b"Result" in (tmp_path / name).read_bytes(), name
        if code == 0:
            assert rank.said("completed")


@pytest.mark.parametrize("forks", [False, True])
def test_files_beside_the_folder_of_a_script_hide_no_module(tmp_path: Path, *, forks: bool) -> None:
    """`python src/train.py` looks for modules in `src` alone."""
    script = tmp_path / "src" / "train.py"
    script.parent.mkdir()
    script.write_text("import beside, json, types; print(beside.name, json.dumps(1))")
    (script.parent / "beside.py").write_text("name = 'beside'")
    for hidden in ("types", "json", "beside"):
        (tmp_path / f"{hidden}.py").write_text("raise SystemExit(7)")
    with Agent(tmp_path, forks=forks) as agent:
        [rank] = agent.run(script)
        assert rank.end() == 0, rank.output()
        assert "beside 1" in rank.output()


@pytest.mark.parametrize("forks", [False, True])
@pytest.mark.parametrize("started", ["src/train.py", "src"])
def test_a_script_knows_its_folder_wherever_it_goes(tmp_path: Path, started: str, *, forks: bool) -> None:
    (tmp_path / "src").mkdir()
    for name in ("train.py", "__main__.py"):
        (tmp_path / "src" / name).write_text(ELSEWHERE)
    (tmp_path / "src" / "helper.py").touch()
    (tmp_path / "beside").write_text("beside it")
    with Agent(tmp_path, forks=forks) as agent:
        [rank] = agent.run(started)
        assert rank.end() == 0, rank.output()
        assert "beside it\n" in rank.output()


@pytest.mark.parametrize("forks", [False, True])
def test_processes_that_a_script_spawns_find_it(tmp_path: Path, *, forks: bool) -> None:
    (tmp_path / "train.py").write_text(SPAWNS)
    with Agent(tmp_path, forks=forks) as agent:
        [rank] = agent.run("train.py")
        assert rank.end() == 0, rank.output()
        assert rank.output() == "spawned\n"


@pytest.mark.parametrize("world", [1, 2])
def test_a_script_that_ends_before_it_attaches_begins_first(tmp_path: Path, world: int) -> None:
    """One that finds that nothing is left to do, for instance."""
    (tmp_path / "done.py").write_text("import hopjob, sys; sys.exit(0)")
    with Agent(tmp_path) as agent:
        ranks = agent.start("done.py", world)
        for rank in ranks:
            rank.wait_for("up")
            assert rank.said("completed") == []
        go(ranks)
        assert [rank.end() for rank in ranks] == [0] * world
        assert all(rank.said("completed") for rank in ranks)


def test_a_process_that_a_script_forks_does_not_report_the_script_s_end(tmp_path: Path) -> None:
    """Its report would be found when the rank is killed, whose job would then be complete."""
    (tmp_path / "forks.py").write_text(FORKS)
    with Agent(tmp_path) as agent:
        [rank] = agent.run("forks.py")
        until(lambda: "the fork has ended with 0" in rank.output())
        assert kill([rank]) == [-signal.SIGKILL]
        assert not rank.last.exists()
        assert rank.said("completed") == []


def test_a_script_that_hangs_in_an_exit_handler_can_be_killed(tmp_path: Path) -> None:
    script = tmp_path / "hangs.py"
    script.write_text(HANGS)
    with Agent(tmp_path) as agent:
        [rank] = agent.run(script)
        until(lambda: "hangs" in rank.output())
        assert rank.said("completed") == []
        assert kill([rank], signal.SIGTERM) == [-signal.SIGTERM]
