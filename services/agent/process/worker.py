"""A worker with its processes: carries out the effects of its gang, and feeds the gang with what happens.

`run` raises nothing. It returns the worker's last report once all its processes and files are gone.
"""

import asyncio
import errno
import math
import os
import shutil
import stat
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path

import structlog

from schemas import placement
from schemas.events import StartOrdered
from services.agent.process import claims
from services.agent.process.containers import NoEngine
from services.agent.process.folders import RankFiles
from services.agent.process.gang import effects, messages
from services.agent.process.gang.machine import Gang, GangState
from services.agent.process.gang.verdicts import NO_CONTAINER, ProcessEnd
from services.agent.process.host import Host, UnfitNode
from services.agent.process.kernel.spawning import NoAccount
from services.agent.process.launcher import Launcher
from services.agent.process.listener import Connection, Peer
from services.agent.process.own_thread import in_own_thread
from services.agent.process.ranks import RankProcess
from services.agent.process.tails import Tail
from services.agent.process.turns.executor import Executor, Participant
from services.agent.tasks import Failed, Interrupted, LastReport, NotStarted, Report, Saved, Started
from shared.domain import gangs

A_MOMENT_S = 5.0
"""for so long a disk that got space back counts as full: a rank that could not write ends a little later"""
DEATH_LIMIT_S = 10.0
"""time from the kill to the end of processes after which they count as stuck"""
LAST_MESSAGE_LIMIT_S = 1.0
"""how long a rank's messages may take to arrive after its process has ended"""
BLOCKS_A_READ = 8
"""blocks of a rank's output that are read at a time, before it is the next rank's turn"""
SAVED_EVERY_S = 0.5
"""shortest time between two checkpoints of a worker that are reported, since each becomes a fact; the
interval in a job file is at least twice as long"""
NODE_ERRORS = {
    *(errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.ESTALE, errno.ETIMEDOUT),
    *(errno.ENOMEM, errno.EAGAIN, errno.EMFILE, errno.ENFILE),
}
"""errors of this node: the job could be started on another one"""

ABSENT_ERRORS = {errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.ENOEXEC}
"""errors of a program or folder that the job's account cannot find or use here; another node may have it"""

NO_THREAD = "can't start new thread"
"""words of Python's RuntimeError where the system permits no further thread"""
CONTROL_GROUPS = Path("/sys/fs/cgroup")

log = structlog.get_logger()


def in_words(error: Exception) -> str:
    """An error in words for users; an error of a file as the file and the reason."""
    if isinstance(error, OSError) and error.strerror:
        return f"{os.fsdecode(error.filename)}: {error.strerror}" if error.filename else error.strerror
    return str(error)


class LiveWorker:
    """`claim`: that of the earlier life that started the worker; None: this life starts it.

    `executors`: those of its GPUs, in the order of its ranks, if jobs take turns on them.
    """

    def __init__(
        self,
        host: Host,
        order: StartOrdered,
        gpu_indices: tuple[int, ...],
        claim: claims.WorkerClaim | None = None,
        executors: Sequence[Executor] = (),
    ) -> None:
        self.order = order
        self.gpu_indices = gpu_indices
        self.gone = asyncio.Event()
        self._host = host
        self._launcher = Launcher(host, order, gpu_indices, claim)
        self.gang = Gang(
            order,
            has_plugin=self._launcher.has_plugin,
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
        self._saved_at = -math.inf
        """when a checkpoint was reported last, by the clock `time.monotonic`"""
        self._killed_at = math.inf
        """when its processes were killed first, by the clock `time.monotonic`"""
        self._is_up = self._launcher.adopted
        """whether it was reported as started, perhaps in an earlier life"""
        self._executors = dict(zip(self.gang.ranks, executors, strict=bool(executors)))

    # ---- from outside

    def put(self, happened: Callable[[], effects.Actions]) -> None:
        """Queue a call of the gang; its effects are carried out in the worker's own task."""
        self._inputs.put_nowait(happened)

    def kill(self) -> None:
        """Kill the worker, because the agent ends and has waited for the worker's grace."""
        self.put(partial(self.gang.timer_fired, effects.Timer.LEAVING))

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
        """The folder on a disk that keeps the worker's start waiting; empty: no disk does."""
        return self._launcher.waits_for()

    def stuck(self) -> bool:
        """Whether its processes have not ended although they were killed, as on a disk that hangs."""
        return time.monotonic() - self._killed_at > DEATH_LIMIT_S

    def stop(self) -> None:
        for executor in self._executors.values():
            executor.hurry(self.order.placement_id)
        self.put(self.gang.stop)

    def turn(self, gang: placement.Gang) -> None:
        """Change the turns of the worker's placement in its rota."""
        if shared := gangs.in_rota(gang):
            for executor in self._executors.values():
                executor.reschedule(self.order.placement_id, shared.turns, shared.place)

    async def run(self, predecessors: Iterable["LiveWorker"] = ()) -> LastReport:
        """Run the worker to its end. `predecessors`: workers on the same GPUs, whose end it waits for."""
        for worker in predecessors:
            await worker.gone.wait()
        try:
            await self._run_gang()
        except (NoAccount, UnfitNode, NoEngine) as error:
            log.warning(
                "a worker cannot be started", placement=self.order.placement_id, reason=in_words(error)
            )
            self._last = self._report_of(error)
        except Exception as error:  # an error ends this worker, and no other
            log.warning(
                "a worker ends by an error of the agent", placement=self.order.placement_id, exc_info=True
            )
            self._last = self._report_of(error)
        await self._clean_up()
        self.gone.set()
        assert self._last is not None, "a gang that is gone has sent its last report"
        return self._last

    async def read(self) -> None:
        """Pass on what its ranks have printed since the last call."""
        async with self._reading:
            for rank, tail in self._tails.items():
                for _ in range(BLOCKS_A_READ):
                    self._write(rank, await asyncio.to_thread(tail.lines))
                    if not tail.behind:
                        break

    # ---- its life

    async def _run_gang(self) -> None:
        if not self._launcher.adopted:
            await self._launcher.check_node()
        await self._perform(self._beginning())
        while self.gang.state is not GangState.GONE:
            happened = await self._inputs.get()
            await self._perform(happened())

    def _beginning(self) -> effects.Actions:
        found = self._launcher.adopted_ranks()
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
                    self._killed_at = min(self._killed_at, time.monotonic())
                    await self._launcher.kill()
                case effects.SendLastReport(report):
                    self._last = report
                case _:
                    self._perform_small(action)

    def _perform_small(self, action: effects.QuickAction) -> None:
        match action:
            case effects.SendLine(line, rank):
                self._send(line, rank)
            case effects.SetTimer(due, after_s):
                rings = partial(self.put, partial(self.gang.timer_fired, due))
                self._alarms.append(asyncio.get_running_loop().call_later(after_s, rings))
            case effects.PrintLine(rank, text):
                self._print(rank, text)
            case effects.SendReport(report):
                self._is_up |= isinstance(report, Started)
                self._report(report)

    def _report(self, report: Report) -> None:
        """Report to the core; checkpoints in a hurry are left out, and count once the worker ends."""
        if isinstance(report, Saved):
            if time.monotonic() - self._saved_at < SAVED_EVERY_S:
                return
            self._saved_at = time.monotonic()
        self._host.report(report)

    def _watch(self, processes: dict[int, RankProcess]) -> None:
        self._processes = processes
        self._join_executors(unconfirmed=self._launcher.adopted)
        for rank in processes:
            task = asyncio.create_task(self._watch_end(rank))
            self._watching.add(task)
            task.add_done_callback(self._watching.discard)

    def _join_executors(self, *, unconfirmed: bool) -> None:
        if (shared := gangs.in_rota(self.order.gang)) is None:
            return
        for rank, executor in self._executors.items():
            participant = Participant(
                self.order.placement_id, send=partial(self._send, rank=rank), end=partial(self._end, rank)
            )
            executor.join(participant, shared.turns, shared.place, unconfirmed=unconfirmed)

    def _end(self, rank: int, reason: str) -> None:
        self.put(partial(self.gang.end_hung, rank, reason))

    async def _watch_end(self, rank: int) -> None:
        try:
            end = await self._end_of(rank)
        except Exception as error:  # noqa: BLE001 - it is raised again in the worker's own task
            self.put(partial(_raise, error))
        else:
            self.put(partial(self.gang.ended, rank, end))

    async def _end_of(self, rank: int) -> ProcessEnd:
        code, number = await self._processes[rank].ended()
        if self.gang.record.stopping and not self._launcher.has_plugin:
            await self._launcher.all_gone()  # a shell ends before what it runs, which may still be saving
        if rank in self._executors:
            self._executors[rank].leave(self.order.placement_id)
        spoke = await self._read_last_messages(rank)
        if code == NO_CONTAINER and not (spoke or self.gang.record.stopping):
            await asyncio.to_thread(self._launcher.check_engine)
        memory = await asyncio.to_thread(self._launcher.memory)
        lines = await asyncio.to_thread(self._tails[rank].last)
        full = await in_own_thread(partial(self._host.folders.full, self.order))
        return ProcessEnd(
            code=code, signal=number, memory=memory, disk_full=full or self._was_full(), lines=lines
        )

    def _was_full(self) -> str:
        """The agent's folder, if its disk was full before the space of what was printed was given back."""
        last = max(tail.freed_when_full for tail in self._tails.values())
        return str(self._host.folders.run) if time.monotonic() - last < A_MOMENT_S else ""

    async def _read_last_messages(self, rank: int) -> bool:
        """Take the last messages of a rank that has ended: from its connection, and from its file.

        A rank writes its last message to a file too, since the agent may be away when it ends. Returns
        whether it was connected or left one.
        """
        connection = self._connections.get(rank)
        if connection is not None:
            try:
                async with asyncio.timeout(LAST_MESSAGE_LIMIT_S):
                    await connection.closed.wait()
            except TimeoutError:
                pass  # another process of the job still holds the connection
        text = await asyncio.to_thread(_read, RankFiles(self._folder, rank))
        message = messages.message_in_file(text)
        if message:
            self.heard(rank, message)
        return connection is not None or message is not None

    # ---- its end

    async def _clean_up(self) -> None:
        """Remove what the worker leaves. An error is logged, so that it does not delay the worker's end."""
        launcher = self._launcher
        for step in (launcher.kill, self._hang_up, self._read_rest, launcher.remove, self._remove_folder):
            try:
                await step()
            except Exception:
                log.warning(
                    "a worker is not cleaned up completely", placement=self.order.placement_id, exc_info=True
                )

    async def _hang_up(self) -> None:
        for alarm in self._alarms:
            alarm.cancel()
        for task in list(self._watching):
            task.cancel()
        for connection in self._connections.values():
            connection.close()
        for executor in self._executors.values():
            executor.leave(self.order.placement_id)

    async def _read_rest(self) -> None:
        async with self._reading:
            for rank, tail in self._tails.items():
                rest = tail.rest()
                while (lines := await asyncio.to_thread(next, rest, None)) is not None:
                    self._write(rank, lines)

    async def _remove_folder(self) -> None:
        async with self._reading:  # a reader would write its position into the folder
            self._tails.clear()
            await asyncio.to_thread(shutil.rmtree, self._folder, ignore_errors=True)

    def _report_of(self, error: Exception) -> LastReport:
        placement_id = self.order.placement_id
        if not self._is_up and self._is_of_this_node(error):
            return NotStarted(placement_id, in_words(error))
        own = isinstance(error, ValueError) or (isinstance(error, OSError) and error.errno not in NODE_ERRORS)
        reason = in_words(error) if self._processes else f"cannot be started: {in_words(error)}"
        if not own:
            return Interrupted(placement_id, reason)
        absent = isinstance(error, OSError) and error.errno in ABSENT_ERRORS
        return Failed(placement_id, reason, absent=absent)

    def _is_of_this_node(self, error: Exception) -> bool:
        """Whether other jobs cannot be started here either: it is about no folder that this one named."""
        if isinstance(error, UnfitNode):
            return True
        if not isinstance(error, OSError):
            no_thread = isinstance(error, RuntimeError) and str(error) == NO_THREAD
            return no_thread or isinstance(error, NoEngine | MemoryError)
        if error.errno not in NODE_ERRORS - {errno.EDQUOT}:  # a quota is an account's
            return False
        folders = self._host.folders
        shared = (folders.run, CONTROL_GROUPS, *([] if self.order.spec.checkpoint_folder else [folders.jobs]))
        return error.filename is None or any(map(Path(os.fsdecode(error.filename)).is_relative_to, shared))

    # ---- small things

    def _send(self, line: bytes, rank: int | None) -> None:
        for number, connection in self._connections.items():
            if rank is None or number == rank:
                connection.send(line)

    def _print(self, rank: int, text: str) -> None:
        self._write(rank, [f"hopyard: {text}"])

    def _write(self, rank: int, lines: Iterable[str]) -> None:
        if self._host.write is not None:
            for line in lines:
                self._host.write(self.order.job_id, rank, line)


def _read(files: RankFiles) -> bytes:
    """A rank's last-message file; empty: there is none.

    The job's account owns its folder, so a link or anything else that is not a plain file is not read.
    """
    try:
        descriptor = os.open(files.last, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return b""
    with open(descriptor, "rb") as file:  # noqa: PTH123 - a descriptor
        return file.read(messages.LINE_MAX_BYTES) if stat.S_ISREG(os.fstat(descriptor).st_mode) else b""


def _raise(error: Exception) -> effects.Actions:
    raise error
