"""Real processes: small programs in a folder that PYTHONPATH names."""

import asyncio
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from hopyard.failures import Died
from hopyard.local.pids import alive
from hopyard.local.processes import Allowance, Program, Restarts, keep, start, stop

SLEEPS = "import time\nprint('here', flush=True)\ntime.sleep(600)\n"
IGNORES = "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
STUBBORN = IGNORES + SLEEPS
PARENT_OF_ONE = (
    "import subprocess, sys\n"
    "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
    "print(child.pid, flush=True)\n"
    "child.wait()\n"
)
STUBBORN_PARENT = IGNORES + PARENT_OF_ONE


@pytest.fixture
def program(tmp_path: Path) -> Callable[[str], Program]:
    """A program from its source."""

    def write(source: str) -> Program:
        (tmp_path / "small.py").write_text(source)
        environ = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
        return Program(name="small", module="small", environ=environ, log=tmp_path / "logs" / "small.log")

    return write


async def until(condition: Callable[[], object], limit_s: float = 60.0) -> None:
    async with asyncio.timeout(limit_s):
        while not condition():
            await asyncio.sleep(0.02)


def printed(program: Program) -> str:
    return program.log.read_text() if program.log.exists() else ""


async def test_what_a_program_prints_is_in_its_log(program: Callable[[str], Program]) -> None:
    running = await start(program("print('hello')"))
    assert await running.process.wait() == 0
    assert printed(running.program) == "hello\n"


async def test_a_program_that_is_asked_to_stop_stops(program: Callable[[str], Program]) -> None:
    running = await start(program(SLEEPS))
    await until(lambda: printed(running.program))
    await stop([running], limit_s=10.0)
    assert running.process.returncode == -signal.SIGTERM


async def test_a_program_that_will_not_stop_is_killed(program: Callable[[str], Program]) -> None:
    running = await start(program(STUBBORN))
    await until(lambda: printed(running.program))
    await stop([running], limit_s=0.3)
    assert running.process.returncode == -signal.SIGKILL


async def test_children_of_a_stopped_program_go_with_it(program: Callable[[str], Program]) -> None:
    running = await start(program(PARENT_OF_ONE))
    await until(lambda: printed(running.program))
    grandchild = int(printed(running.program))
    await stop([running], limit_s=5.0)
    await until(lambda: not alive(grandchild) or zombie(grandchild))


def zombie(pid: int) -> bool:
    """Dead, and not yet buried by whoever inherited it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


async def test_a_program_that_dies_is_started_again_and_it_is_said(program: Callable[[str], Program]) -> None:
    running = await start(program(SLEEPS))
    first = running.process.pid
    said: list[str] = []
    keeper = asyncio.create_task(keep(running, Restarts(most=1, backoff_s=0.01), said.append))
    await until(lambda: printed(running.program))
    os.kill(first, signal.SIGKILL)
    await until(lambda: running.process.pid != first)
    keeper.cancel()
    await stop([running], limit_s=5.0)
    assert said == ["small ended with signal SIGKILL; starting it again in 0.01 s"]


async def test_a_program_that_dies_too_often_is_given_up_with_its_last_words(
    program: Callable[[str], Program],
) -> None:
    running = await start(program("raise SystemExit('out of cheese')"))
    with pytest.raises(Died, match=r"small ended with exit code 1(.|\n)*out of cheese"):
        await keep(running, Restarts(most=2, backoff_s=0.01), lambda _: None)


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
from hopyard.local.processes import Program, start

async def main():
    log = Path(sys.argv[1])
    running = await start(Program(name="small", module="small", environ=dict(os.environ), log=log))
    print(running.process.pid, flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""


async def test_a_program_leaves_when_its_parent_is_killed(program: Callable[[str], Program]) -> None:
    small = program(SLEEPS)
    await until(zombies(await orphan(small)))


async def test_a_stubborn_program_of_a_killed_parent_is_killed_with_its_children(
    program: Callable[[str], Program],
) -> None:
    small = program(STUBBORN_PARENT)
    pid = await orphan(small)
    await until(zombies(pid, int(printed(small))))


def zombies(*pids: int) -> Callable[[], bool]:
    return lambda: all(map(zombie, pids))


async def orphan(small: Program) -> int:
    """Start the program from a process that is then killed; the program's process id."""
    parent = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", STARTER, str(small.log)), env=small.environ, stdout=asyncio.subprocess.PIPE
    )
    assert parent.stdout is not None
    pid = int(await parent.stdout.readline())
    await until(lambda: printed(small))
    parent.kill()
    await parent.wait()
    return pid


def test_this_process_is_alive_and_one_above_all_limits_is_not() -> None:
    assert alive(os.getpid())
    assert not alive(2**22 + 1)


async def test_a_program_that_came_back_tells_how_often_and_why(program: Callable[[str], Program]) -> None:
    running = await start(program("raise KeyError('policy')"))
    with pytest.raises(Died):
        await keep(running, Restarts(most=2, backoff_s=0.01), lambda _: None)
    assert (running.restarts, running.last_error) == (2, "ended with exit code 1: KeyError: 'policy'")
