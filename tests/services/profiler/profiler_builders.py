"""Builders for the profiler's tests: everything has a default."""

from collections.abc import Iterable
from typing import TypeVar

from msgspec.structs import replace

from schemas.base import Event
from schemas.cluster import Node
from schemas.events import (
    JobCancelled,
    JobSubmitted,
    NodeJoined,
    NodeLost,
    Outcome,
    ProfileFailed,
    ProfileMeasured,
    ProfileRun,
    ProfilingPlanned,
    StartOrdered,
    StopOrdered,
    WorkerStarted,
    WorkerStopped,
)
from schemas.ids import GpuType, JobId, NodeId, PlacementId
from schemas.jobs import JobSpec, Workload
from schemas.measurements import Measured
from schemas.placement import Gang
from services.profiler.core import Profiler
from services.profiler.state import State
from services.profiler.tasks import Fit
from services.profiler.work.workers import fit
from shared.domain.core import Effect, Publish, Work
from shared.runtime.shell.snapshots import packed, unpacked

ROUND_S = 360.0
SETTLE_S = 0.5
E = TypeVar("E", bound=Event)


def workload(model: str = "resnet18") -> Workload:
    return Workload(model=model, dataset="imagenet", batch_size=128)


def spec(model: str = "resnet18", gpu_types: Iterable[str] = ()) -> JobSpec:
    types = tuple(GpuType(name) for name in gpu_types)
    return JobSpec(name="job", workload=workload(model), demand=(1, 2), gpu_types=types, samples=1e6)


def submitted(
    job: str = "j1", *, model: str = "resnet18", gpu_types: Iterable[str] = (), at: float = 1.0
) -> JobSubmitted:
    return JobSubmitted(at=at, job_id=JobId(job), spec=spec(model, gpu_types), key=job)


def cancelled(job: str = "j1") -> JobCancelled:
    return JobCancelled(at=2.0, job_id=JobId(job))


def joined(
    node: str = "a0", gpu_type: str = "A", gpus: int = 4, life: str = "1", *, workers: tuple[str, ...] = ()
) -> NodeJoined:
    return NodeJoined(
        at=0.0,
        node_id=NodeId(node),
        node=Node(
            node_id=NodeId(node),
            gpu_type=GpuType(gpu_type),
            gpus=gpus,
            server="s",
            link_bandwidth=1e10,
            network_bandwidth=1e9,
        ),
        life=life,
        workers=tuple(PlacementId(worker) for worker in workers),
    )


def lost(node: str = "a0", at: float = 400.0) -> NodeLost:
    return NodeLost(at=at, node_id=NodeId(node))


def started(node: str = "a0", placement: str = "p1", gpus: int = 1, at: float = 10.0) -> WorkerStarted:
    return WorkerStarted(
        at=at,
        node_id=NodeId(node),
        placement_id=PlacementId(placement),
        job_id=JobId("j1"),
        gpu_indices=tuple(range(gpus)),
    )


def ordered(run: ProfileRun) -> StartOrdered:
    return StartOrdered(
        at=9.0,
        node_id=run.node_id,
        placement_id=run.placement_id,
        job_id=run.job_id,
        spec=spec(),
        gang=Gang.of({run.node_id: 1}),
        nodes=(joined(run.node_id, run.gpu_type).node,),
        samples_done=0.0,
        learning_rate=None,
        profile_iterations=50,
    )


def stop_ordered(run: ProfileRun) -> StopOrdered:
    return StopOrdered(at=10.0, node_id=run.node_id, placement_id=run.placement_id, job_id=run.job_id)


def stopped(run: ProfileRun, outcome: Outcome = Outcome.COMPLETED, reason: str = "") -> WorkerStopped:
    return WorkerStopped(
        at=420.0,
        node_id=run.node_id,
        placement_id=run.placement_id,
        job_id=run.job_id,
        outcome=outcome,
        samples_done=0.0,
        leads=True,
        reason=reason,
    )


def measurement(
    *,
    data_s: tuple[float, ...] = (0.01,) * 4,
    forward_s: float = 0.1,
    backward_s: float = 0.2,
    update_s: float = 0.05,
    iteration_s: float = 0.35,
    modes: tuple[str, ...] = (),
) -> Measured:
    count = len(data_s)
    return Measured(
        data_s=data_s,
        forward_s=(forward_s,) * count,
        backward_s=(backward_s,) * count,
        update_s=(update_s,) * count,
        iteration_s=(iteration_s,) * count,
        parameters=1e7,
        modes=modes,
    )


def measured(run: ProfileRun, numbers: Measured | None = None) -> ProfileMeasured:
    numbers = numbers or measurement()
    return ProfileMeasured(
        at=410.0,
        job_id=run.job_id,
        placement_id=run.placement_id,
        gpu_type=run.gpu_type,
        node_id=run.node_id,
        data_s=numbers.data_s,
        forward_s=numbers.forward_s,
        backward_s=numbers.backward_s,
        update_s=numbers.update_s,
        iteration_s=numbers.iteration_s,
        parameters=numbers.parameters,
        modes=numbers.modes,
    )


def failed(
    run: ProfileRun, *, final: bool = True, whole_workload: bool = False, reason: str = "out of memory"
) -> ProfileFailed:
    return ProfileFailed(
        at=410.0,
        job_id=run.job_id,
        placement_id=run.placement_id,
        gpu_type=run.gpu_type,
        node_id=run.node_id,
        reason=reason,
        final=final,
        whole_workload=whole_workload,
    )


def absent(run: ProfileRun) -> ProfileFailed:
    return replace(failed(run, final=False, reason=f"no train.py on {run.node_id}"), absent=True)


class Driver:
    """Does what the shell does: facts go round once, work is done inline."""

    def __init__(
        self,
        profiler: Profiler | None = None,
        *,
        attempts: int = 3,
        timeout_s: float = 600.0,
        at_once: bool = False,
        every_job: bool = False,
        round_s: float = ROUND_S,
    ) -> None:
        self.core = profiler or Profiler(
            round_s=round_s,
            timeout_s=timeout_s,
            attempts=attempts,
            at_once=at_once,
            every_job=every_job,
            settle_s=SETTLE_S,
        )
        self.stream: list[Event] = []
        self._ids: set[str] = set()
        self.now = 0.0

    def after(self, earlier: "Driver") -> "Driver":
        """Go on where an earlier life ended, from its snapshot."""
        _, self.core.state, _ = unpacked(packed(0, earlier.core.state, []), State)
        self.now = earlier.now
        self.perform(self.core.resume(self.now))
        return self

    def tell(self, *facts: Event) -> "Driver":
        for fact in facts:
            if fact.event_id not in self._ids:
                self._ids.add(fact.event_id)
                self.stream.append(fact)
                self.perform(self.core.handle(fact, self.now))
        return self

    def perform(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            match effect:
                case Publish(event):
                    self.tell(event)
                case Work(Fit() as task):
                    self.perform(self.core.handle(fit(task), self.now))
                case _:
                    raise AssertionError(effect)

    def until(self, now: float) -> "Driver":
        """Wake the core whenever it wants, up to `now`."""
        while (due := self.core.next_wakeup()) is not None and due <= now:
            self.now = max(self.now, due)
            self.perform(self.core.wake(self.now))
            after = self.core.next_wakeup()
            assert after is None or after > due
        self.now = now
        return self

    def next_round(self) -> tuple[ProfileRun, ...]:
        """Go to the next boundary; the runs it plans."""
        self.until((self.core.state.round + 1) * ROUND_S)
        return self.all(ProfilingPlanned)[-1].runs

    def all(self, kind: type[E]) -> list[E]:
        return [fact for fact in self.stream if isinstance(fact, kind)]
