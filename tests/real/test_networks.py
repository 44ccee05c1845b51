"""Machines with networks of their own: agents in network namespaces, a slow network between them."""

import asyncio
import contextlib
import json
import os
import secrets
import sys
import time
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import msgspec
import pytest

from hopyard.api.client import Client
from hopyard.api.connect import connect
from hopyard.local.processes import Restarts
from hopyard.local.stack import Stack, running_stack
from hopyard.local.stack_settings import Listen, StackSpec
from schemas.calibration import Calibration
from schemas.events import JobStarted
from schemas.jobs import JobFile
from schemas.questions import Calibrate
from schemas.views import StatusView
from tests.real.real_builders import SETTINGS, asked, executions_in, exported, job_file, nothing_left
from tests.stack_watch import log_of, until

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root"),
]

NODES = {"a": "cpu-pair:2", "b": "cpu-single:1", "c": "cpu-single:1"}
"""type and slots by node: two ranks of the one type are together in a, of the other apart in b and c"""
TYPES = ("cpu-pair", "cpu-single")
RATE = "300mbit"
"""far below what a crowded machine moves within itself"""
NAMES = ("together", "apart")
ACCURACY = 0.85
"""of what is predicted before anything has run there; a busy CPU's bandwidths have some error"""
GRADIENTS = {"WIDTH": "1200"}
"""of the paced model: 6 MB of gradients, a sixth of a second over that network"""


class Nets(msgspec.Struct, frozen=True):
    name: str
    subnet: str

    @property
    def head(self) -> str:
        return f"{self.subnet}.254"

    def space(self, node: str) -> str:
        return f"{self.name}-{node}"

    def address(self, node: str) -> str:
        return f"{self.subnet}.{list(NODES).index(node) + 1}"


async def run(*command: str) -> None:
    process = await asyncio.create_subprocess_exec(*command, stdout=DEVNULL, stderr=PIPE)
    _, said = await process.communicate()
    assert process.returncode == 0, f"{' '.join(command)}: {said.decode()}"


@contextlib.asynccontextmanager
async def networks() -> AsyncIterator[Nets]:
    """A namespace by node, each behind a link that is shaped in both directions.

    The bridge between them has a namespace of its own: Docker filters what the machine's bridges forward.
    """
    mark = secrets.token_hex(2)
    nets = Nets(f"hop{mark}", f"10.88.{int(mark[:2], 16)}")
    switch = nets.space("switch")
    try:
        await run("ip", "netns", "add", switch)
        await run("ip", "-n", switch, "link", "add", "bridge", "type", "bridge")
        await run("ip", "-n", switch, "link", "set", "bridge", "up")
        await run("ip", "link", "add", nets.name, "type", "veth", "peer", "name", "head", "netns", switch)
        await run("ip", "addr", "add", f"{nets.head}/24", "dev", nets.name)
        await run("ip", "link", "set", nets.name, "up")
        await run("ip", "-n", switch, "link", "set", "head", "master", "bridge", "up")
        for node in NODES:
            space = nets.space(node)
            await run("ip", "netns", "add", space)
            ends = ("type", "veth", "peer", "name", "eth0", "netns", space)
            await run("ip", "-n", switch, "link", "add", f"to-{node}", *ends)
            await run("ip", "-n", switch, "link", "set", f"to-{node}", "master", "bridge", "up")
            await run("ip", "-n", space, "addr", "add", f"{nets.address(node)}/24", "dev", "eth0")
            for device in ("lo", "eth0"):
                await run("ip", "-n", space, "link", "set", device, "up")
            for where, device in ((switch, f"to-{node}"), (space, "eth0")):
                shaped = ("root", "tbf", "rate", RATE, "burst", "256kb", "latency", "50ms")
                await run("ip", "netns", "exec", where, "tc", "qdisc", "add", "dev", device, *shaped)
        yield nets
    finally:
        for space in ("switch", *NODES):
            await run("ip", "netns", "del", nets.space(space))


@contextlib.asynccontextmanager
async def stack_between(nets: Nets, data: Path) -> AsyncIterator[tuple[Stack, Client]]:
    spec = StackSpec(
        data=data,
        cluster=None,
        clock_origin=time.time(),
        settings={**SETTINGS, "jobs_folder": str(data / "jobs")},
        restarts=Restarts(most=20, backoff_s=0.05),
        nats=Listen(host=nets.head),
    )
    async with running_stack(spec, print) as stack, connect(stack.api_url, stack.token) as client:
        agents = [await agent(nets, node, stack.nats.url, data) for node in NODES]
        try:
            await until(client, lambda status: status.nodes.get("alive", 0) == len(NODES))
            yield stack, client
        finally:
            for one in agents:
                one.terminate()
            await asyncio.gather(*(one.wait() for one in agents))


async def agent(nets: Nets, node: str, url: str, data: Path) -> Process:
    """The agent of a machine that has nothing but its own network in common with the others, and a folder."""
    mine = {
        "HOPYARD_NETWORK_INTERFACE": "eth0",
        "HOPYARD_RUN_FOLDER": str(data / "run" / node),
        "HOPYARD_OUTPUT_FOLDER": str(data / "output"),
        "HOPYARD_OBSERVE_EVERY_S": str(SETTINGS["observe_every_s"]),
    }
    return await asyncio.create_subprocess_exec(
        *("ip", "netns", "exec", nets.space(node), sys.executable, "-P", "-m", "hopyard.cli", "agent"),
        *("--join", url, "--gpus", NODES[node], "--name", node, "--address", nets.address(node)),
        env={**os.environ, **mine},
        stdout=DEVNULL,
        stderr=DEVNULL,
    )


def pair(name: str, data: Path, gpu_type: str, samples: int) -> JobFile:
    """Two ranks, on one type."""
    return job_file(
        name, data / "ledger", gpus=2, gpu_types=[gpu_type], samples=samples, environment=GRADIENTS
    )


def completed(count: int) -> Callable[[StatusView], bool]:
    return lambda status: status.jobs.get("completed", 0) == count


async def test_ranks_apart_are_slower_than_ranks_together_as_was_predicted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both at once: whatever else the machine does slows both down, or slowed the profile before.

    So of those together is learnt how much it did, and those apart are as fast as predicted but for that.
    """
    monkeypatch.setenv("HOPYARD_NATS_TOKEN", secrets.token_hex(8))
    async with networks() as nets, stack_between(nets, tmp_path) as (stack, client):
        for number, gpu_type in enumerate(TYPES):  # so that every node knows an interpreter with torch
            await client.submit(pair(f"first-{number}", tmp_path, gpu_type, 320), f"first-{number}")
        await until(client, completed(2))
        calibration = await asked(stack, Calibrate(), Calibration)
        print(json.dumps(msgspec.to_builtins(calibration)))
        inside, between = calibration.rows
        assert inside.link
        assert between.network
        assert inside.link > 2 * between.network

        wanted = [pair(name, tmp_path, gpu_type, 2_400) for name, gpu_type in zip(NAMES, TYPES, strict=True)]
        together, apart = [(await client.submit(job, job.name)).job_id for job in wanted]
        await until(client, completed(4))
        gangs = {fact.job_id: fact.gang for fact in await log_of(client) if isinstance(fact, JobStarted)}
        ran = {one.job_id: one for one in executions_in(await exported(stack))}
    assert gangs[together].nodes == ("a",)
    assert gangs[apart].nodes == ("b", "c")
    for job_id in (together, apart):
        rates = f"{ran[job_id].estimated:.1f} expected, {ran[job_id].measured:.1f} samples/s measured"
        print(f"{job_id}: {rates}")
    as_expected = {job_id: ran[job_id].measured / ran[job_id].estimated for job_id in ran}
    assert as_expected[apart] <= max(as_expected[together], 1.0) / ACCURACY
    assert as_expected[apart] >= min(as_expected[together], 1.0) * ACCURACY
    assert ran[apart].measured < 0.9 * ran[together].measured
    await nothing_left(tmp_path)
