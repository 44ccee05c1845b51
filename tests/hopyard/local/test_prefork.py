"""Programs that are forked from one process: real ones, small, in a folder that PYTHONPATH names.

`test_processes.py` begins its programs in this way too.
"""

import asyncio
import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from hopyard.local import processes
from hopyard.local.child import Program
from hopyard.local.pids import alive
from hopyard.local.processes import Restarts, RunningProgram, keep, start, start_all, stop
from hopyard.local.template import END_LIMIT_S, AdoptedProcess, Template
from tests.hopyard.local.programs import SLEEPS, printed, template, until


def written(folder: Path, name: str, source: str) -> Program:
    (folder / f"{name}.py").write_text(source)
    environ = os.environ | {"PYTHONPATH": os.pathsep.join([str(folder), *sys.path])}
    return Program(name=f"{name}-1", module=name, environ=environ, log=folder / "logs" / f"{name}.log")


async def all_of(programs: list[Program], *imports: str) -> list[RunningProgram]:
    running: list[RunningProgram] = []
    async with template(*imports) as forking:
        await start_all(programs, forking, running)
    return running


IMPORTED_BY = "import os\nwho = os.getpid()\n"
SAYS_WHO = "import os, imported\nprint(imported.who != os.getpid())\n"


async def test_modules_of_forked_programs_are_imported_in_the_template(tmp_path: Path) -> None:
    (tmp_path / "imported.py").write_text(IMPORTED_BY)
    programs = [written(tmp_path, name, SAYS_WHO) for name in ("one", "two", "three")]
    running = await all_of(programs, "imported")
    assert [await each.process.wait() for each in running] == [0, 0, 0]
    assert [printed(program) for program in programs] == ["True\n"] * 3


BEGINS_A_THREAD = "import threading as t\nt.Thread(target=t.Event().wait, daemon=True).start()\n"


async def test_no_program_is_forked_from_a_process_with_threads(tmp_path: Path) -> None:
    (tmp_path / "imported.py").write_text(IMPORTED_BY + BEGINS_A_THREAD)
    program = written(tmp_path, "one", SAYS_WHO)
    (running,) = await all_of([program], "imported")
    assert await running.process.wait() == 0
    assert printed(program) == "False\n"


async def test_a_module_that_cannot_be_imported_fails_the_program_that_needs_it_alone(tmp_path: Path) -> None:
    (tmp_path / "imported.py").write_text("raise ValueError('no good')")
    programs = [written(tmp_path, "one", "import imported"), written(tmp_path, "two", "print('here')")]
    running = await all_of(programs, "imported", "nowhere")
    assert [await each.process.wait() for each in running] == [1, 0]
    assert "no good" in printed(programs[0])


SEEN = """
import json, os, signal, sys, threading
print(json.dumps({
    "argv": sys.argv, "module": __spec__.name, "main": sys.modules["__main__"].__dict__ is globals(),
    "leads": os.getsid(0) == os.getpgid(0) == os.getpid(), "parent": os.getppid(), "stdin": sys.stdin.read(),
    "mask": os.umask(0), "own": os.environ.get("OWN"), "more": sorted(set(os.environ) - {"OWN"}),
    "signals": [str(signal.getsignal(number)) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGPIPE)],
    "threads": sorted(thread.name for thread in threading.enumerate()),
    "line": open("/proc/self/cmdline").read().rstrip(chr(0)).split(chr(0)),
    "open": sorted(os.listdir("/proc/self/fd"))[:3], "files": len(os.listdir("/proc/self/fd")),
}))
"""


async def test_a_forked_program_sees_what_a_spawned_one_sees(tmp_path: Path) -> None:
    first = written(tmp_path, "one", SEEN)
    first = msgspec.structs.replace(first, environ=first.environ | {"OWN": "1"}, umask=0o027)
    other = written(tmp_path, "two", "print('here')")
    spawned = await start(first)
    await spawned.process.wait()
    forks = await all_of([first, other])
    assert [type(each.process) for each in forks] == [AdoptedProcess, AdoptedProcess]
    assert [await each.process.wait() for each in forks] == [0, 0]
    as_spawned, as_forked = map(json.loads, printed(first).splitlines())
    assert as_forked["parent"] == os.getpid()
    assert as_forked == as_spawned


async def again(running: RunningProgram, forking: Template) -> None:
    """Killed, and started again."""
    first = running.process.pid
    keeper = asyncio.create_task(keep(running, forking, Restarts(most=1, backoff_s=0.01), lambda _: None))
    os.kill(first, signal.SIGKILL)
    await until(lambda: running.process.pid != first)
    keeper.cancel()


async def begun(program: Program, forking: Template) -> RunningProgram:
    running: list[RunningProgram] = []
    await start_all([program], forking, running)
    return running[0]


SAYS_WHICH = "import imported\nprint(imported.who)\n"


async def test_a_restarted_program_is_forked_again(tmp_path: Path) -> None:
    (tmp_path / "imported.py").write_text(IMPORTED_BY)
    program = written(tmp_path, "one", SAYS_WHICH + SLEEPS)
    async with template("imported") as forking:
        running = await begun(program, forking)
        await until(lambda: printed(program).count("here") == 1)
        await again(running, forking)
        await until(lambda: printed(program).count("here") == 2)
        assert isinstance(running.process, AdoptedProcess)
        await stop([running], limit_s=5.0)
    first, _, second, _ = printed(program).splitlines()
    assert first == second


async def test_a_restarted_program_runs_the_code_installed_by_then(tmp_path: Path) -> None:
    (tmp_path / "imported.py").write_text("who = 'the old one'")
    program = written(tmp_path, "one", SAYS_WHICH + SLEEPS)
    async with template("imported") as forking:
        running = await begun(program, forking)
        await until(lambda: printed(program) == "the old one\nhere\n")
        (tmp_path / "imported.py").write_text("who = 'another'")
        await again(running, forking)
        await until(lambda: printed(program) == "the old one\nhere\nanother\nhere\n")
        assert isinstance(running.process, AdoptedProcess)
        await stop([running], limit_s=5.0)


LOOKS_FOR_MORE = """
from importlib.util import find_spec
print("there it is" if find_spec("added") else "there is none", flush=True)
import time
time.sleep(600)
"""


async def test_packages_added_by_a_start_up_file_are_found(tmp_path: Path) -> None:
    """A file that an interpreter reads as it begins leads to it, as a .pth file would."""
    site, more = tmp_path / "site", tmp_path / "more"
    site.mkdir()
    more.mkdir()
    (more / "added.py").write_text("")
    program = written(tmp_path, "one", LOOKS_FOR_MORE)
    environ = program.environ | {"PYTHONPATH": os.pathsep.join([str(site), program.environ["PYTHONPATH"]])}
    program = msgspec.structs.replace(program, environ=environ)
    async with template() as forking:
        running = await begun(program, forking)
        await until(lambda: printed(program) == "there is none\n")
        (site / "sitecustomize.py").write_text(f"import sys\nsys.path.append({str(more)!r})")
        await again(running, forking)
        await until(lambda: printed(program) == "there is none\nthere it is\n")
        await stop([running], limit_s=5.0)


async def test_a_template_that_was_killed_is_begun_again(tmp_path: Path) -> None:
    program = written(tmp_path, "one", SLEEPS)
    async with template() as forking:
        running = await begun(program, forking)
        await until(lambda: printed(program) == "here\n")
        assert forking.pid is not None
        os.kill(forking.pid, signal.SIGKILL)
        await again(running, forking)
        await until(lambda: printed(program) == "here\nhere\n")
        assert isinstance(running.process, AdoptedProcess)
        await stop([running], limit_s=5.0)


NAMES = tuple(f"p{number}" for number in range(20))


@pytest.mark.parametrize("after_s", [0.0, 0.002, 0.005, 0.01, 0.02])
async def test_a_start_that_is_cancelled_leaves_no_process_that_is_not_known(
    tmp_path: Path, after_s: float
) -> None:
    before = children()
    programs = [written(tmp_path, name, SLEEPS) for name in NAMES]
    running: list[RunningProgram] = []
    async with template() as forking:
        await stop([await begun(programs[0], forking)], limit_s=5.0)
        starting = asyncio.create_task(start_all(programs, forking, running))
        await asyncio.sleep(after_s)
        starting.cancel()
        starting.cancel()
        await asyncio.wait([starting])
    await stop(running, limit_s=5.0)
    await until(lambda: children() <= before)


def children() -> set[int]:
    """Children of this process, with those that ended and are not reaped."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # of one that has just ended
            name, _, rest = path.read_text().rpartition(")")
            if int(rest.split()[1]) == os.getpid():
                found.add(int(name.split()[0]))
    return found


@contextlib.contextmanager
def stuck(forking: Template) -> Iterator[None]:
    """As on a disk that hangs, except that it can be killed."""
    assert forking.pid is not None
    pid = os.pidfd_open(forking.pid)
    signal.pidfd_send_signal(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(pid, signal.SIGCONT)
        os.close(pid)


SOON_S = 30.0
"""real seconds, on a crowded machine; far fewer than a template may take"""


async def test_a_start_that_waits_for_a_stuck_template_is_cancelled_soon(tmp_path: Path) -> None:
    program = written(tmp_path, "one", SLEEPS)
    async with template() as forking:
        await stop([await begun(program, forking)], limit_s=5.0)
        before, running = children(), list[RunningProgram]()
        with stuck(forking):
            starting = asyncio.create_task(start_all([program], forking, running))
            await asyncio.sleep(0.1)
            starting.cancel()
            async with asyncio.timeout(SOON_S):
                await asyncio.wait([starting])
        assert running == []
    assert children() <= before


async def test_a_program_that_ends_while_the_template_is_stuck_is_spawned_instead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "FORK_AGAIN_LIMIT_S", 0.2)
    program = written(tmp_path, "one", SLEEPS)
    async with template() as forking:
        running = await begun(program, forking)
        await until(lambda: printed(program))
        with stuck(forking):
            async with asyncio.timeout(SOON_S):
                await again(running, forking)
        assert not isinstance(running.process, AdoptedProcess)
        monkeypatch.undo()
        await again(running, forking)
        assert isinstance(running.process, AdoptedProcess), "of another template"
        await stop([running], limit_s=5.0)


async def test_a_template_ends_while_a_program_waits_for_the_disk_of_its_log(tmp_path: Path) -> None:
    """In place of the disk a pipe without a reader, which blocks the process that opens it."""
    program = written(tmp_path, "one", SLEEPS)
    program.log.parent.mkdir(mode=0o700)
    os.mkfifo(program.log)
    async with template() as forking:
        running = await begun(program, forking)
        began = time.monotonic()
        await forking.end()
        assert time.monotonic() - began < END_LIMIT_S, "nobody holds its pipe"
        await stop([running], limit_s=0.1)


LEAVES_ONE = """
import os, pathlib, subprocess, sys, time
waits = f"import os\\nwhile os.getppid() == {os.getpid()}: pass\\nprint(os.getppid())"
subprocess.Popen([sys.executable, "-c", waits])
while not pathlib.Path(__file__).with_name("end").exists(): time.sleep(0.01)
"""


async def test_orphans_of_others_are_not_adopted_afterwards(tmp_path: Path) -> None:
    program = written(tmp_path, "one", LEAVES_ONE)
    (running,) = await all_of([program])
    (tmp_path / "end").touch()  # no sooner: until it is started, orphans are adopted
    await running.process.wait()
    await until(lambda: printed(program))
    assert int(printed(program)) != os.getpid()


BEGINS_ONE = "import subprocess as s\nprint(s.Popen(['sleep', '600']).pid, flush=True)\n" + SLEEPS


async def test_an_orphan_that_falls_to_this_process_is_reaped_when_it_ends(tmp_path: Path) -> None:
    """A worker of an agent that is killed while another program is forked."""
    agent, other = written(tmp_path, "one", BEGINS_ONE), written(tmp_path, "two", SLEEPS)
    async with template() as forking:
        running = await begun(agent, forking)
        await until(lambda: "here" in printed(agent))
        worker = int(printed(agent).split()[0])
        with stuck(forking):
            starting = asyncio.create_task(begun(other, forking))
            await asyncio.sleep(0.1)
            os.kill(running.process.pid, signal.SIGKILL)
            await until(lambda: worker in children())
        await stop([await starting], limit_s=5.0)
        os.kill(worker, signal.SIGKILL)
        await until(lambda: not alive(worker))
