"""The runner `process`: its workers are processes of this machine.

Durations are seconds of the wall clock.
"""

import asyncio
import os
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import structlog

from schemas.calibration import AllReduceMeeting, AllReduceTimes
from schemas.events import StartOrdered
from schemas.ids import JobId, PlacementId
from schemas.placement import Gang, Lockstep, Mode, Proportional, Relaxed
from schemas.questions import JoinAllReduce, OpenAllReduce
from schemas.settings import Settings
from services.agent.gpus.machine import NoDriver, UnfitMachine, visible_devices
from services.agent.process import claims, launch
from services.agent.process.all_reduces import NotTimed, check_interpreter, time_all_reduces
from services.agent.process.folders import Folders
from services.agent.process.gang.machine import LEAVING_S, GangState
from services.agent.process.host import LOCALHOST, Host
from services.agent.process.kernel.hierarchies import groups_of
from services.agent.process.kernel.locks import locked
from services.agent.process.kernel.process_scan import take_in_orphans
from services.agent.process.launcher import ANSWER_LIMIT_S
from services.agent.process.listener import listening
from services.agent.process.templates import Templates
from services.agent.process.turns.executor import Executor
from services.agent.process.worker import LiveWorker, in_words
from services.agent.tasks import NotStarted, Report, Started, Stopped
from services.agent.work.runner import Write
from shared.domain import gangs
from shared.runtime.clock import Clock
from shared.runtime.process.ports import HeldPorts
from shared.runtime.state_folder import state_folder

READ_EVERY_S = 0.2
"""interval at which the output of all ranks is read"""
CPU_PART = 1 / 32
"""share of the asked bytes that is timed on CPU slots, where whole all-reduces would take minutes"""
ORPHAN_LEASES = 2
"""node leases after which ranks without an agent end; after one lease their job is started elsewhere"""
END_LIMIT_S = 45.0
"""seconds that workers get when the agent ends: at least this long to save, and this long to exit after the
kill"""

log = structlog.get_logger()


class ProcessRunner:
    """Implements `Runner`."""

    modes: frozenset[type[Mode]] = gangs.with_copies({Lockstep, Proportional, Relaxed})
    workloads: tuple[str, ...] = ()
    runs_commands = True
    residents_max = 0

    def __init__(self, folders: Folders, settings: Settings) -> None:
        self._folders = folders
        self._settings = settings
        self._host: Host
        self._workers: dict[PlacementId, LiveWorker] = {}
        self._executors: dict[int, Executor] = {}
        """the executor of each GPU on which jobs take turns"""
        self._idle: dict[PlacementId, StartOrdered] = {}
        """placements that need no process here, because none of their tasks is on a GPU of this node"""
        self._running_workers: set[asyncio.Task[None]] = set()
        self._claims: list[claims.WorkerClaim] = []
        self._lock = -1
        self._ready = False
        self._early: list[Callable[[], None]] = []
        """calls that came before `run` was ready"""
        self._meeting: HeldPorts | None = None
        """the port held for the next timed all-reduces, at which their ranks meet"""

    async def adopt(self) -> tuple[PlacementId, ...]:
        """See `Runner`. Raises OSError: its folder cannot be made, or another agent has locked it.

        All that needs space is made here: an agent that cannot have it shall not join.
        """
        await asyncio.to_thread(self._folders.make)
        self._lock = await locked(self._folders.lock)
        await asyncio.to_thread(self._folders.put_plugin)
        self._claims = await asyncio.to_thread(self._read_claims)
        return tuple(claim.order.placement_id for claim in self._claims)

    async def run(self, report: Callable[[Report], None], write: Write | None) -> None:
        if self._lock < 0:
            await self.adopt()
        self._host = await asyncio.to_thread(self._make_host, report, write)
        try:
            async with listening(self._folders.socket, lambda name: self._workers.get(PlacementId(name))):
                try:
                    self._take_over()
                    await self._read_for_ever()
                finally:
                    await self._end_all()
        finally:
            await self._leave()

    def start(self, order: StartOrdered, gpu_indices: tuple[int, ...]) -> None:
        self._when_ready(partial(self._start, order, gpu_indices))

    def train(self, placement_id: PlacementId, meeting: str) -> None:
        self._when_ready(partial(self._train, placement_id, meeting))

    def turn(self, placement_id: PlacementId, gang: Gang) -> None:
        self._when_ready(partial(self._turn, placement_id, gang))

    def stop(self, placement_id: PlacementId) -> None:
        self._when_ready(partial(self._stop, placement_id))

    async def all_reduces(
        self, question: OpenAllReduce | JoinAllReduce, gpu_indices: tuple[int, ...]
    ) -> AllReduceMeeting | AllReduceTimes:
        if isinstance(question, JoinAllReduce):
            return await self._join_all_reduces(question, gpu_indices)
        check_interpreter(self._host)
        here = next(node for node, _ in question.ring.members if node.node_id == question.node_id)
        self._host.check(here)
        part_of = CPU_PART if self._host.devices(here, ()) is None else 1.0
        self._meeting = HeldPorts("")  # until the next is opened
        return AllReduceMeeting(
            meeting=f"{here.address or LOCALHOST}:{self._meeting.ports[0]}",
            sizes=tuple(size * part_of for size in question.sizes),
        )

    async def _join_all_reduces(
        self, question: JoinAllReduce, gpu_indices: tuple[int, ...]
    ) -> AllReduceTimes:
        """Time the all-reduces on GPUs without a process. Raises NotTimed.

        The core counts a GPU as free while a worker of an earlier life may still be ending on it.
        """
        taken = {index for worker in self._workers.values() for index in worker.gpu_indices}
        free = [index for index in gpu_indices if index not in taken]
        wanted = next(gpus for node, gpus in question.ring.members if node.node_id == question.node_id)
        if len(free) < wanted:
            raise NotTimed(f"{wanted} GPUs wanted, {len(free)} free")
        return await time_all_reduces(self._host, question, free)

    def running(self) -> tuple[PlacementId, ...]:
        found = (claim.order.placement_id for claim in self._claims)
        return (*self._workers, *self._idle) if self._ready else tuple(found)

    def progress(self) -> dict[JobId, float]:
        return {
            worker.order.job_id: worker.gang.record.samples
            for worker in self._workers.values()
            if worker.gang.record.samples is not None and worker.gang.state is not GangState.GONE
        }

    def troubles(self) -> tuple[str, ...]:
        stuck = sorted(worker.order.job_id for worker in self._workers.values() if worker.stuck())
        found = [f"processes of {', '.join(stuck)} do not end although they were killed"] if stuck else []
        waiting = [folder for worker in self._workers.values() if (folder := worker.waits_for())]
        if waiting:
            starts = "a start waits" if len(waiting) == 1 else f"{len(waiting)} starts wait"
            found.append(f"{starts} for a disk that has not answered for {ANSWER_LIMIT_S:g} s: {waiting[0]}")
        return tuple(found)

    # ---- workers

    def _when_ready(self, do: Callable[[], None]) -> None:
        """Call `do` now, or, before `run` has made the host, once it has."""
        do() if self._ready else self._early.append(do)

    def _take_over(self) -> None:
        for claim in self._claims:
            if claim.ranks:
                self._add_worker(claim.order, claim.gpu_indices, claim)
            else:
                self._idle[claim.order.placement_id] = claim.order
        self._ready = True
        for do in self._early:
            do()

    def _start(self, order: StartOrdered, gpu_indices: tuple[int, ...]) -> None:
        if order.placement_id in self._workers or order.placement_id in self._idle:
            return
        of_ranks, used = launch.computing_part(order, gpu_indices)
        if used:
            self._add_worker(of_ranks, used, None)
        else:
            self._add_idle(order)

    def _add_idle(self, order: StartOrdered) -> None:
        """Add a placement that needs no process here; its claim on disk lets the next life adopt it too."""
        folder = self._folders.worker(order.placement_id)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            claims.write(folder, claims.WorkerClaim(order=order, gpu_indices=(), ranks=()))
        except OSError as error:
            self._host.report(NotStarted(order.placement_id, in_words(error)))
            return
        self._idle[order.placement_id] = order
        self._host.report(Started(order.placement_id, "", None))

    def _train(self, placement_id: PlacementId, meeting: str) -> None:
        if worker := self._workers.get(placement_id):
            worker.put(partial(worker.gang.train, meeting))

    def _stop(self, placement_id: PlacementId) -> None:
        if worker := self._workers.get(placement_id):
            worker.stop()
        if order := self._idle.pop(placement_id, None):
            shutil.rmtree(self._folders.worker(placement_id), ignore_errors=True)
            self._host.report(Stopped(placement_id, order.samples_done))

    def _turn(self, placement_id: PlacementId, gang: Gang) -> None:
        if worker := self._workers.get(placement_id):
            worker.turn(gang)

    def _add_worker(
        self, order: StartOrdered, gpu_indices: tuple[int, ...], claim: claims.WorkerClaim | None
    ) -> None:
        rota = gangs.rota(order.gang)
        predecessors = [
            one
            for one in self._workers.values()
            if set(one.gpu_indices) & set(gpu_indices) and not (rota and gangs.rota(one.order.gang) == rota)
        ]
        executors = list(map(self._executor, gpu_indices)) if rota else []
        worker = LiveWorker(self._host, order, gpu_indices, claim, executors)
        self._workers[order.placement_id] = worker
        life = asyncio.create_task(self._run_worker(worker, predecessors))
        self._running_workers.add(life)
        life.add_done_callback(self._running_workers.discard)

    def _executor(self, gpu: int) -> Executor:
        if gpu not in self._executors:
            log_of, limit_s = self._folders.turns(gpu), self._settings.turn_limit_s
            self._executors[gpu] = Executor(log_of, limit_s=limit_s)
        return self._executors[gpu]

    async def _run_worker(self, worker: LiveWorker, predecessors: list[LiveWorker]) -> None:
        last = await worker.run(predecessors)
        del self._workers[worker.order.placement_id]
        self._host.report(last)

    async def _read_for_ever(self) -> None:
        while True:
            for worker in list(self._workers.values()):
                await worker.read()
            await asyncio.sleep(READ_EVERY_S)

    async def _end_all(self) -> None:
        """Order all workers to save and end; kill those that have not ended within their grace."""
        for placement_id in list(self._idle):
            self._stop(placement_id)
        for worker in self._workers.values():
            worker.stop()
        if self._running_workers:
            graces = (worker.gang.grace_s + LEAVING_S for worker in self._workers.values())
            await asyncio.wait(self._running_workers, timeout=max((END_LIMIT_S, *graces)))
        for worker in self._workers.values():
            worker.kill()
        if self._running_workers:
            await asyncio.wait(self._running_workers, timeout=END_LIMIT_S)

    # ---- the node

    def _read_claims(self) -> list[claims.WorkerClaim]:
        """The claims that earlier lives left; a folder without a readable claim is removed."""
        found = {folder: claims.read(folder) for folder in self._folders.workers.iterdir()}
        for folder, claim in found.items():
            if claim is None:
                shutil.rmtree(folder, ignore_errors=True)
        return [claim for claim in found.values() if claim is not None]

    def _make_host(self, report: Callable[[Report], None], write: Write | None) -> Host:
        groups = groups_of(self._folders.groups)
        if groups is not None:
            groups.clear(but={claim.order.placement_id for claim in self._claims})
        else:
            take_in_orphans()
            log.warning(
                "no control groups: jobs get no limits, and their processes are found by their environment"
            )
        plugin, settings = str(self._folders.plugin), self._settings
        gpus, unfit = _devices(settings)
        return Host(
            folders=self._folders,
            groups=groups,
            templates=Templates(plugin, launch.inherited(os.environ)) if settings.template else None,
            report=report,
            write=write,
            gpus=gpus,
            unfit=unfit,
            network_interface=settings.network_interface,
            merge=settings.merge,
            accounts=settings.job_account == "user",
            observe_every_s=settings.observe_every_s,
            orphan_s=ORPHAN_LEASES * settings.node_lease_real_s,
        )

    async def _leave(self) -> None:
        """Release what the runner holds; its folder stays for the next life."""
        if self._host.templates is not None:
            await self._host.templates.close()
        if self._host.groups is not None:
            await asyncio.to_thread(self._host.groups.clear, ())
            await asyncio.to_thread(self._host.groups.remove)
        os.close(self._lock)


def process(settings: Settings, clock: Clock) -> ProcessRunner:
    """A `RunnerFactory`. Raises ValueError: no jobs folder is set, or the cluster's time is not real time."""
    if clock.cluster_s(1.0) != 1.0:
        raise ValueError("speed: real jobs run at the speed 1")
    if not settings.jobs_folder:
        raise ValueError("jobs_folder: real jobs need a folder for checkpoints that all nodes share")
    run = Path(settings.run_folder or _run_folder()) / (settings.node or "agent")
    return ProcessRunner(Folders(run.absolute(), Path(settings.jobs_folder).absolute()), settings)


def _devices(settings: Settings) -> tuple[tuple[str, ...], str]:
    """(names of the GPUs for CUDA_VISIBLE_DEVICES, why they cannot be named).

    Both are empty on a machine without a driver, whose CPU slots stand for GPUs of any type.
    """
    try:
        return visible_devices(settings), ""
    except NoDriver:
        return (), ""
    except UnfitMachine as error:
        return (), str(error)


def _run_folder() -> Path:
    if os.geteuid() == 0:
        return Path("/run/hopyard")
    try:
        return Path(os.environ.get("XDG_RUNTIME_DIR") or state_folder()) / "hopyard"
    except FileNotFoundError as error:
        raise ValueError(f"run_folder: {error}") from None
