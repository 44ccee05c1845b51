"""The emulated runner: computes how its workers would train, with alarms on the clock in place of processes.

Every worker waits for one alarm at a time: that it is up, has measured, reaches its next checkpoint or the
end of its stretch, or has saved. A stretch of running has one rate, from which the samples done at any time
follow; nothing is computed step by step.
"""

import inspect
import math
from collections.abc import Callable
from typing import TypeVar

import msgspec

from schemas.calibration import AllReduceMeeting, AllReduceTimes
from schemas.catalogue import NOTHING_MORE, CatalogueFile
from schemas.events import StartOrdered
from schemas.ids import JobId, PlacementId
from schemas.placement import Gang
from schemas.questions import JoinAllReduce, OpenAllReduce
from schemas.settings import Settings
from services.agent.tasks import (
    Completed,
    Failed,
    Observed,
    Profiled,
    Report,
    Saved,
    Started,
    Stopped,
)
from services.agent.work.printed import ended, rank, saved, started, trained
from services.agent.work.progress import Progress
from services.agent.work.rotas import EmulatedWorker, Rota, rota_of
from services.agent.work.runner import Write
from services.agent.work.world import DoesNotFit, World, WorldFactory
from shared.domain import gangs
from shared.domain.catalogue import InvalidCatalogue
from shared.domain.residents import Residents
from shared.domain.sums import plain_sum
from shared.runtime.clock import Clock
from shared.runtime.files import fault, read_file
from shared.runtime.plugins import WORLDS, UnknownPlugin

V = TypeVar("V")
OF_WORLD = ("modes", "stretch", "alike", "rota", "switch_s", "profile", "all_reduce")
"""attributes that every world has"""


class EmulatedRunner:
    """Implements `Runner`. All durations in cluster seconds."""

    runs_commands = False

    def __init__(
        self,
        world: World,
        clock: Clock,
        *,
        startup_s: float,
        checkpoint_s: float,
        observe_every_s: float,
        residents_max: int = 16,
    ) -> None:
        self.modes = gangs.with_copies(world.modes)
        self.workloads: tuple[str, ...] = getattr(world, "workloads", ())
        self._world = world
        self._clock = clock
        self._startup_s = startup_s
        self._checkpoint_s = checkpoint_s
        self._observe_every_s = observe_every_s
        self.residents_max = residents_max
        self._residents = Residents()
        self._workers: dict[PlacementId, EmulatedWorker] = {}
        self._report: Callable[[Report], None]
        self._write: Write | None = None

    async def adopt(self) -> tuple[PlacementId, ...]:
        """No workers: emulated ones end with their agent."""
        return ()

    async def run(self, report: Callable[[Report], None], write: Write | None) -> None:
        self._report, self._write = report, write
        try:
            await self._clock.sleep(math.inf)
        finally:
            for worker in self._workers.values():
                if worker.alarm is not None:
                    worker.alarm.cancel()
                if worker.rota is not None:
                    worker.rota.end()
            self._workers.clear()
            self._residents = Residents()

    def start(self, order: StartOrdered, gpu_indices: tuple[int, ...]) -> None:
        if order.placement_id in self._workers:
            return
        worker = self._workers[order.placement_id] = EmulatedWorker(order)
        self._print(worker, started, gpu_indices)
        self._wait(worker, self._clock.now() + self._start_s(worker), self._be_up)

    def train(self, placement_id: PlacementId, meeting: str) -> None:  # noqa: ARG002 - emulated processes need not meet
        worker = self._workers.get(placement_id)
        if worker is None or worker.stopping or worker.progress is not None or worker.rota is not None:
            return
        order, now = worker.order, self._clock.now()
        progress = _progress(order, now)
        worker.save_at = now + order.spec.checkpoint_interval_s
        worker.stretch_s = self._observe_every_s
        if order.node_id in gangs.leaders(order.gang):
            worker.progress = progress
        if gangs.rota(order.gang):
            self._take_turns(worker)
        else:
            self._run_on(worker, progress)

    def turn(self, placement_id: PlacementId, gang: Gang) -> None:
        worker = self._workers.get(placement_id)
        if worker is None or worker.stopping or worker.order.gang == gang:
            return
        worker.order = msgspec.structs.replace(worker.order, gang=gang)
        if worker.rota is not None:
            worker.rota.deal()

    def stop(self, placement_id: PlacementId) -> None:
        """Stop a worker. A leader's worker saves a checkpoint first, which takes `checkpoint_s`."""
        worker = self._workers.get(placement_id)
        if worker is None or worker.stopping:
            return
        worker.stopping = True
        if worker.alarm is not None:
            worker.alarm.cancel()
        order, progress = worker.order, worker.progress
        if progress is not None:
            progress.settle(self._clock.now())
            progress.rate = 0.0
        if worker.rota is not None:
            worker.rota.leave(worker)
        if progress is None:
            self._end(worker, Stopped(placement_id, order.samples_done))
            return
        if progress.complete:
            self._end(worker, Completed(placement_id, progress.total))
            return
        last = Stopped(placement_id, progress.done)
        if gangs.resident(order.gang):  # the job stays in GPU memory, and is saved while the next one runs
            self._end(worker, last)
        else:
            self._wait(worker, progress.since + self._checkpoint_s, lambda one: self._end(one, last))

    async def all_reduces(
        self,
        question: OpenAllReduce | JoinAllReduce,
        gpu_indices: tuple[int, ...],  # noqa: ARG002 - GPUs of an emulated node are alike
    ) -> AllReduceMeeting | AllReduceTimes:
        """The world computes the times.

        Every node of the ring sleeps as long as the all-reduces would take.
        """
        if isinstance(question, OpenAllReduce):
            return AllReduceMeeting(meeting="", sizes=question.sizes)
        ring = question.ring
        where = ",".join(f"{node.node_id}={gpus}" for node, gpus in ring.members)
        seconds = tuple(
            self._world.all_reduce(ring, size=size, repeats=question.repeats, key=f"{where}/{size:.0f}")
            for size in question.sizes
        )
        await self._clock.sleep(plain_sum(map(plain_sum, seconds)))
        return AllReduceTimes(seconds=seconds)

    def running(self) -> tuple[PlacementId, ...]:
        return tuple(self._workers)

    def progress(self) -> dict[JobId, float]:
        now = self._clock.now()
        return {
            worker.order.job_id: worker.progress.at(now)
            for worker in self._workers.values()
            if worker.progress is not None
        }

    def troubles(self) -> tuple[str, ...]:
        return ()

    # ---- the life of a worker

    def _start_s(self, worker: EmulatedWorker) -> float:
        """Seconds until the worker is up: a switch if its processes stand by, else a start."""
        order = worker.order
        if not gangs.resident(order.gang):
            return self._startup_s
        node = next(node for node in order.nodes if node.node_id == order.node_id)
        gpus = order.gang.on(order.node_id)
        worker.up = self._residents.enter(order.job_id, gpus, room=self.residents_max * node.gpus)
        return self._world.switch_s(order.spec) if worker.up else self._startup_s

    def _wait(self, worker: EmulatedWorker, then: float, do: Callable[[EmulatedWorker], None]) -> None:
        worker.alarm = self._clock.at(then, lambda: do(worker))

    def _print(self, worker: EmulatedWorker, say: Callable[[StartOrdered, V], str], about: V) -> None:
        """Print a line in the job's output, if output is kept."""
        if self._write is not None:
            self._write(worker.order.job_id, rank(worker.order), say(worker.order, about))

    def _end(self, worker: EmulatedWorker, last: Report) -> None:
        if worker.rota is not None:
            worker.rota.leave(worker)
        del self._workers[worker.order.placement_id]
        self._residents.leave(worker.order.job_id, stays=worker.up and isinstance(last, Stopped))
        self._print(worker, ended, last)
        self._report(last)

    def _be_up(self, worker: EmulatedWorker) -> None:
        worker.up = True
        self._report(Started(worker.order.placement_id))
        if worker.order.profile_iterations:
            self._measure(worker)

    def _measure(self, worker: EmulatedWorker) -> None:
        order, iterations = worker.order, worker.order.profile_iterations
        node = order.nodes[0]
        try:
            measured = self._world.profile(order.spec, node, iterations=iterations, key=order.placement_id)
        except DoesNotFit as error:
            self._end(worker, _does_not_fit(worker, error))
            return
        done = Profiled(order.placement_id, measured)
        self._wait(
            worker, self._clock.now() + plain_sum(measured.iteration_s), lambda one: self._end(one, done)
        )

    def _run_on(self, worker: EmulatedWorker, progress: Progress) -> None:
        """Begin the next stretch, which ends with the job if that comes first.

        The third and every later stretch lasts as long as all before it together: the more is observed
        already, the less another observation of the same length would add.
        """
        order = worker.order
        if progress.complete:
            self._end(worker, Completed(order.placement_id, progress.total))
            return
        try:
            stretch = self._world.stretch(
                order.spec, order.nodes, order.gang, key=_key(order), index=worker.stretches
            )
        except DoesNotFit as error:
            self._end(worker, _does_not_fit(worker, error))
            return
        assert stretch.throughput > 0, "a gang that fits makes progress"
        worker.stretches += 1
        if worker.stretches > 2:  # noqa: PLR2004 - see above
            worker.stretch_s *= 2
        progress.rate = stretch.throughput
        observed = Observed(order.placement_id, min(worker.stretch_s, progress.left_s), stretch)
        self._go_on(worker, progress, observed)

    def _go_on(self, worker: EmulatedWorker, progress: Progress, observed: Observed) -> None:
        """Wait for the next checkpoint or the end of the stretch, whichever comes first.

        Both are counted from the end of the last stretch, not from now, so that an alarm that rings late
        costs the job nothing.
        """
        end = progress.since + observed.seconds
        if worker.save_at < end:
            self._wait(worker, worker.save_at, lambda one: self._save(one, progress, observed))
        else:
            self._wait(worker, end, lambda one: self._finish(one, progress, observed))

    # ---- in a rota

    def _take_turns(self, worker: EmulatedWorker) -> None:
        rota = rota_of(worker, self._workers.values()) or Rota(
            self._world,
            self._clock,
            worker,
            observe_every_s=self._observe_every_s,
            rate_changed=self._go_on_in_turns,
        )
        try:
            rota.check(worker)
        except DoesNotFit as error:
            if worker.progress is not None:  # otherwise another node leads the job, and reports it
                self._end(worker, _does_not_fit(worker, error))
        else:
            rota.join(worker)

    def _go_on_in_turns(self, worker: EmulatedWorker) -> None:
        """Wait for the next checkpoint or the job's end, at its present rate.

        At rate 0 only checkpoints come.
        """
        progress = worker.progress
        assert progress is not None, "it trains"
        if worker.alarm is not None:
            worker.alarm.cancel()
        end = progress.since + progress.left_s
        if worker.save_at < end:
            self._wait(worker, worker.save_at, lambda one: self._save_in_turns(one, progress))
        else:
            self._wait(worker, end, lambda one: self._complete_in_turns(one, progress))

    def _save_in_turns(self, worker: EmulatedWorker, progress: Progress) -> None:
        self._report(Saved(worker.order.placement_id, progress.at(worker.save_at)))
        self._print(worker, saved, progress.at(worker.save_at))
        worker.save_at += worker.order.spec.checkpoint_interval_s
        self._go_on_in_turns(worker)

    def _complete_in_turns(self, worker: EmulatedWorker, progress: Progress) -> None:
        assert worker.rota is not None, "a worker that has left its rota has no alarm"
        self._end(worker, Completed(worker.order.placement_id, progress.total))

    # ---- on GPUs of its own

    def _save(self, worker: EmulatedWorker, progress: Progress, observed: Observed) -> None:
        self._report(Saved(worker.order.placement_id, progress.at(worker.save_at)))
        self._print(worker, saved, progress.at(worker.save_at))
        worker.save_at += worker.order.spec.checkpoint_interval_s
        self._go_on(worker, progress, observed)

    def _finish(self, worker: EmulatedWorker, progress: Progress, observed: Observed) -> None:
        progress.go_on(observed.seconds)
        if observed.seconds == worker.stretch_s:
            self._report(observed)
            self._print(worker, trained, progress)
        self._run_on(worker, progress)


def _does_not_fit(worker: EmulatedWorker, error: DoesNotFit) -> Failed:
    return Failed(worker.order.placement_id, str(error), lasting=True, whole_workload=True)


def _progress(order: StartOrdered, now: float) -> Progress:
    """The progress of a worker that starts now: to the end of the job, or of its copy's share."""
    done, until = order.samples_done, order.until
    if until is None:
        return Progress(total=order.spec.samples, done=done, since=now)
    return Progress(total=until, floor=done, done=done, since=now)


def _key(order: StartOrdered) -> str:
    """The seed of a placement's random draws; each copy has its own."""
    own = "" if order.until is None else f"/{order.node_id}"
    return f"{order.placement_id}{own}"


def emulated(settings: Settings, clock: Clock) -> EmulatedRunner:
    """A `RunnerFactory`, with the world that the settings name. Raises UnknownPlugin, InvalidFile."""
    more = read_file(settings.catalogue, CatalogueFile) if settings.catalogue else NOTHING_MORE
    try:
        return emulated_with(more, settings, clock)
    except InvalidCatalogue as error:
        raise fault(settings.catalogue, error.field, error.reason) from None


def emulated_with(catalogue: CatalogueFile, settings: Settings, clock: Clock) -> EmulatedRunner:
    """As `emulated`, with this catalogue in place of a file. Raises UnknownPlugin, InvalidCatalogue."""
    return EmulatedRunner(
        world_of(catalogue, settings),
        clock,
        startup_s=settings.startup_s,
        checkpoint_s=settings.checkpoint_s,
        observe_every_s=settings.observe_every_s,
        residents_max=settings.residents_max,
    )


def world_of(catalogue: CatalogueFile, settings: Settings) -> World:
    """The world that the settings name. Raises UnknownPlugin, InvalidCatalogue, InvalidFile."""
    make: WorldFactory = WORLDS.load(settings.world)
    try:
        inspect.signature(make).bind(settings, catalogue)
    except (TypeError, ValueError):  # ValueError: a callable in C that does not state its parameters
        raise UnknownPlugin(
            f"world {settings.world}: it cannot be called with settings and a catalogue"
        ) from None
    world = make(settings, catalogue)
    if lacking := [name for name in OF_WORLD if not hasattr(world, name)]:
        raise UnknownPlugin(
            f"world {settings.world}: what it makes is not a world: it has no {', '.join(lacking)}"
        )
    return world
