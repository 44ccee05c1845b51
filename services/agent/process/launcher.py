"""Starts the ranks of a worker, finds those that an earlier life started, and kills all their processes."""

import asyncio
import contextlib
import errno
import os
import shutil
import subprocess
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import msgspec

from schemas.events import StartOrdered
from schemas.jobs import JobSpec
from services.agent.process import claims, containers, launch
from services.agent.process.folders import RankFiles, is_full, make_worker
from services.agent.process.gang.machine import ranks_on
from services.agent.process.gang.verdicts import MemoryState
from services.agent.process.host import Host, own_node
from services.agent.process.kernel.cgroups import Group, OutOfMemory
from services.agent.process.kernel.identities import identity_of
from services.agent.process.kernel.process_scan import has_variable
from services.agent.process.kernel.spawning import Account, NoAccount, ProcessSpec, reach, start_process
from services.agent.process.listener import Peer
from services.agent.process.own_thread import in_own_thread
from services.agent.process.ranks import RankProcess, child_rank, found_rank, gone
from services.agent.process.templates import NoTemplate, Template
from shared.runtime.process.ports import HeldPorts

ANSWER_LIMIT_S = 10.0
"""time to make and read folders after which a disk counts as hanging; a local disk needs milliseconds, one of
another machine seconds"""


class Launcher:
    """`claim`: that of the earlier life that started the worker; None: this life starts it."""

    def __init__(
        self,
        host: Host,
        order: StartOrdered,
        gpu_indices: tuple[int, ...],
        claim: claims.WorkerClaim | None,
    ) -> None:
        self.context = host.context(order, gpu_indices)
        command = launch.command_of(order, self.context.checkpoints)
        self._host = host
        self._order = order
        self._command = command
        self._script = launch.script_of(command)
        holds_port = claim is None and self._script is None and order.gang.gpus > 1
        self._held = HeldPorts("") if holds_port else None
        """holds the port at which ranks meet rank 0, if the command is no Python script: only scripts report
        a port"""
        port = self._held.ports[0] if self._held else None
        self._claim = claim or _new_claim(order, gpu_indices, host.groups_of(order), port)
        self._adopted = claim is not None
        self._folder = host.folders.worker(order.placement_id)
        self._processes = host.processes_of(self._claim)
        self._preparing_since: float | None = None
        """monotonic time at which a start began to make its folders; None: no start is making any"""

    @property
    def has_plugin(self) -> bool:
        """Whether its command is a Python script, which runs under the plug-in and sends messages."""
        return self._script is not None

    @property
    def adopted(self) -> bool:
        """Whether an earlier life started the worker."""
        return self._adopted

    @property
    def port(self) -> int | None:
        """The port at which ranks meet rank 0; None: a Python script reports one, or they need not meet."""
        return None if self.has_plugin else self._claim.port

    def adopted_ranks(self) -> dict[int, RankProcess]:
        """The ranks that an earlier life started, by number; empty: this life starts the worker."""
        return {rank.rank: found_rank(rank.process) for rank in self._claim.ranks} if self._adopted else {}

    async def check_node(self) -> None:
        """Raises UnfitNode, OSError, NoEngine if this node can start no worker, whichever the job."""
        self._preparing_since = time.monotonic()
        try:
            await in_own_thread(self._check_folder)
        finally:
            self._preparing_since = None
        await asyncio.to_thread(self.check_engine)

    def _check_folder(self) -> None:
        self._host.check(own_node(self._order))
        self._folder.mkdir(parents=True, exist_ok=True)
        if is_full(self._folder):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._folder))

    async def spawn(self, meeting: str, say: Callable[[str], None]) -> dict[int, RankProcess]:
        """Start all ranks. `say`: prints a line in the job's output. Raises OSError, NoAccount."""
        account = await asyncio.to_thread(self._host.account, self._order)
        self._preparing_since = time.monotonic()
        try:
            unlimited = await in_own_thread(partial(self._prepare, account))
        finally:
            self._preparing_since = None
        for name in unlimited:
            say(f"this node sets no limit on {name}")
        template = await self._template(account)
        # Released before the start: a program that does not set SO_REUSEADDR cannot bind a port that is held.
        self._held = None
        processes = {}
        for claim in self._claim.ranks:
            start = await asyncio.to_thread(self._spec_of, claim.rank, meeting, account)
            processes[claim.rank] = await self._fork_or_start(start, template)
            await self._claim_rank(claim.rank, processes[claim.rank])
        return processes

    def waits_for(self) -> str:
        """The checkpoint folder, if making folders has taken longer than ANSWER_LIMIT_S; else empty."""
        since = self._preparing_since
        late = since is not None and time.monotonic() - since > ANSWER_LIMIT_S
        return self.context.checkpoints if late else ""

    def owns(self, peer: Peer, process: RankProcess | None) -> bool:
        """Whether the process at the other end of a connection is the rank, or another one of the worker.

        A process in a container is recognised by an environment variable. Anybody can start a process with
        that variable, so processes of other accounts are refused first.
        """
        try:
            account = self._host.account(self._order)
        except NoAccount:
            return False
        if peer.uid not in {os.geteuid(), account.uid if account else os.geteuid()}:
            return False
        if process and process.identity and process.identity.pid == peer.pid:
            return True
        if peer.pid in self._processes.pids():
            return True
        return bool(self._order.spec.image) and has_variable(peer.pid, self._host.variable(self._order))

    def memory(self) -> MemoryState:
        """Whether the kernel killed a process of the worker for want of memory, and at which limit."""
        found = self._out_of_memory()
        if not found.kills:
            return MemoryState.ENOUGH
        limited = self._order.spec.memory is not None and found.at_limit
        return MemoryState.OVER_LIMIT if limited else MemoryState.NODE_FULL

    def check_engine(self) -> None:
        """Raises NoEngine if the engine in whose containers the ranks run does not answer. Blocks."""
        engine = self._engine()
        if engine is not None and not containers.answers(engine):
            raise containers.NoEngine(f"{engine} does not answer")

    def _out_of_memory(self) -> OutOfMemory:
        engine = self._engine()
        if engine is None:
            return self._processes.out_of_memory()
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            killed = containers.out_of_memory(engine, self._container_names())
            return OutOfMemory(kills=killed, at_limit=killed)
        return OutOfMemory()

    async def all_gone(self) -> None:
        """Wait until no process of the worker is left."""
        while pids := await asyncio.to_thread(self._processes.pids):
            for identity in filter(None, map(identity_of, pids)):
                await gone(identity)

    async def kill(self) -> None:
        """Kill all processes of the worker."""
        if engine := self._engine():
            with contextlib.suppress(OSError, subprocess.TimeoutExpired):
                await asyncio.to_thread(containers.remove, engine, self._container_names())
        await asyncio.to_thread(self._processes.kill)

    async def remove(self) -> None:
        await asyncio.to_thread(self._processes.remove)

    # ---- a start

    def _prepare(self, account: Account | None) -> tuple[str, ...]:
        """Make folders, claim and control group; returns the limits that cannot be set. Raises OSError."""
        spec, here = self._order.spec, len(self._claim.ranks)
        make_worker(self._folder, [claim.rank for claim in self._claim.ranks], account)
        self._host.folders.make_checkpoints(self._order, account)
        if spec.image:
            self._check_folders(account)
        claims.write(self._folder, self._claim)
        plain = self._script is not None and not (spec.image or account)
        if plain and self._script and (interpreter := _interpreter(self._script, spec)):
            self._host.folders.interpreter.write_text(interpreter)
        group = self._host.groups.make(self._order.placement_id) if self._host.groups else None
        if spec.image:  # the engine sets the limits; the group only holds the engine's client
            return ()
        memory = None if spec.memory is None else spec.memory * here
        cpus = None if spec.cpus is None else spec.cpus * here
        if group is None:
            limits = {"memory": memory, "cpus": cpus}
            return tuple(name for name, limit in limits.items() if limit is not None)
        return group.set_limits(memory=memory, cpus=cpus)

    async def _claim_rank(self, number: int, process: RankProcess) -> None:
        """Record a rank that was started, before the next one is started.

        If the start of the next one fails, the kill has to find this rank.
        """
        started = claims.RankClaim(number, process.identity)
        ranks = tuple(started if one.rank == number else one for one in self._claim.ranks)
        self._claim = msgspec.structs.replace(self._claim, ranks=ranks)
        self._processes = self._host.processes_of(self._claim)
        await asyncio.to_thread(claims.write, self._folder, self._claim)

    async def _template(self, account: Account | None) -> Template | None:
        if self._script is None or self._host.templates is None or account:
            return None
        interpreter = launch.template_interpreter(self._script, self._order.spec)
        return await self._host.templates.of(interpreter) if interpreter else None

    async def _fork_or_start(self, start: ProcessSpec, template: Template | None) -> RankProcess:
        if template is not None and self._script is not None:
            try:
                return await template.fork(self._script, start)
            except (NoTemplate, TimeoutError):
                pass  # the template has just ended: start the rank as a new process
        return child_rank(await asyncio.to_thread(start_process, start))

    def _spec_of(self, rank: int, meeting: str, account: Account | None) -> ProcessSpec:
        spec, files = self._order.spec, RankFiles(self._folder, rank)
        of_job = launch.environment(self._order, rank, self.context, last=str(files.last), meeting=meeting)
        of_job["PYTHONPATH"] = launch.search_path(self.context, of_job)
        command = self._script.command(self.context.plugin) if self._script else self._command
        of_agent = launch.inherited(os.environ)
        start = ProcessSpec(
            command=command,
            environment=of_agent | _home(account) | of_job,
            folder=spec.working_directory,
            log=files.log,
            groups=self._processes.enter if isinstance(self._processes, Group) else (),
            account=account,
        )
        if not spec.image:
            return start
        containers.write_environment(files.environment, of_job)
        command = containers.wrapped(self._container(files, account), spec, command)
        mark = {launch.MARK: of_job[launch.MARK]}
        return msgspec.structs.replace(
            start, command=command, environment=of_agent | mark, folder="", account=None
        )

    def _check_folders(self, account: Account | None) -> None:
        """Check that the job's account may use the folders that its container mounts.

        Raises OSError, ValueError. A container engine runs as root, and would mount folders that the account
        cannot open.
        """
        containers.check_folders(self._shared())
        if self._order.spec.working_directory:
            reach(Path(self._order.spec.working_directory), account)

    def _shared(self) -> list[str]:
        """The folders that are mounted into a container."""
        context = self.context
        folders = [
            str(self._host.folders.socket.parent),
            context.plugin,
            str(self._folder),
            context.checkpoints,
        ]
        return [*folders, *filter(None, [self._order.spec.working_directory])]

    def _container(self, files: RankFiles, account: Account | None) -> containers.Container:
        """Raises OSError."""
        engine = containers.engine()
        if engine is None:
            raise FileNotFoundError(f"an image needs one of {' and '.join(containers.ENGINES)} on the node")
        uid, gid = (account.uid, account.gid) if account else (os.geteuid(), os.getegid())
        return containers.Container(
            engine=engine,
            name=self._container_name(files.rank),
            user=f"{uid}:{gid}",
            environment=files.environment,
            folders=self._shared(),
            gpus=self.context.gpus or (),
        )

    def _container_name(self, rank: int) -> str:
        return f"hopyard-{self._order.placement_id}-{rank}"

    def _container_names(self) -> list[str]:
        return [self._container_name(claim.rank) for claim in self._claim.ranks]

    def _engine(self) -> str | None:
        """The engine in whose containers the ranks run; None: they run in none."""
        return containers.engine() if self._order.spec.image else None


def _new_claim(
    order: StartOrdered, gpu_indices: tuple[int, ...], groups: dict[str, str], port: int | None
) -> claims.WorkerClaim:
    ranks = tuple(map(claims.RankClaim, ranks_on(order)))
    return claims.WorkerClaim(order=order, gpu_indices=gpu_indices, ranks=ranks, groups=groups, port=port)


def _interpreter(script: launch.Script, spec: JobSpec) -> str:
    """The absolute path of a script's interpreter on this node; empty: there is no such program."""
    path = dict(spec.environment).get("PATH", os.environ.get("PATH"))
    found = shutil.which(script.interpreter, path=path) or script.interpreter
    whole = Path(spec.working_directory or Path.cwd()) / found
    return str(whole) if whole.is_file() and os.access(whole, os.X_OK) else ""


def _home(account: Account | None) -> dict[str, str]:
    return {} if account is None else {"HOME": account.home, "USER": account.name, "LOGNAME": account.name}
