"""Machines join a stack that has no cluster file: `hopyard agent --join`, as processes of their own."""

import asyncio
import contextlib
import os
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import yaml

from hopyard.api.client import Client
from hopyard.api.connect import connect
from hopyard.local.accounts import admitted
from hopyard.local.data_folder import write_stack_file
from hopyard.local.processes import Restarts
from hopyard.local.stack import Stack, running_stack
from hopyard.local.stack_settings import Listen, StackSpec
from hopyard.local.stacks import listed
from schemas.events import GpusWithheld, NodeDrained, NodeJoined, PlanPublished
from schemas.jobs import JobFile, Workload
from schemas.views import NodeView
from shared.domain.audit import audit
from tests.services.agent.gpus.driver import StubDriver, gpus, uuid
from tests.stack_watch import LIMIT_S, log_of, until

pytestmark = pytest.mark.slow

TOKEN = "a token between machines"
SPEED = 60.0
EMULATED = {"HOPYARD_RUNNER": "emulated"}


@contextlib.asynccontextmanager
async def open_stack(data: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[Stack, Client]]:
    """A stack without nodes, its NATS behind a token."""
    monkeypatch.setenv("HOPYARD_NATS_TOKEN", TOKEN)
    spec = StackSpec(
        data=data,
        cluster=None,
        clock_origin=time.time() - 1000.0,
        speed=SPEED,
        settings={"round_s": 60.0},
        restarts=Restarts(most=50, backoff_s=0.05),
        nats=Listen(),
    )
    async with running_stack(spec, print) as stack, connect(stack.api_url, stack.token) as client:
        yield stack, client


async def agent(*options: str, **more: str) -> Process:
    mine = {name: value for name, value in os.environ.items() if not name.startswith("HOPYARD_")}
    command = (sys.executable, "-P", "-m", "hopyard.cli", "agent", *options)
    environ = {**mine, "HOPYARD_NATS_TOKEN": TOKEN, **EMULATED, **more}
    return await asyncio.create_subprocess_exec(*command, env=environ, stdout=PIPE, stderr=PIPE)


@contextlib.asynccontextmanager
async def agents(*running: Process) -> AsyncIterator[None]:
    """Ends them as systemd would, and fails for one that had ended before."""
    try:
        yield
        assert [process.returncode for process in running] == [None] * len(running)
    finally:
        for process in running:
            if process.returncode is None:
                process.terminate()
        await asyncio.gather(*(process.communicate() for process in running))


async def nodes_once(client: Client, fine: Callable[[dict[str, NodeView]], bool]) -> dict[str, NodeView]:
    async with asyncio.timeout(LIMIT_S):
        while True:
            found = {str(view.node.node_id): view for view in (await client.nodes()).nodes}
            if fine(found):
                return found
            await asyncio.sleep(0.1)


async def test_three_machines_make_a_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "node.yaml"
    describes = {"name": "slow-0", "gpu_type": "cpu-slow", "gpus": 3, "address": "10.9.8.7"}
    file.write_text(yaml.safe_dump({**describes, "link_bandwidth": 1e9, "network_bandwidth": 1e8}))
    async with open_stack(tmp_path / "data", monkeypatch) as (stack, client):
        joining = ("--join", stack.nats.url)
        running = [
            await agent(*joining, "--gpus", "cpu:2", "--name", "fast-0"),
            await agent(*joining, "--gpus", "cpu:4", "--name", "fast-1", "--address", "fast-1.lan"),
            await agent(*joining, "--node-file", str(file)),
        ]
        async with agents(*running):
            found = await nodes_once(client, lambda nodes: len(nodes) == 3)
            shown = {
                node: (view.node.gpu_type, view.node.gpus, view.node.address) for node, view in found.items()
            }
            assert shown == {
                "fast-0": ("cpu", 2, "127.0.0.1"),
                "fast-1": ("cpu", 4, "fast-1.lan"),
                "slow-0": ("cpu-slow", 3, "10.9.8.7"),
            }
            joined = [fact for fact in await log_of(client) if isinstance(fact, NodeJoined)]
            assert all(fact.at > 1000.0 * SPEED for fact in joined), "an agent has the clock of the stack"


async def test_a_machine_of_the_same_user_is_let_in_and_another_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the README has it, a stack that knows each node by an account of its own."""
    for name in [name for name in os.environ if name.startswith("HOPYARD_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    data = tmp_path / ".hopyard"
    spec = StackSpec(data=data, cluster=None, clock_origin=time.time(), speed=SPEED, nats=Listen())
    async with running_stack(spec, print) as stack, connect(stack.api_url, stack.token) as client:
        write_stack_file(data, stack.stack_file())
        joining = ("--join", stack.nats.url, "--gpus", "cpu:2")
        monkeypatch.setenv("HOPYARD_NATS_TOKEN", "")
        running = [
            await agent(*joining, "--name", "here", HOPYARD_NATS_TOKEN=""),
            await agent(
                *(*joining, "--name", "there", "--credentials", str(admitted(data, "there"))),
                HOPYARD_NATS_TOKEN="",
                XDG_STATE_HOME=str(tmp_path / "elsewhere"),
            ),
        ]
        async with agents(*running):
            found = await nodes_once(client, lambda nodes: len(nodes) == 2)
            assert sorted(found) == ["here", "there"]
            wrong = ("--name", "rogue", "--credentials", str(admitted(data, "there")))
            rogue = await agent(*joining, *wrong, HOPYARD_NATS_TOKEN="")
            _, err = await rogue.communicate()
            assert rogue.returncode == 1
            assert b"has the account of node there, and this one is called rogue" in err
            assert sorted(await nodes_once(client, bool)) == ["here", "there"]


async def test_an_agent_that_comes_before_its_stack_is_up_is_let_in_once_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NATS listens seconds before the stack is up; who came meanwhile was sent to look for credentials."""
    for name in [name for name in os.environ if name.startswith("HOPYARD_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    data = tmp_path / "data"
    spec = StackSpec(data=data, cluster=None, clock_origin=time.time(), speed=SPEED, nats=Listen())
    with listed(data, print):
        async with running_stack(spec, print) as stack, connect(stack.api_url, stack.token) as client:
            early = await agent("--join", stack.nats.url, "--gpus", "cpu:2", HOPYARD_NATS_TOKEN="")
            async with agents(early):
                assert early.stderr is not None
                assert b"still starting; waiting until it is up" in await early.stderr.readline()
                write_stack_file(data, stack.stack_file())  # by which `hopyard up` says that it is up
                assert len(await nodes_once(client, bool)) == 1
                assert b"no service" not in await early.stderr.readline()


async def test_a_hostile_node_file_is_refused_in_a_line(tmp_path: Path) -> None:
    file = tmp_path / "node.yaml"
    file.write_text(
        "name: 'x; reboot'\ngpu_type: cpu\ngpus: 2\nlink_bandwidth: 1e9\nnetwork_bandwidth: 1e9\n"
    )
    refused = await agent("--join", "nats://127.0.0.1:1", "--node-file", str(file))
    out, err = await refused.communicate()
    assert (refused.returncode, out) == (2, b"")
    assert err.decode().startswith(f"hopyard: {file}:1: $.name: ")
    assert err.count(b"\n") == 1


async def test_a_wrong_token_is_refused_in_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_stack(tmp_path, monkeypatch) as (stack, _):
        refused = await agent("--join", stack.nats.url, "--gpus", "cpu:1", HOPYARD_NATS_TOKEN="wrong")
        _, err = await refused.communicate()
    assert refused.returncode == 1
    assert err.startswith(b"hopyard: NATS at 127.0.0.1")
    assert err.count(b"\n") == 1


def on_two() -> JobFile:
    workload = Workload(model="resnet18", dataset="cifar10", batch_size=128)
    return JobFile(name="pair", workload=workload, gpus=2, samples=1e9)


async def test_gpus_of_others_get_no_job_until_they_are_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = StubDriver(tmp_path / "gpus", gpus(2))
    driver.gpus[1].processes = [os.getpid()]
    driver.write()
    async with open_stack(tmp_path / "data", monkeypatch) as (stack, client):
        async with agents(await agent("--join", stack.nats.url, "--name", "gpu-0", **driver.environ)):
            found = await nodes_once(client, bool)
            assert found["gpu-0"].node.gpus == 2
            assert found["gpu-0"].gpus_free == 1
            assert found["gpu-0"].withheld[1].startswith(f"in use by process {os.getpid()} (")
            await client.submit(on_two(), "key")
            await until(client, lambda status: status.jobs.get("queued") == 1)
            driver.gpus[1].processes = []
            driver.write()
            await nodes_once(client, lambda nodes: nodes["gpu-0"].jobs != {} and not nodes["gpu-0"].withheld)
            driver.xids = [(uuid(0), 79)]
            driver.write()
            found = await nodes_once(client, lambda nodes: nodes["gpu-0"].state == "draining")
            assert found["gpu-0"].reason == "GPU 0: has fallen off the bus (Xid 79)"
        log = await log_of(client)
    freed = next(index for index, fact in enumerate(log) if isinstance(fact, GpusWithheld) and not fact.gpus)
    pairs = [
        index
        for index, fact in enumerate(log)
        if isinstance(fact, PlanPublished) and any(placed.gang.gpus == 2 for placed in fact.placements)
    ]
    assert pairs
    assert min(pairs) > freed, "two GPUs are planned once nobody else has one"
    assert [fact.reason for fact in log if isinstance(fact, NodeDrained)] == [
        "GPU 0: has fallen off the bus (Xid 79)"
    ]
    assert audit(log, drained=False) == []
