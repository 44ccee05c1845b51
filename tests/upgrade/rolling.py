"""A stack of another version is upgraded in place while jobs go in and train, as `docs/operating.md` says.

Where that version is too old to run beside this one, the product says so, and the stack is stopped first.
"""

import asyncio
import contextlib
import itertools
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec

from hopyard.actions.restart import Restarted
from hopyard.api.client import Client
from hopyard.api.connect import connect, patiently
from hopyard.local.credentials import own_token
from hopyard.local.data_folder import read_stack_file
from loadgen.scenarios import arrivals, load_scenario
from schemas.events import JobSubmitted
from schemas.ids import JobId
from shared.domain.audit import Violation, audit
from tests.live.live_builders import all_ended
from tests.paths import ROOT
from tests.stack_watch import busy, until
from tests.upgrade.installed import Installed

SCENARIO, SPEED = "tiny", "240"
START_LIMIT_S = 240.0
RESTART_LIMIT_S = 600.0
SUBMIT_EVERY_S = 3.0


class Upgraded(msgspec.Struct, kw_only=True):
    """The outcome of an upgrade."""

    restarts: list[Restarted]
    """none: the stack was stopped first"""
    said: str
    """by `hopyard restart`, on stderr"""
    acknowledged: list[JobId]
    submitted: list[JobId]
    facts: int
    broken: list[Violation]


class Machine:
    """One user's: an installed version, and a data folder."""

    def __init__(self, folder: Path, version: Path) -> None:
        self.folder = folder
        self.data = folder / "data"
        self.installed = Installed(folder / "site", version)
        self.acknowledged: list[JobId] = []

    async def run(self, *words: str) -> tuple[int, str, str]:
        """Exit code, stdout, stderr of a command."""
        process = await self._begun(*words)
        out, err = await asyncio.wait_for(process.communicate(), RESTART_LIMIT_S)
        assert process.returncode is not None
        return process.returncode, out.decode(), err.decode()

    async def _begun(self, *words: str) -> Process:
        environ = self.installed.environ(self.folder)
        command = (sys.executable, "-P", "-m", "hopyard.cli", *words)
        return await asyncio.create_subprocess_exec(
            *command, env=environ, cwd=self.folder, stdout=PIPE, stderr=PIPE
        )

    def up_words(self) -> tuple[str, ...]:
        return ("up", "--scenario", SCENARIO, "--speed", SPEED, "--data", str(self.data))

    @contextlib.asynccontextmanager
    async def up(self) -> AsyncIterator[Client]:
        """`hopyard up` of the installed version until Ctrl-C, and a client of this version."""
        process = await self._begun(*self.up_words())
        hearing = asyncio.create_task(process.communicate())
        try:
            async with asyncio.timeout(START_LIMIT_S):
                while (stack := read_stack_file(self.data)) is None:
                    assert process.returncode is None, await hearing
                    await asyncio.sleep(0.2)
            async with connect(stack.api_url, own_token(self.data)) as client:
                yield client
        finally:
            if process.returncode is None:
                process.send_signal(signal.SIGINT)
            await hearing

    @contextlib.asynccontextmanager
    async def load(self, client: Client) -> AsyncIterator[None]:
        """Jobs of the scenario, one after the other, each until it is acknowledged."""
        submitting = asyncio.create_task(self._submit(client))
        try:
            yield
        finally:
            submitting.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await submitting

    async def _submit(self, client: Client) -> None:
        jobs = itertools.cycle([arrival.job for arrival in arrivals(load_scenario(SCENARIO), seed=1)])
        for job in jobs:
            key = f"key-{len(self.acknowledged)}"
            one = asyncio.ensure_future(patiently(lambda job=job, key=key: client.submit(job, key)))  # type: ignore[misc]
            try:
                await asyncio.shield(one)
            finally:  # whoever cancels waits for what is on its way
                self.acknowledged.append((await one).job_id)
            await asyncio.sleep(SUBMIT_EVERY_S)


async def upgraded(version: Path, folder: Path) -> Upgraded:
    """From `version` to the one of this checkout."""
    machine = Machine(folder, version)
    async with machine.up() as client, machine.load(client):
        await until(client, busy)
        machine.installed.install(ROOT)
        code, out, said = await machine.run("restart", "--data", str(machine.data), "--json")
        await until(client, busy)
    restarts = msgspec.json.decode(out, type=list[Restarted]) if code == 0 else []
    async with machine.up() as client:  # by now `hopyard up` and NATS are of the new version too
        await until(client, all_ended(len(machine.acknowledged)))
        lines = [line async for line in client.events()]
    facts = [line.fact() for line in lines]
    return Upgraded(
        restarts=restarts,
        said=said,
        acknowledged=machine.acknowledged,
        submitted=[fact.job_id for fact in facts if isinstance(fact, JobSubmitted)],
        facts=len(facts),
        broken=audit(facts, drained=True, seqs=[line.seq for line in lines]),
    )
