"""Real processes: small programs in a folder that PYTHONPATH names."""

import asyncio
import errno
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from hopyard.failures import Died
from hopyard.local.child import Program
from hopyard.local.pids import alive
from hopyard.local.processes import (
    Allowance,
    Restarts,
    RunningProgram,
    keep,
    start,
    start_all,
    stop,
)
from tests.hopyard.local.programs import SLEEPS, printed, template, until

IGNORES = "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
STUBBORN = IGNORES + SLEEPS
PARENT_OF_ONE = (
    "import subprocess, sys\n"
    "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
    "print(child.pid, flush=True)\n"
    "child.wait()\n"
)
STUBBORN_PARENT = IGNORES + PARENT_OF_ONE


Write = Callable[[str], Program]
Begin = Callable[[Program], Awaitable[RunningProgram]]


@pytest.fixture
def program(tmp_path: Path) -> Write:
    """A program from its source."""

    def write(source: str) -> Program:
        (tmp_path / "small.py").write_text(source)
        environ = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
        return Program(name="small", module="small", environ=environ, log=tmp_path / "logs" / "small.log")

    return write


async def forked(program: Program) -> RunningProgram:
    running: list[RunningProgram] = []
    async with template() as forking:
        await start_all([program], forking, running)
    return running[0]


@pytest.fixture(params=[start, forked], ids=["spawned", "forked"])
def begin(request: pytest.FixtureRequest) -> Begin:
    """The two ways in which a program begins, and between which nobody should see a difference."""
    return cast("Begin", request.param)


async def test_the_output_of_a_program_is_in_its_log(program: Write, begin: Begin) -> None:
    running = await begin(program("print('hello')"))
    assert await running.process.wait() == 0
    assert printed(running.program) == "hello\n"


ENDS_LATE = """
import atexit, threading, time
def later():
    while threading.main_thread().is_alive():
        time.sleep(0.01)
    print("what a thread says")
threading.Thread(target=later).start()
atexit.register(print, "what is said at the exit")
print("hello")
"""


async def test_a_program_ends_after_its_threads_and_exit_handlers(program: Write, begin: Begin) -> None:
    running = await begin(program(ENDS_LATE))
    assert await running.process.wait() == 0
    assert printed(running.program) == "hello\nwhat a thread says\nwhat is said at the exit\n"


async def test_a_program_that_is_asked_to_stop_stops(program: Write, begin: Begin) -> None:
    running = await begin(program(SLEEPS))
    await until(lambda: printed(running.program))
    await stop([running], limit_s=10.0)
    assert running.process.returncode == -signal.SIGTERM


async def test_a_program_that_will_not_stop_is_killed(program: Write, begin: Begin) -> None:
    running = await begin(program(STUBBORN))
    await until(lambda: printed(running.program))
    await stop([running], limit_s=0.3)
    assert running.process.returncode == -signal.SIGKILL


async def test_children_of_a_stopped_program_go_with_it(program: Write, begin: Begin) -> None:
    running = await begin(program(PARENT_OF_ONE))
    await until(lambda: printed(running.program))
    grandchild = int(printed(running.program))
    await stop([running], limit_s=5.0)
    await until(lambda: not alive(grandchild) or zombie(grandchild))


def zombie(pid: int) -> bool:
    """Whether a process is dead and not yet reaped."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


async def test_a_program_that_dies_is_restarted_with_a_message(program: Write, begin: Begin) -> None:
    running = await begin(program(SLEEPS))
    first = running.process.pid
    said: list[str] = []
    async with template() as forking:
        keeper = asyncio.create_task(keep(running, forking, Restarts(most=1, backoff_s=0.01), said.append))
        await until(lambda: printed(running.program))
        os.kill(first, signal.SIGKILL)
        await until(lambda: running.process.pid != first)
        keeper.cancel()
    await stop([running], limit_s=5.0)
    assert said == ["small ended with signal SIGKILL; starting it again in 0.01 s"]


async def test_a_program_whose_log_is_gone_is_started_again_all_the_same(program: Write) -> None:
    running = await start(program(SLEEPS))
    first = running.process.pid
    await until(lambda: printed(running.program))
    running.program.log.unlink()
    async with template() as forking:
        keeper = asyncio.create_task(keep(running, forking, Restarts(most=1, backoff_s=0.01), print))
        os.kill(first, signal.SIGKILL)
        await until(lambda: keeper.done() or running.process.pid != first)
        assert not keeper.done()
        keeper.cancel()
    await stop([running], limit_s=5.0)


async def test_a_program_that_dies_too_often_is_given_up_with_its_last_words(
    program: Write, begin: Begin
) -> None:
    running = await begin(program("raise SystemExit('out of cheese')"))
    async with template() as forking:
        with pytest.raises(Died, match=r"small ended with exit code 1(.|\n)*out of cheese"):
            await keep(running, forking, Restarts(most=2, backoff_s=0.01), lambda _: None)


async def test_a_program_that_ends_well_at_once_is_given_up_too(program: Write) -> None:
    """That was not ordered, and it would be started for ever."""
    running = await start(program("print('nothing to do')"))
    async with template() as forking:
        with pytest.raises(Died, match="ended with exit code 0; the end of"):
            await keep(running, forking, Restarts(most=1, backoff_s=0.01, shortest_s=5.0), lambda _: None)


ENDS_WELL = "import signal, sys\nsignal.signal(signal.SIGTERM, lambda *_: sys.exit())\n" + SLEEPS


async def test_ends_that_were_ordered_do_not_count(program: Write) -> None:
    running, ended, said = await start(program(ENDS_WELL)), list[int](), list[str]()
    async with template() as forking:
        restarts = Restarts(most=1, backoff_s=0.01, shortest_s=0.0)
        keeper = asyncio.create_task(keep(running, forking, restarts, said.append))
        while len(ended) < 3:
            await until(lambda: printed(running.program).count("here") > len(ended))
            ended.append(running.process.pid)
            os.kill(ended[-1], signal.SIGTERM)
            await until(lambda: keeper.done() or running.process.pid not in ended)
            assert not keeper.done()
        keeper.cancel()
    await stop([running], limit_s=5.0)
    assert said == 3 * ["small ended with exit code 0; starting it again in 0.01 s"]


def test_the_wait_before_a_restart_doubles() -> None:
    allowed = Allowance(Restarts(most=3, backoff_s=0.5))
    assert [allowed.take() for _ in range(4)] == [0.5, 1.0, 2.0, None]


def test_restarts_long_ago_do_not_count() -> None:
    allowed = Allowance(Restarts(most=1, within_s=0.01, backoff_s=0.5))
    allowed.take()
    time.sleep(0.02)
    assert allowed.take() == 0.5


STARTER = """
import asyncio, os, sys
from pathlib import Path
from hopyard.local.child import Program
from hopyard.local.processes import start, start_all
from hopyard.local.template import Template

async def main():
    template = Template()
    small = Program(name="small", module="small", environ=dict(os.environ), log=Path(sys.argv[1]))
    running = []
    if sys.argv[2] == "forked":
        await start_all([small], template, running)
    else:
        running.append(await start(small))
    print(running[0].process.pid, template.pid or "", flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""
STARTS = ("spawned", "forked")


@pytest.mark.parametrize("way", STARTS)
async def test_a_program_leaves_when_its_parent_is_killed(program: Write, way: str) -> None:
    small = program(SLEEPS)
    await until(zombies(*await orphans(small, way)))


@pytest.mark.parametrize("way", STARTS)
async def test_a_stubborn_program_of_a_killed_parent_is_killed_with_its_children(
    program: Write, way: str
) -> None:
    small = program(STUBBORN_PARENT)
    pids = await orphans(small, way)
    await until(zombies(*pids, int(printed(small))))


def zombies(*pids: int) -> Callable[[], bool]:
    return lambda: all(map(zombie, pids))


async def orphans(small: Program, way: str) -> list[int]:
    """Start the program from a process that is then killed; the program's process id, and its template's."""
    parent = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", STARTER, str(small.log), way),
        env=small.environ,
        stdout=asyncio.subprocess.PIPE,
    )
    assert parent.stdout is not None
    pids = [int(pid) for pid in (await parent.stdout.readline()).split()]
    await until(lambda: printed(small))
    parent.kill()
    await parent.wait()
    return pids


def test_this_process_is_alive_and_one_above_all_limits_is_not() -> None:
    assert alive(os.getpid())
    assert not alive(2**22 + 1)


async def test_a_restarted_program_records_how_often_and_why(program: Write, begin: Begin) -> None:
    running = await begin(program("raise KeyError('policy')"))
    async with template() as forking:
        with pytest.raises(Died):
            await keep(running, forking, Restarts(most=2, backoff_s=0.01), lambda _: None)
    assert (running.restarts, running.last_error) == (2, "ended with exit code 1: KeyError: 'policy'")


async def test_a_start_that_the_machine_refuses_is_tried_again(
    program: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One ended the whole stack, with a traceback."""
    said: list[str] = []
    running = await start(program(SLEEPS))
    first = running.process.pid
    async with template() as forking:
        fork, refused = forking.fork, list[Sequence[Program]]()

        async def refuse_first(programs: Sequence[Program], *more: Any) -> None:  # noqa: ANN401 - as it is
            if not refused:
                refused.append(programs)
                raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")
            await fork(programs, *more)

        monkeypatch.setattr(forking, "fork", refuse_first)
        keeper = asyncio.create_task(keep(running, forking, Restarts(most=2, backoff_s=0.01), said.append))
        os.kill(first, signal.SIGKILL)
        await until(lambda: running.process.pid != first)
        keeper.cancel()
    assert "ended with signal SIGKILL" in said[0]
    assert "did not start: Resource temporarily unavailable; starting it again" in said[1]
    await stop([running], 1.0)


MISCONFIGURED = """
from shared.runtime.settings import Misconfigured
raise Misconfigured("hopyard small: no such policy")
"""


async def test_by_settings_that_no_start_survives_a_program_is_not_started_again(program: Write) -> None:
    """Six starts later, half a minute, the same sentence stood there seven times."""
    said: list[str] = []
    async with template() as forking:
        running = await start(program(MISCONFIGURED))
        with pytest.raises(Died, match=r"^small: no such policy$"):
            await keep(running, forking, Restarts(most=2, backoff_s=0.01), said.append)
    assert said == []


async def test_a_program_that_ran_is_restarted_even_with_settings_that_became_invalid(program: Write) -> None:
    said: list[str] = []
    async with template() as forking:
        running = await start(program(MISCONFIGURED))
        running.restarts = 1
        with pytest.raises(Died, match="ended with exit code 78"):
            await keep(running, forking, Restarts(most=1, backoff_s=0.01), said.append)
    assert len(said) == 1
