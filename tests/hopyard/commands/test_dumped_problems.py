"""`hopyard simulate --dump-problems`, where the folder takes no files."""

import json
import os
from pathlib import Path

import pytest

from tests.full_disk import full_disk
from tests.hopyard.cli_line import Hopyard, Ran


def simulated(hopyard: Hopyard, folder: Path) -> Ran:
    return hopyard(
        "simulate", "--scenario", "tiny", "--policy", "hops", "--json", "--dump-problems", str(folder)
    )


def said(ran: Ran) -> str:
    message: str = json.loads(ran.err.splitlines()[-1])["error"]["message"]
    return message


@pytest.mark.parametrize("below", [False, True])
def test_what_is_no_folder_is_refused_before_the_run(
    hopyard: Hopyard, tmp_path: Path, *, below: bool
) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    folder = pipe / "problems" if below else pipe
    ran = simulated(hopyard, folder)
    assert (ran.code, ran.out, said(ran)) == (1, "", f"{folder}: Not a directory")


def test_a_full_disk_is_found_before_the_run(hopyard: Hopyard, tmp_path: Path) -> None:
    with full_disk():
        ran = simulated(hopyard, tmp_path / "problems")
    assert (ran.code, ran.out) == (1, "")
    assert said(ran) == f"{tmp_path}/problems: File too large"


def test_a_disk_that_gets_full_makes_the_command_fail_after_its_result(
    hopyard: Hopyard, tmp_path: Path
) -> None:
    with full_disk(free_bytes=10):
        ran = simulated(hopyard, tmp_path / "problems")
    assert ran.code == 1
    assert json.loads(ran.out)["policy"] == "hops"
    assert said(ran) == f"{tmp_path}/problems lacks problems: File too large"


def test_problems_are_saved(hopyard: Hopyard, tmp_path: Path) -> None:
    folder = tmp_path / "new" / "problems"
    assert simulated(hopyard, folder).code == 0
    saved = {path.name for path in folder.iterdir()}
    assert {name.partition("-")[2][:5] for name in saved} >= {"first"}
    ran = simulated(hopyard, folder)
    assert (ran.code, ran.out) == (1, "")
    assert said(ran) == f"{folder} has the problems of another run: delete them, or name another folder"
    assert {path.name for path in folder.iterdir()} == saved
