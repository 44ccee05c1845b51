"""What the runner's tests share: a node on this machine with its runner, and a rank in plain Python."""

import asyncio
import contextlib
import os
import pwd
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from schemas.cluster import Node
from schemas.events import StartOrdered
from schemas.ids import JobId, PlacementId
from schemas.jobs import JobSpec
from schemas.settings import Settings
from services.agent.process.folders import Folders
from services.agent.process.kernel.hierarchies import own_folders
from services.agent.process.kernel.identities import identity_of
from services.agent.process.runner import ProcessRunner
from services.agent.tasks import LastReport, Report, Started
from tests.paths import ROOT
from tests.services.agent.agent_bench import HERE, job, node, start

STANDIN = Path(__file__).parent / "standin" / "hopjob"
LIMIT_S = 240.0
"""for what takes a moment, on a machine with much else to do"""
P1 = PlacementId("p1")
R = TypeVar("R", bound=Report)


@contextlib.contextmanager
def short_folder() -> Iterator[Path]:
    """Sockets have short names."""
    folder = Path(tempfile.mkdtemp(prefix="hy-", dir="/tmp"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class RunningNode:
    """A runner on this machine, what it reported and what its jobs printed. `installed`: with the plug-in."""

    def __init__(self, folder: Path, *, installed: bool = False, **settings: Any) -> None:  # noqa: ANN401 - fields
        self.folders = Folders(folder / "run", folder / "jobs", None if installed else STANDIN)
        self.settings = msgspec.convert({"observe_every_s": 0.5, "template": False} | settings, Settings)
        self.reports: list[Report] = []
        self.printed: list[tuple[JobId, int, str]] = []
        self.runner = ProcessRunner(self.folders, self.settings)
        self.adopted: tuple[PlacementId, ...] = ()
        self._running: asyncio.Task[None]

    async def begin(self, *, adopts: bool = True) -> None:
        if adopts:
            self.adopted = await self.runner.adopt()
        self._running = asyncio.create_task(self.runner.run(self.reports.append, self._print))
        await self.until(self.folders.socket.exists)

    async def end(self) -> None:
        if not self._running.cancelling():
            self._running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._running

    def end_with(self, kind: type[Report]) -> None:
        """End in the instant in which one of these is reported."""

        class Ending(list[Report]):
            def append(_, report: Report) -> None:  # noqa: N805 - `self` is the node
                super().append(report)
                if isinstance(report, kind):
                    self._running.cancel()

        self.reports = Ending()

    async def until(self, there: Callable[[], object]) -> None:
        async with asyncio.timeout(LIMIT_S):
            while not there():
                assert not (hasattr(self, "_running") and self._running.done()), self._running.result()
                await asyncio.sleep(0.01)

    async def trained(self, order: StartOrdered) -> None:
        """Start it, and let it train once it is up."""
        self.runner.start(order, tuple(range(order.gang.gpus)))
        await self.until(lambda: self.ups(order.placement_id) or self.last(order.placement_id))
        for up in self.ups(order.placement_id):
            self.runner.train(up.placement_id, up.meeting)

    async def ended(self, placement_id: PlacementId = P1) -> LastReport:
        await self.until(lambda: self.last(placement_id))
        last = self.last(placement_id)
        assert last is not None
        return last

    def of(self, kind: type[R]) -> list[R]:
        return [report for report in self.reports if isinstance(report, kind)]

    def ups(self, placement_id: PlacementId) -> list[Started]:
        return [report for report in self.of(Started) if report.placement_id == placement_id]

    def last(self, placement_id: PlacementId = P1) -> LastReport | None:
        """There is never more than one."""
        found = [
            report
            for report in self.reports
            if isinstance(report, LastReport) and report.placement_id == placement_id
        ]
        assert len(found) <= 1
        return found[0] if found else None

    def pids(self, placement_id: PlacementId = P1) -> list[int]:
        """Process ids of the ranks."""
        claim = self.folders.worker(placement_id) / "claim.json"
        found = msgspec.json.decode(claim.read_bytes())["ranks"] if claim.exists() else []
        return [rank["process"]["pid"] for rank in found if rank["process"]]

    def lines(self, rank: int = 0) -> list[str]:
        return [text for _, number, text in self.printed if number == rank]

    def _print(self, job_id: JobId, rank: int, text: str) -> None:
        self.printed.append((job_id, rank, text))


@contextlib.asynccontextmanager
async def running_node(
    inside: Path | None = None,
    **settings: Any,  # noqa: ANN401 - fields
) -> AsyncIterator[RunningNode]:
    """Nothing is left of it at the end: no process, no group, no socket, nothing of a worker."""
    with short_folder() as folder:
        node = RunningNode(inside or folder, **settings)
        await node.begin()
        try:
            yield node
        finally:
            await node.end()
        assert left_of(node.folders) == []


async def killed_agent(folder: Path, order: StartOrdered, *, trains: bool = True) -> None:
    """Have an agent start a worker in the folder, and kill it as `kill -9` does."""
    agent = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.services.agent.process.doomed_agent", str(folder), str(int(trains))),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        cwd=ROOT,
    )
    assert agent.stdin is not None
    assert agent.stdout is not None
    agent.stdin.write(msgspec.json.encode(order) + b"\n")
    async with asyncio.timeout(LIMIT_S):
        assert await agent.stdout.readline() == b"there\n"
    agent.kill()
    await agent.wait()
    agent.stdin.close()


def left_of(folders: Folders) -> list[str]:
    """Processes with a folder of the node in their environment, its groups, its socket, its workers."""
    found = [f"worker {path.name}" for path in folders.workers.iterdir()]
    found += [f"process {pid}" for pid in processes_of(folders)]
    if folders.socket.exists():
        found.append("socket")
    return found + [
        str(base / folders.groups) for base in own_folders().values() if (base / folders.groups).exists()
    ]


def processes_of(folders: Folders) -> list[int]:
    """The processes of a node, without dead ones that are not reaped yet."""
    mark = os.fsencode(folders.run)
    return [
        int(path.name)
        for path in Path("/proc").iterdir()
        if path.name.isdecimal() and mark in _environment(path) and identity_of(int(path.name))
    ]


def _environment(path: Path) -> bytes:
    with contextlib.suppress(OSError):
        return (path / "environ").read_bytes()
    return b""


def order(
    *words: str,
    gpus: int = 1,
    name: str = "p1",
    command: Sequence[str] | None = None,
    **more: Any,  # noqa: ANN401 - fields
) -> StartOrdered:
    """Order of a plain Python rank that does what `words` say; `more`: fields of order and job."""
    fields = {key: more.pop(key) for key in list(more) if key in StartOrdered.__struct_fields__}
    spec: JobSpec = msgspec.structs.replace(
        job(),
        **{
            "command": tuple(command or (sys.executable, "script.py", *words)),
            "grace_s": 20.0,
            "working_directory": "/",
            "user": pwd.getpwuid(os.geteuid()).pw_name,
            **more,
        },
    )
    return msgspec.structs.replace(start(name, gang=[(cpu_node(), gpus)], spec=spec), **fields)


def cpu_node(gpus: int = 4) -> Node:
    return node(HERE, gpus)
