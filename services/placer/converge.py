"""From what is wanted and what is there to the orders that bring the two together.

An order is written into the state when it is given, so a replay gives it again in the same place and
nowhere else.
"""

from collections.abc import Iterator

from schemas.base import Event
from schemas.events import (
    GangFormed,
    JobPreempted,
    JobStarted,
    PlacementRefused,
    StartOrdered,
    StopOrdered,
)
from schemas.ids import JobId, NodeId
from services.placer.state import Placed, State, WorkerState


def converge(state: State, at: float, profile_iterations: int) -> Iterator[Event]:
    """The facts to tell; changes `state` accordingly. Stops come before starts."""
    for placed in list(state.placements.values()):
        if not placed.wanted:
            yield from _stop(state, placed, at)
        elif not placed.started and not placed.profile and placed.all_up:
            yield from _begin(state, placed, at)
    for placed in _fitting(state):
        yield from _start(state, placed, at, profile_iterations)


def stop_order(placed: Placed, node_id: NodeId, at: float) -> StopOrdered:
    return StopOrdered(at=at, node_id=node_id, placement_id=placed.placement_id, job_id=placed.job_id)


def _stop(state: State, placed: Placed, at: float) -> Iterator[Event]:
    for node_id, worker in placed.workers.items():
        if worker is not WorkerState.STOPPING:
            placed.workers[node_id] = WorkerState.STOPPING
            yield stop_order(placed, node_id, at)
    if not placed.workers:
        state.end(placed.placement_id)
        if not placed.over and not placed.profile:
            yield _taken_back(state, placed, at)


def _taken_back(state: State, placed: Placed, at: float) -> Event:
    if not placed.started:
        return PlacementRefused(
            at=at,
            placement_id=placed.placement_id,
            plan_id=placed.plan_id,
            job_id=placed.job_id,
            reason=f"taken back before it started: {placed.why}",
        )
    return JobPreempted(
        at=at,
        job_id=placed.job_id,
        placement_id=placed.placement_id,
        reason=placed.why,
        samples_done=state.jobs[placed.job_id].samples_done,
    )


def _begin(state: State, placed: Placed, at: float) -> Iterator[Event]:
    placed.started = True
    spec = state.jobs[placed.job_id].spec
    yield JobStarted(
        at=at,
        job_id=placed.job_id,
        placement_id=placed.placement_id,
        configuration=placed.configuration,
        learning_rate=spec.learning_rates.get(placed.gpus),
        global_batch=spec.workload.batch_size * placed.gpus,
    )
    yield GangFormed(at=at, node_id=placed.leader, placement_id=placed.placement_id, job_id=placed.job_id)


def _fitting(state: State) -> list[Placed]:
    """Waiting placements whose GPUs are free: measurements first, then older plans first."""
    waiting = [placed for placed in state.placements.values() if placed.wanted and placed.ordered_at is None]
    held = state.gpus_held() if waiting else {}
    fitting = []
    for placed in sorted(waiting, key=lambda placed: not placed.profile):
        fits = all(
            held.get(node_id, 0) + gpus <= state.nodes[node_id].node.gpus
            for node_id, gpus in placed.configuration.items()
        )
        ready = fits and (placed.profile or not _trains(state, placed.job_id))
        if ready:
            fitting.append(placed)
        if ready or placed.profile:  # a measurement that waits keeps its place
            for node_id, gpus in placed.configuration.items():
                held[node_id] = held.get(node_id, 0) + gpus
    return fitting


def _trains(state: State, job_id: JobId) -> bool:
    """Whether the job still has workers: it starts nowhere else before they have stopped."""
    return any(placed.workers and not placed.profile for placed in state.of_job(job_id))


def _start(state: State, placed: Placed, at: float, profile_iterations: int) -> Iterator[Event]:
    placed.ordered_at = at
    job = state.jobs[placed.job_id]
    gang = tuple((state.nodes[node_id].node, gpus) for node_id, gpus in placed.configuration.items())
    for node_id in placed.configuration:
        placed.workers[node_id] = WorkerState.ORDERED
        yield StartOrdered(
            at=at,
            node_id=node_id,
            placement_id=placed.placement_id,
            job_id=placed.job_id,
            spec=job.spec,
            gang=gang,
            samples_done=0.0 if placed.profile else job.samples_done,
            learning_rate=job.spec.learning_rates.get(placed.gpus),
            profile_iterations=profile_iterations if placed.profile else 0,
        )
