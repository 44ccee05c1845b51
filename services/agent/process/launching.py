"""Starts the ranks of a worker, finds those of an earlier life, and ends all that came of them."""

import asyncio
import contextlib
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
from services.agent.process.folders import RankFiles, make_worker
from services.agent.process.gang.machine import ranks_on
from services.agent.process.gang.verdicts import MemoryState
from services.agent.process.host import Host
from services.agent.process.kernel.cgroups import Group
from services.agent.process.kernel.process_scan import has_variable
from services.agent.process.kernel.spawning import Account, NoAccount, ProcessSpec, reach, started
from services.agent.process.listener import Peer
from services.agent.process.own_thread import in_own_thread
from services.agent.process.ranks import RankProcess, found, of_child
from services.agent.process.templates import NoTemplate, Template
from shared.runtime.process.ports import HeldPorts

ANSWER_LIMIT_S = 10.0
"""for folders to be made and read: a disk that answers takes milliseconds, one of another machine seconds"""


class Launcher:
    """`claim`: of an earlier life, which started it."""

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
        meets = claim is None and self._script is None and order.gang.gpus > 1
        self._held = HeldPorts("") if meets else None
        """the port where other ranks meet rank 0 of a command that is no script, which reports none itself"""
        port = self._held.ports[0] if self._held else None
        self._claim = claim or _new_claim(order, gpu_indices, host.groups_of(order), port)
        self._found = claim is not None
        self._folder = host.folders.worker(order.placement_id)
        self._members = host.members(self._claim)
        self._preparing_since: float | None = None

    @property
    def speaks(self) -> bool:
        """Whether its command is a Python script, under the plug-in."""
        return self._script is not None

    @property
    def adopted(self) -> bool:
        """Started by an earlier life."""
        return self._found

    @property
    def port(self) -> int | None:
        """Port of rank 0 for a command that is no Python script."""
        return None if self.speaks else self._claim.port

    def found(self) -> dict[int, RankProcess]:
        """The ranks that an earlier life started."""
        return {rank.rank: found(rank.process) for rank in self._claim.ranks} if self._found else {}

    async def spawn(self, meeting: str, say: Callable[[str], None]) -> dict[int, RankProcess]:
        """Start all ranks. `say`: takes what the job's owner should know. Raises OSError, NoAccount."""
        account = await asyncio.to_thread(self._host.account, self._order)
        self._preparing_since = time.monotonic()
        try:
            unlimited = await in_own_thread(partial(self._prepare, account))
        finally:
            self._preparing_since = None
        for name in unlimited:
            say(f"this node sets no limit on {name}")
        template = await self._template(account)
        # Not every program sets SO_REUSEADDR, without which it cannot have a port that is held.
        self._held = None
        processes = {}
        for claim in self._claim.ranks:
            start = await asyncio.to_thread(self._start, claim.rank, meeting, account)
            processes[claim.rank] = await self._started(start, template)
            await self._claim_rank(claim.rank, processes[claim.rank])
        return processes

    def waits_for(self) -> str:
        """The folder of its checkpoints, while a start has waited too long for its folders; else empty."""
        since = self._preparing_since
        late = since is not None and time.monotonic() - since > ANSWER_LIMIT_S
        return self.context.checkpoints if late else ""

    def owns(self, peer: Peer, process: RankProcess | None) -> bool:
        """Whether a process is the rank, or came of the worker; one in a container is known by a variable.

        Whoever starts a process says what its variables are, so another account's is none.
        """
        try:
            account = self._host.account(self._order)
        except NoAccount:
            return False
        if peer.uid not in {os.geteuid(), account.uid if account else os.geteuid()}:
            return False
        if process and process.identity and process.identity.pid == peer.pid:
            return True
        if peer.pid in self._members.pids():
            return True
        return bool(self._order.spec.image) and has_variable(peer.pid, self._host.variable(self._order))

    def memory(self) -> MemoryState:
        found = self._members.out_of_memory()
        if not found.kills:
            return MemoryState.ENOUGH
        limited = self._order.spec.memory is not None and found.at_limit
        return MemoryState.OVER_LIMIT if limited else MemoryState.NODE_FULL

    async def kill(self) -> None:
        """Kill all processes of the worker."""
        engine = containers.engine() if self._order.spec.image else None
        if engine:
            names = [self._container_name(claim.rank) for claim in self._claim.ranks]
            with contextlib.suppress(OSError, subprocess.TimeoutExpired):
                await asyncio.to_thread(containers.remove, engine, names)
        await asyncio.to_thread(self._members.kill)

    async def remove(self) -> None:
        await asyncio.to_thread(self._members.remove)

    # ---- a start

    def _prepare(self, account: Account | None) -> tuple[str, ...]:
        """Folders, claim, groups; the limits that cannot be set. Raises OSError."""
        spec, here = self._order.spec, len(self._claim.ranks)
        make_worker(self._folder, [claim.rank for claim in self._claim.ranks], account)
        self._host.folders.make_checkpoints(self._order, account)
        if spec.image:
            self._check_folders(account)
        claims.write(self._folder, self._claim)
        plain = self._script is not None and not (spec.image or account)
        if plain and self._script and (interpreter := _interpreter(self._script, spec)):
            self._host.folders.interpreter.write_text(interpreter)
        group = self._host.groups.made(self._order.placement_id) if self._host.groups else None
        if spec.image:  # the engine limits it; in the group is the engine's program
            return ()
        memory = None if spec.memory is None else spec.memory * here
        cpus = None if spec.cpus is None else spec.cpus * here
        if group is None:
            limits = {"memory": memory, "cpus": cpus}
            return tuple(name for name, limit in limits.items() if limit is not None)
        return group.limited(memory=memory, cpus=cpus)

    async def _claim_rank(self, number: int, process: RankProcess) -> None:
        """At once: whoever ends this worker has to find it, also where the next rank cannot be started."""
        started = claims.RankClaim(number, process.identity)
        ranks = tuple(started if one.rank == number else one for one in self._claim.ranks)
        self._claim = msgspec.structs.replace(self._claim, ranks=ranks)
        self._members = self._host.members(self._claim)
        await asyncio.to_thread(claims.write, self._folder, self._claim)

    async def _template(self, account: Account | None) -> Template | None:
        if self._script is None or self._host.templates is None or account:
            return None
        interpreter = launch.forked_of(self._script, self._order.spec)
        return await self._host.templates.of(interpreter) if interpreter else None

    async def _started(self, start: ProcessSpec, template: Template | None) -> RankProcess:
        if template is not None and self._script is not None:
            try:
                return await template.fork(self._script, start)
            except (NoTemplate, TimeoutError):
                pass  # it has just ended: start as any process is
        return of_child(await asyncio.to_thread(started, start))

    def _start(self, rank: int, meeting: str, account: Account | None) -> ProcessSpec:
        spec, files = self._order.spec, RankFiles(self._folder, rank)
        own_ones = launch.environment(self._order, rank, self.context, last=str(files.last), meeting=meeting)
        own_ones["PYTHONPATH"] = launch.search_path(self.context, own_ones)
        command = self._script.command if self._script else self._command
        agents = launch.inherited(os.environ)
        start = ProcessSpec(
            command=command,
            environment=agents | _home(account) | own_ones,
            folder=spec.working_directory,
            log=files.log,
            groups=self._members.enter if isinstance(self._members, Group) else (),
            account=account,
        )
        if not spec.image:
            return start
        containers.write_environment(files.environment, own_ones)
        command = containers.wrapped(self._container(files, account), spec, command)
        mark = {launch.MARK: own_ones[launch.MARK]}
        return msgspec.structs.replace(
            start, command=command, environment=agents | mark, folder="", account=None
        )

    def _check_folders(self, account: Account | None) -> None:
        """An engine as root gives a job what its account cannot get to. Raises OSError, ValueError."""
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


def _new_claim(
    order: StartOrdered, gpu_indices: tuple[int, ...], groups: dict[str, str], port: int | None
) -> claims.WorkerClaim:
    ranks = tuple(map(claims.RankClaim, ranks_on(order)))
    return claims.WorkerClaim(order=order, gpu_indices=gpu_indices, ranks=ranks, groups=groups, port=port)


def _interpreter(script: launch.Script, spec: JobSpec) -> str:
    """The whole path of what a script's word for its interpreter means on this node; empty: nothing."""
    path = dict(spec.environment).get("PATH", os.environ.get("PATH"))
    found = shutil.which(script.interpreter, path=path) or script.interpreter
    whole = Path(spec.working_directory or Path.cwd()) / found
    return str(whole) if whole.is_file() and os.access(whole, os.X_OK) else ""


def _home(account: Account | None) -> dict[str, str]:
    return {} if account is None else {"HOME": account.home, "USER": account.name, "LOGNAME": account.name}
