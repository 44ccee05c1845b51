"""A worker with its processes: what its gang decides is done here, and what happens is put before it.

`live` never raises, and ends with its last report once nothing of the worker is left.
"""

import asyncio
import errno
import os
import shutil
import stat
from collections.abc import Callable, Iterable, Sequence
from functools import partial

import structlog

from schemas import placement
from schemas.events import StartOrdered
from services.agent.process import claims
from services.agent.process.folders import RankFiles
from services.agent.process.gang import effects, messages
from services.agent.process.gang.machine import Gang, GangState
from services.agent.process.gang.verdicts import ProcessEnd
from services.agent.process.host import Host
from services.agent.process.launching import Launcher
from services.agent.process.listener import Connection, Peer
from services.agent.process.own_thread import in_own_thread
from services.agent.process.ranks import RankProcess
from services.agent.process.tails import Tail
from services.agent.process.turns.executor import Executor, Participant
from services.agent.tasks import Failed, Interrupted, LastReport
from shared.domain import gangs

HANG_UP_LIMIT_S = 1.0
"""how long what a rank said may take to arrive after its end"""
OF_THE_NODE = {
    *(errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.ESTALE, errno.ETIMEDOUT),
    *(errno.ENOMEM, errno.EAGAIN, errno.EMFILE, errno.ENFILE),
}
"""errors that keep a job from being started here, and not elsewhere"""

ABSENT = {errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.ENOEXEC}
"""a program or a folder is not there, or not for the job's account; elsewhere it may be"""

log = structlog.get_logger()


class LiveWorker:
    """`claim`: of an earlier life, which started it."""

    def __init__(
        self,
        host: Host,
        order: StartOrdered,
        gpu_indices: tuple[int, ...],
        claim: claims.WorkerClaim | None = None,
        executors: Sequence[Executor] = (),
    ) -> None:
        """`executors`: of its GPUs, where others take turns on them."""
        self.order = order
        self.gpu_indices = gpu_indices
        self.gone = asyncio.Event()
        self._host = host
        self._launcher = Launcher(host, order, gpu_indices, claim)
        self.gang = Gang(
            order,
            speaks=self._launcher.speaks,
            host=self._launcher.context.host,
            port=self._launcher.port,
            observe_every_s=host.observe_every_s,
        )
        self._inputs: asyncio.Queue[Callable[[], effects.Actions]] = asyncio.Queue()
        self._processes: dict[int, RankProcess] = {}
        self._connections: dict[int, Connection] = {}
        self._watching: set[asyncio.Task[None]] = set()
        self._alarms: list[asyncio.TimerHandle] = []
        self._folder = host.folders.worker(order.placement_id)
        self._tails = {rank: Tail(RankFiles(self._folder, rank)) for rank in self.gang.ranks}
        self._reading = asyncio.Lock()
        self._last: LastReport | None = None
        self._executors = dict(zip(self.gang.ranks, executors, strict=bool(executors)))

    # ---- from outside

    def put(self, happened: Callable[[], effects.Actions]) -> None:
        self._inputs.put_nowait(happened)

    def kill(self) -> None:
        """Kill a worker whose grace after the order to stop is over."""
        self.put(partial(self.gang.rang, effects.Timer.LEAVING))

    def connected(self, hello: messages.Hello, peer: Peer, connection: Connection) -> bool:
        process = self._processes.get(hello.rank)
        if hello.rank not in self.gang.ranks or not self._launcher.owns(peer, process):
            return False
        self._connections[hello.rank] = connection
        self.heard(hello.rank, hello)
        return True

    def heard(self, rank: int, message: messages.RankMessage) -> None:
        if rank in self._executors and isinstance(
            message, messages.Hello | messages.ReadyMessage | messages.DoneMessage
        ):
            self._executors[rank].heard(self.order.placement_id, message)
        self.put(partial(self.gang.heard, rank, message))

    def waits_for(self) -> str:
        """A folder on a disk that does not answer its start; empty: it waits for none."""
        return self._launcher.waits_for()

    def stop(self) -> None:
        for executor in self._executors.values():
            executor.hurries(self.order.placement_id)
        self.put(self.gang.stop)

    def turn(self, gang: placement.Gang) -> None:
        """Change how often, and when, it has its turn."""
        if shared := gangs.in_rota(gang):
            for executor in self._executors.values():
                executor.changes(self.order.placement_id, shared.turns, shared.place)

    async def live(self, before: Iterable["LiveWorker"] = ()) -> LastReport:
        """`before`: workers whose GPUs it gets once they are gone."""
        for worker in before:
            await worker.gone.wait()
        try:
            await self._play()
        except Exception as error:  # whatever went wrong ends this worker, and no other
            log.warning("a worker cannot go on", placement=self.order.placement_id, exc_info=True)
            self._last = self._unplayable(error)
        await self._clean_up()
        self.gone.set()
        assert self._last is not None, "a gang that has gone has said how"
        return self._last

    async def read(self) -> None:
        """Hand on what its ranks printed since the last time."""
        async with self._reading:
            for rank, tail in self._tails.items():
                self._write(rank, await asyncio.to_thread(tail.lines))

    # ---- its life

    async def _play(self) -> None:
        await self._perform(self._beginning())
        while self.gang.state is not GangState.GONE:
            happened = await self._inputs.get()
            await self._perform(happened())

    def _beginning(self) -> effects.Actions:
        found = self._launcher.found()
        if not found:
            return self.gang.begin()
        self._watch(found)
        return self.gang.taken_over()

    async def _perform(self, actions: effects.Actions) -> None:
        for action in actions:
            match action:
                case effects.Spawn(meeting):
                    say = partial(self._print, min(self.gang.ranks))
                    self._watch(await self._launcher.spawn(meeting, say))
                case effects.Terminate():
                    for process in self._processes.values():
                        process.terminate()
                case effects.Kill():
                    await self._launcher.kill()
                case effects.SendLastReport(report):
                    self._last = report
                case _:
                    self._perform_small(action)

    def _perform_small(self, action: effects.QuickAction) -> None:
        match action:
            case effects.SendLine(line, rank):
                self._tell(line, rank)
            case effects.SetTimer(due, after_s):
                rings = partial(self.put, partial(self.gang.rang, due))
                self._alarms.append(asyncio.get_running_loop().call_later(after_s, rings))
            case effects.PrintLine(rank, text):
                self._print(rank, text)
            case effects.SendReport(report):
                self._host.report(report)

    def _watch(self, processes: dict[int, RankProcess]) -> None:
        self._processes = processes
        self._join_executors(unheard=self._launcher.adopted)
        for rank in processes:
            task = asyncio.create_task(self._see_end(rank))
            self._watching.add(task)
            task.add_done_callback(self._watching.discard)

    def _join_executors(self, *, unheard: bool) -> None:
        if (shared := gangs.in_rota(self.order.gang)) is None:
            return
        for rank, executor in self._executors.items():
            participant = Participant(
                self.order.placement_id, tell=partial(self._tell, rank=rank), end=partial(self._end, rank)
            )
            executor.joins(participant, shared.turns, shared.place, unheard=unheard)

    def _end(self, rank: int, reason: str) -> None:
        self.put(partial(self.gang.hangs, rank, reason))

    async def _see_end(self, rank: int) -> None:
        try:
            end = await self._end_of(rank)
        except Exception as error:  # noqa: BLE001 - it is raised where a worker ends
            self.put(partial(_raise, error))
        else:
            self.put(partial(self.gang.ended, rank, end))

    async def _end_of(self, rank: int) -> ProcessEnd:
        code, number = await self._processes[rank].ended()
        if rank in self._executors:
            self._executors[rank].leaves(self.order.placement_id)
        await self._hear_out(rank)
        memory = await asyncio.to_thread(self._launcher.memory)
        lines = await asyncio.to_thread(self._tails[rank].last)
        full = await in_own_thread(partial(self._host.folders.full, self.order))
        return ProcessEnd(code=code, signal=number, memory=memory, disk_full=full, lines=lines)

    async def _hear_out(self, rank: int) -> None:
        """Read what a rank still said, and what it wrote down in case nobody was connected."""
        connection = self._connections.get(rank)
        if connection is not None:
            try:
                async with asyncio.timeout(HANG_UP_LIMIT_S):
                    await connection.closed.wait()
            except TimeoutError:
                pass  # a process of the job's still holds the line
        text = await asyncio.to_thread(_read, RankFiles(self._folder, rank))
        if message := messages.message_in_file(text):
            self.heard(rank, message)

    # ---- its end

    async def _clean_up(self) -> None:
        """Remove what can be removed; failures are ignored, so that the worker's end is not delayed."""
        launcher = self._launcher
        for step in (launcher.kill, self._hang_up, self._read_out, launcher.remove, self._forget):
            try:
                await step()
            except Exception:
                log.warning("a worker left something", placement=self.order.placement_id, exc_info=True)

    async def _hang_up(self) -> None:
        for alarm in self._alarms:
            alarm.cancel()
        for task in list(self._watching):
            task.cancel()
        for connection in self._connections.values():
            connection.close()
        for executor in self._executors.values():
            executor.leaves(self.order.placement_id)

    async def _read_out(self) -> None:
        async with self._reading:
            for rank, tail in self._tails.items():
                for lines in await asyncio.to_thread(list, tail.rest()):
                    self._write(rank, lines)

    async def _forget(self) -> None:
        async with self._reading:  # who reads on would write down how far
            self._tails.clear()
            await asyncio.to_thread(shutil.rmtree, self._folder, ignore_errors=True)

    def _unplayable(self, error: Exception) -> LastReport:
        own = isinstance(error, ValueError) or (isinstance(error, OSError) and error.errno not in OF_THE_NODE)
        reason = f"cannot be started: {error}"
        if not own:
            return Interrupted(self.order.placement_id, reason)
        absent = isinstance(error, OSError) and error.errno in ABSENT
        return Failed(self.order.placement_id, reason, absent=absent)

    # ---- small things

    def _tell(self, line: bytes, rank: int | None) -> None:
        for number, connection in self._connections.items():
            if rank is None or number == rank:
                connection.tell(line)

    def _print(self, rank: int, text: str) -> None:
        self._write(rank, [f"hopyard: {text}"])

    def _write(self, rank: int, lines: Iterable[str]) -> None:
        if self._host.write is not None:
            for line in lines:
                self._host.write(self.order.job_id, rank, line)


def _read(files: RankFiles) -> bytes:
    """Empty: it wrote nothing down. The folder is the job's account's: what is no file is not followed."""
    try:
        descriptor = os.open(files.last, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return b""
    with open(descriptor, "rb") as file:  # noqa: PTH123 - a descriptor
        return file.read(messages.LINE_MAX_BYTES) if stat.S_ISREG(os.fstat(descriptor).st_mode) else b""


def _raise(error: Exception) -> effects.Actions:
    raise error
