"""The runner on an emulated world: what processes would do, as time that passes on the clock.

Progress is reckoned, never stepped: a stretch of running has one rate, and the samples done at any instant
follow from it.
"""

import asyncio
from collections.abc import Callable

import msgspec

from schemas.calibration import AllReduceTimes
from schemas.events import StartOrdered
from schemas.ids import JobId, PlacementId
from schemas.questions import TimeAllReduce
from services.agent.runner import (
    Completed,
    Failed,
    Observed,
    Profiled,
    Report,
    Saved,
    Started,
    Stopped,
)
from services.agent.world import DoesNotFit, World
from shared.runtime.clock import Clock

ROUNDING = 1e-6
"""relative: a job this close to its end has reached it"""


class Progress(msgspec.Struct, kw_only=True):
    """Samples done as a function of time: from `since` on, `rate` samples/s."""

    total: float
    done: float
    """at `since`"""
    since: float
    rate: float = 0.0

    @property
    def left_s(self) -> float:
        """From `since` to the end, at this rate."""
        return max(self.total - self.done, 0.0) / self.rate

    @property
    def complete(self) -> bool:
        return self.done >= self.total * (1.0 - ROUNDING)

    def at(self, now: float) -> float:
        return min(self.done + self.rate * max(now - self.since, 0.0), self.total)

    def settle(self, now: float) -> None:
        """Count what was done until `now`."""
        self.done, self.since = self.at(now), now


class Emulated:
    """One worker: its order, its progress once it trains, and the task that passes its time."""

    def __init__(self, order: StartOrdered) -> None:
        self.order = order
        self.progress: Progress | None = None
        self.save_at = 0.0
        self.stopping = False
        self.task: asyncio.Task[None]


class EmulatedRunner:
    """Implements `Runner`. All durations in cluster seconds."""

    def __init__(
        self, world: World, clock: Clock, *, startup_s: float, checkpoint_s: float, observe_every_s: float
    ) -> None:
        self._world = world
        self._clock = clock
        self._startup_s = startup_s
        self._checkpoint_s = checkpoint_s
        self._observe_every_s = observe_every_s
        self._workers: dict[PlacementId, Emulated] = {}
        self._group: asyncio.TaskGroup
        self._report: Callable[[Report], None]

    async def run(self, report: Callable[[Report], None]) -> None:
        self._report = report
        async with asyncio.TaskGroup() as self._group:
            await asyncio.Event().wait()

    def start(self, order: StartOrdered, gpu_indices: tuple[int, ...]) -> None:  # noqa: ARG002 - all alike
        worker = self._workers[order.placement_id] = Emulated(order)
        worker.task = self._group.create_task(self._come_up(worker))

    def train(self, placement_id: PlacementId) -> None:
        worker = self._workers.get(placement_id)
        if worker is None or worker.stopping:
            return
        order, now = worker.order, self._clock.now()
        worker.progress = Progress(total=order.spec.samples, done=order.samples_done, since=now)
        worker.save_at = now + order.spec.checkpoint_interval_s
        worker.task = self._group.create_task(self._train(worker, worker.progress))

    def stop(self, placement_id: PlacementId) -> None:
        worker = self._workers.get(placement_id)
        if worker is None or worker.stopping:
            return
        worker.stopping = True
        worker.task.cancel()
        if worker.progress is not None:
            worker.progress.settle(self._clock.now())
            worker.progress.rate = 0.0
        worker.task = self._group.create_task(self._wind_up(worker))

    async def all_reduces(self, question: TimeAllReduce) -> AllReduceTimes:
        gang = question.gang.members
        where = ",".join(f"{node.node_id}={gpus}" for node, gpus in gang)
        seconds = tuple(
            self._world.all_reduce(gang, size=size, repeats=question.repeats, key=f"{where}/{size:.0f}")
            for size in question.sizes
        )
        await self._clock.sleep(sum(map(sum, seconds)))
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

    # ---- the life of a worker

    async def _come_up(self, worker: Emulated) -> None:
        await self._clock.sleep(self._startup_s)
        self._report(Started(worker.order.placement_id))
        if worker.order.profile_iterations:
            await self._measure(worker)

    async def _measure(self, worker: Emulated) -> None:
        order = worker.order
        try:
            measured = self._world.profile(
                order.spec,
                order.gang[0][0],
                iterations=order.profile_iterations,
                key=order.placement_id,
            )
        except DoesNotFit as error:
            self._end(worker, Failed(order.placement_id, str(error), lasting=True))
            return
        await self._clock.sleep(sum(measured.iteration_s))
        self._end(worker, Profiled(order.placement_id, measured))

    async def _train(self, worker: Emulated, progress: Progress) -> None:
        order, index = worker.order, 0
        try:
            while not progress.complete:
                await self._run_stretch(worker, progress, index)
                index += 1
        except DoesNotFit as error:
            self._end(worker, Failed(order.placement_id, str(error), lasting=True))
        else:
            self._end(worker, Completed(order.placement_id, order.spec.samples))

    async def _run_stretch(self, worker: Emulated, progress: Progress, index: int) -> None:
        """Run until the stretch's end or the job's, whichever comes first. Raises DoesNotFit."""
        order = worker.order
        stretch = self._world.stretch(order.spec, order.gang, key=order.placement_id, index=index)
        assert stretch.throughput > 0, "a gang that fits makes progress"
        progress.rate = stretch.throughput
        seconds = min(self._observe_every_s, progress.left_s)
        # Counted from where the last stretch ended and not from now: waking late loses no time.
        end = progress.since + seconds
        while worker.save_at < end:
            await self._until(worker.save_at)
            self._report(Saved(order.placement_id, progress.at(worker.save_at)))
            worker.save_at += order.spec.checkpoint_interval_s
        await self._until(end)
        progress.settle(end)
        if seconds == self._observe_every_s:
            self._report(Observed(order.placement_id, seconds, stretch))

    async def _wind_up(self, worker: Emulated) -> None:
        """Save what there is to save: the leader writes the checkpoint, nobody else has one."""
        order, progress = worker.order, worker.progress
        if progress is None:
            self._end(worker, Stopped(order.placement_id, order.samples_done))
        elif progress.complete:
            self._end(worker, Completed(order.placement_id, order.spec.samples))
        else:
            await self._clock.sleep(self._checkpoint_s)
            self._end(worker, Stopped(order.placement_id, progress.done))

    def _end(self, worker: Emulated, last: Report) -> None:
        del self._workers[worker.order.placement_id]
        self._report(last)

    async def _until(self, then: float) -> None:
        await self._clock.sleep(then - self._clock.now())
