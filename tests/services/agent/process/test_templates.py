"""Templates in plain Python: what one forks too late does not run beside the rank in its place."""

import asyncio
import os
import signal
import sys
from asyncio.subprocess import PIPE
from pathlib import Path

import pytest

from services.agent.process import templates
from services.agent.process.kernel.spawning import ProcessSpec
from services.agent.process.launch import Script
from services.agent.process.templates import NoTemplate, Template, Templates
from tests.services.agent.process.process_bench import LIMIT_S

LATE = """
import json, pathlib, subprocess, sys, time
def say(**word):
    print(json.dumps(word), flush=True)
say(ready={"pid": 0})
order = json.loads(sys.stdin.readline())["fork"]
while not pathlib.Path(order["log"]).exists():
    time.sleep(0.01)
child = subprocess.Popen(["sleep", "99"])
say(forked={"id": order["id"], "pid": child.pid})
pathlib.Path("code").write_text(str(child.wait()))
"""
"""it forks as soon as the log is there"""


async def test_a_fork_that_comes_too_late_is_ended(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(templates, "FORK_LIMIT_S", 0.05)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", LATE), cwd=tmp_path, stdin=PIPE, stdout=PIPE
    )
    template = Template(process)
    await template.ready()
    start = ProcessSpec(command=(), environment=os.environ, folder="/", log=tmp_path / "log")
    with pytest.raises(TimeoutError):
        await template.fork(Script("python", (), ("train.py",)), start)
    start.log.touch()
    async with asyncio.timeout(LIMIT_S):
        await process.wait()
    assert (tmp_path / "code").read_text() == str(-signal.SIGKILL)
    await template.close()


ONE_NUMBER = """
import json, sys
def say(**word):
    print(json.dumps(word), flush=True)
say(ready={"pid": 0})
for code, line in enumerate(sys.stdin):
    say(forked={"id": json.loads(line)["fork"]["id"], "pid": 2**22 + 1})
    say(gone={"pid": 2**22 + 1, "code": code})
"""
"""all its forks have the same number, as forks of a long day may"""


async def test_a_fork_that_has_the_number_of_an_earlier_one_ends_with_its_own_code(tmp_path: Path) -> None:
    """It ended with that of the first: a rank that was killed had ended well."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", ONE_NUMBER), cwd=tmp_path, stdin=PIPE, stdout=PIPE
    )
    template = Template(process)
    await template.ready()
    start = ProcessSpec(command=(), environment=os.environ, folder="/", log=tmp_path / "log")
    ranks = [await template.fork(Script("python", (), ("train.py",)), start) for _ in range(3)]
    assert [await rank.ended() for rank in ranks] == [(0, None), (1, None), (2, None)]
    await template.close()


READY = """
import json, sys
print(json.dumps({"ready": {"pid": 0}}), flush=True)
sys.stdin.read()
"""


OUTDATED = """
import json, sys
def say(**word):
    print(json.dumps(word), flush=True)
say(ready={"pid": 0})
order = json.loads(sys.stdin.readline())["fork"]
say(outdated={})
say(unforked={"id": order["id"], "reason": "other libraries are installed"})
sys.stdin.read()
"""


async def test_a_template_of_other_libraries_than_are_installed_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "hopjob").mkdir()
    (tmp_path / "hopjob" / "__init__.py").touch()
    (tmp_path / "hopjob" / "template.py").write_text(OUTDATED)
    start = ProcessSpec(command=(), environment=os.environ, folder="/", log=tmp_path / "log")
    forking = Templates(str(tmp_path), dict(os.environ))
    first = await forking.of(sys.executable)
    assert first is not None
    assert await forking.of(sys.executable) is first
    for _ in range(2):
        with pytest.raises(NoTemplate):
            await first.fork(Script("python", (), ("train.py",)), start)
    second = await forking.of(sys.executable)
    assert second is not None
    assert second is not first
    assert not first.ended, "it waits for its forks"
    await forking.close()
    assert first.ended
    assert second.ended


RETIRES = """
import json, sys
def say(**word):
    print(json.dumps(word), flush=True)
say(ready={"pid": 0})
for line in sys.stdin:
    if "retire" in json.loads(line):
        break
"""


async def test_the_template_that_was_not_used_for_longest_makes_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(templates, "TEMPLATES_MAX", 2)
    (tmp_path / "hopjob").mkdir()
    (tmp_path / "hopjob" / "__init__.py").touch()
    (tmp_path / "hopjob" / "template.py").write_text(RETIRES)
    for name in "abc":
        (tmp_path / name).symlink_to(sys.executable)
    forking = Templates(str(tmp_path), dict(os.environ))
    first, second, again, third = [await forking.of(str(tmp_path / name)) for name in "abac"]
    assert first is not None
    assert second is not None
    assert third is not None
    assert again is first
    async with asyncio.timeout(LIMIT_S):
        while not second.ended:
            await asyncio.sleep(0.01)
    assert not first.ended
    assert not third.ended
    await forking.close()


async def test_files_of_the_agents_folder_are_no_modules_of_its_templates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plugin, here = tmp_path / "plugin", tmp_path / "here"
    for folder in (plugin / "hopjob", here):
        folder.mkdir(parents=True)
    (plugin / "hopjob" / "__init__.py").touch()
    (plugin / "hopjob" / "template.py").write_text(READY)
    (here / "types.py").write_text("raise SystemExit(1)")
    monkeypatch.chdir(here)
    forking = Templates(str(plugin), dict(os.environ))
    assert await forking.of(sys.executable) is not None
    await forking.close()
