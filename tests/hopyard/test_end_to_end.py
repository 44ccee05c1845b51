"""The whole product, as a user starts it: real processes, real NATS, a small cluster."""

import asyncio
import json
import os
import signal
import socket
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from hopyard.actions.restart import restart
from hopyard.local.data_folder import CLUSTER, StackFile, read_stack_file
from hopyard.local.pids import alive
from loadgen.scenarios import cluster_of, load_scenario
from tests.hopyard.cli_builders import JOB_YAML

START_LIMIT_S = 90.0
STOP_LIMIT_S = 90.0
DEMO = ("demo", "--scenario", "tiny")
SERVICES = 10
"""of `tiny`: six, and four agents"""
LISTENS = "0A"
"""a state of `/proc/net/tcp`"""


async def hopyard(*arguments: str, cwd: Path) -> Process:
    command = (sys.executable, "-P", "-m", "hopyard.cli", *arguments)
    environ = {name: value for name, value in os.environ.items() if not name.startswith("HOPYARD_")}
    environ["XDG_STATE_HOME"] = str(cwd / "state")
    return await asyncio.create_subprocess_exec(*command, cwd=cwd, env=environ, stdout=PIPE, stderr=PIPE)


async def ran(*arguments: str, cwd: Path) -> tuple[int | None, str, str]:
    """Exit code, stdout and stderr of a command that ends by itself."""
    process = await hopyard(*arguments, cwd=cwd)
    out, err = await process.communicate()
    return process.returncode, out.decode(), err.decode()


async def until(condition: Callable[[], object], limit_s: float) -> None:
    async with asyncio.timeout(limit_s):
        while not condition():
            await asyncio.sleep(0.05)


def started_by(pid: int, data: Path) -> list[int]:
    """Processes of a stack: services name the process that started them, NATS its folder."""
    return [*services_of(pid), *_marked(f"hopyard.local.prefork\0{pid}\0".encode(), str(data).encode())]


def services_of(pid: int) -> list[int]:
    return _marked(f"hopyard.local.child\0{pid}\0".encode())


def _marked(*marks: bytes) -> list[int]:
    return [int(entry.name) for entry in Path("/proc").glob("[0-9]*") if _has(entry, marks)]


def _has(entry: Path, marks: tuple[bytes, ...]) -> bool:
    try:
        line = (entry / "cmdline").read_bytes()
    except OSError:
        return False
    return int(entry.name) != os.getpid() and any(mark in line for mark in marks)


def taken(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def ports_of(pids: list[int]) -> set[int]:
    """On which they listen."""
    sockets = {held for pid in pids for held in _held(pid)}
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    listening = [row for row in rows if row[3] == LISTENS and f"socket:[{row[9]}]" in sockets]
    return {int(row[1].partition(":")[2], 16) for row in listening}


def _held(pid: int) -> list[str]:
    try:
        return [str(each.readlink()) for each in Path(f"/proc/{pid}/fd").iterdir()]
    except OSError:
        return []


@contextmanager
def killed_at_the_end(process: Process) -> Iterator[Process]:
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()


async def test_a_demo_completes_every_job_and_breaks_no_rule(tmp_path: Path) -> None:
    arguments = ("demo", "--scenario", "tiny", "--speed", "300", "--out", "result.json", "--keep", "run")
    code, out, err = await ran(*arguments, cwd=tmp_path)
    assert code == 0, err
    result = json.loads((tmp_path / "result.json").read_text())
    assert result["jobs"]["completed"] == result["jobs"]["submitted"] == 8
    assert "makespan" in out
    assert "simulated, round" in err


async def test_a_simulation_prints_only_its_result(tmp_path: Path) -> None:
    arguments = ("simulate", "--scenario", "tiny", "--json", "--events", "events.ndjson")
    code, out, err = await ran(*arguments, cwd=tmp_path)
    assert code == 0
    assert [line for line in err.splitlines() if " of cluster time, " not in line] == []  # but how far it is
    assert json.loads(out)["events"] == len((tmp_path / "events.ndjson").read_text().splitlines())


@pytest.mark.parametrize(
    ("as_json", "said"),
    [
        ((), b"hopyard: interrupted\n"),
        (("--json",), b'{"error":{"message":"interrupted","kind":"interrupted","code":130}}\n'),
    ],
)
async def test_an_interrupted_simulation_says_so(
    tmp_path: Path, as_json: tuple[str, ...], said: bytes
) -> None:
    """Once it has saved a problem it is in the midst of its run."""
    problems = tmp_path / "problems"
    words = ("simulate", "--scenario", "hops-64", "--dump-problems", str(problems), *as_json)
    with killed_at_the_end(await hopyard(*words, cwd=tmp_path)) as simulation:
        await until(lambda: problems.exists() and any(problems.iterdir()), START_LIMIT_S)
        simulation.send_signal(signal.SIGINT)
        out, err = await simulation.communicate()
    assert (simulation.returncode, out) == (130, b"")
    assert err.endswith(said)


async def test_a_taken_port_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
        code, _, err = await ran("up", "--scenario", "tiny", "--port", port, cwd=tmp_path)
    assert code == 1
    assert f"port {port}: Address already in use" in err


@pytest.mark.parametrize(("option", "hint"), [("--scenario", "hops-64"), ("--policy", "fifo")])
async def test_a_scenario_or_policy_there_is_not_is_bad_usage(tmp_path: Path, option: str, hint: str) -> None:
    code, _, err = await ran("simulate", option, "nowhere", cwd=tmp_path)
    assert code == 2
    assert hint in err


async def test_a_demo_does_not_begin_on_another_runs_data(tmp_path: Path) -> None:
    (tmp_path / "old.log").touch()
    code, _, err = await ran(*DEMO, "--keep", str(tmp_path), cwd=tmp_path)
    assert code == 2
    assert "not empty" in err


async def half_started(demo: Process) -> set[int]:
    """Wait until every service has a process and one of them listens; the ports of those that do."""

    def listening() -> bool:
        services = services_of(demo.pid)
        return demo.returncode is not None or (len(services) == SERVICES and bool(ports_of(services)))

    await until(listening, START_LIMIT_S)
    assert demo.returncode is None, (await demo.communicate())[1].decode()
    return ports_of(services_of(demo.pid))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
async def test_an_interrupted_demo_leaves_no_process_and_no_port(
    tmp_path: Path, number: signal.Signals
) -> None:
    data = tmp_path / "run"
    with killed_at_the_end(await hopyard(*DEMO, "--keep", str(data), cwd=tmp_path)) as demo:
        ports = await half_started(demo)
        demo.send_signal(number)
        async with asyncio.timeout(STOP_LIMIT_S):
            assert await demo.wait() == 130
    assert started_by(demo.pid, data) == []
    assert not any(map(taken, ports))


async def test_a_killed_demo_leaves_no_process_for_long(tmp_path: Path) -> None:
    data = tmp_path / "run"
    with killed_at_the_end(await hopyard(*DEMO, "--keep", str(data), cwd=tmp_path)) as demo:
        ports = await half_started(demo)
    await demo.wait()
    await until(lambda: started_by(demo.pid, data) == [] and not any(map(taken, ports)), STOP_LIMIT_S)


async def started(up: Process, data: Path) -> StackFile:
    await until(lambda: read_stack_file(data) or up.returncode is not None, START_LIMIT_S)
    stack = read_stack_file(data)
    assert stack is not None, (await up.communicate())[1].decode()
    return stack


async def test_a_stack_that_is_up_serves_the_other_commands(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(JOB_YAML)
    (tmp_path / "schemas.py").write_text("raise AssertionError('a module of the folder one stands in')")
    options = ("--scenario", "tiny", "--speed", "60", "--port", "0")
    with killed_at_the_end(await hopyard("up", *options, cwd=tmp_path)) as up:
        stack = await started(up, tmp_path / ".hopyard")

        code, out, err = await ran("submit", "job.yaml", "--key", "once", "--json", cwd=tmp_path)
        assert code == 0, err
        job_id = json.loads(out)["job_id"]
        assert job_id in (await ran("ps", cwd=tmp_path))[1]
        assert (await ran("ps", "--mine", "--sort", "newest", "-q", cwd=tmp_path))[1] == f"{job_id}\n"
        assert (await ran("ps", "--user", "nobody-at-all", cwd=tmp_path))[1] == ""
        code, out, err = await ran("show", job_id, cwd=tmp_path)
        assert "times are cluster time: 60 cluster seconds a second" in err
        code, out, err = await ran("diag", cwd=tmp_path)
        assert code == 0, out + err

        assert "another stack" in (await ran("up", *options, cwd=tmp_path))[2]

        code, out, err = await ran("restart", "monitor", cwd=tmp_path)
        assert code == 0, err
        assert out.startswith("monitor ready after")
        assert "killed" not in out
        os.kill(stack.pids["profiler"], signal.SIGSTOP)
        hung = restart(tmp_path / ".hopyard", ["profiler"], end_limit_s=1.0)
        assert [(one.name, one.killed) for one in await asyncio.to_thread(list, hung)] == [("profiler", True)]

        os.kill(stack.pids["placer"], signal.SIGKILL)
        await until(lambda: placer_of(tmp_path) not in (0, stack.pids["placer"]), START_LIMIT_S)

        up.send_signal(signal.SIGINT)
        _, said = await up.communicate()
        assert up.returncode == 0
        assert "placer ended with signal SIGKILL" in said.decode()
    assert not any(map(alive, stack.pids.values()))

    with killed_at_the_end(await hopyard("up", *options, cwd=tmp_path)) as up:
        await started(up, tmp_path / ".hopyard")
        code, out, _ = await ran("submit", "job.yaml", "--key", "once", "--json", cwd=tmp_path)
        assert json.loads(out) == {"job_id": job_id, "created": False}
        up.send_signal(signal.SIGTERM)
        await up.communicate()


async def test_a_stack_in_another_folder_says_how_others_find_it(tmp_path: Path) -> None:
    options = ("--scenario", "tiny", "--port", "0", "--data", str(tmp_path / "other"))
    with killed_at_the_end(await hopyard("up", *options, cwd=tmp_path)) as up:
        stack = await started(up, tmp_path / "other")
        code, _, err = await ran("policy", "set", "fifo", cwd=tmp_path)
        assert (code, err) == (0, f"on cluster tiny, {stack.api_url}\n"), "the only stack of this user"
        up.send_signal(signal.SIGINT)
        _, said = await up.communicate()
    assert f"HOPYARD_API_URL={stack.api_url} HOPYARD_NATS_URL={stack.nats_url}" in said.decode()
    assert "had cluster" not in said.decode()


async def test_a_stack_says_that_it_begins_with_another_cluster_than_before(tmp_path: Path) -> None:
    before = cluster_of(load_scenario("tiny"))
    data = tmp_path / ".hopyard"
    data.mkdir(mode=0o700)
    (data / CLUSTER).write_bytes(msgspec.json.encode(msgspec.structs.replace(before, name="before")))
    with killed_at_the_end(await hopyard("up", "--cluster", "tiny", "--port", "0", cwd=tmp_path)) as up:
        await started(up, data)
        up.send_signal(signal.SIGINT)
        said = (await up.communicate())[1].decode()
    assert "the stack of .hopyard had cluster before; nodes of it that this one lacks are lost now" in said


def placer_of(folder: Path) -> int:
    stack = read_stack_file(folder / ".hopyard")
    return stack.pids["placer"] if stack else 0
