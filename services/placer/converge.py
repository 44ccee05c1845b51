"""Compares the wanted placements with the running ones, and orders starts and stops until the two agree.

An order is entered in the state at the moment when it is given, so a replay gives every order again once, at
the same point.
"""

from collections.abc import Iterator, Mapping

from schemas.base import Event
from schemas.events import GangFormed, JobPreempted, JobStarted, StartOrdered
from schemas.ids import JobId
from services.placer.causes import taken_back
from services.placer.orders import refused, stop_order
from services.placer.phases import ComingUp, Ending, Measuring, Owed, Training, WorkerState
from services.placer.state import Placed, State
from shared.domain import gangs


def settled(state: State, at: float) -> Iterator[Event]:
    """The facts to publish about placements that have changed; changes `state` accordingly."""
    for placed in state.take_changed():
        match placed.phase:
            case Ending() as ending:
                yield from _stop(state, placed, ending, at)
            case ComingUp() as coming if placed.all_up:
                yield from _begin(state, placed, coming, at)
            case _:
                pass


def started(state: State, at: float, profile_iterations: int) -> Iterator[Event]:
    """The facts to publish about waiting placements that can start; changes `state` accordingly."""
    for placed in _fitting(state):
        yield from _start(state, placed, at, profile_iterations)


def _stop(state: State, placed: Placed, ending: Ending, at: float) -> Iterator[Event]:
    for node_id, worker in ending.workers.items():
        if worker is not WorkerState.STOPPING:
            ending.workers[node_id] = WorkerState.STOPPING
            yield stop_order(placed, node_id, at)
    if not ending.workers:
        state.forget(placed.placement_id)
        yield from _end_facts(state, placed, ending, at)


def _end_facts(state: State, placed: Placed, ending: Ending, at: float) -> Iterator[Event]:
    """The facts about the job that follow from its placement's end."""
    match ending.owed:
        case Owed.REFUSAL:
            yield refused(placed, taken_back(state, placed, ending), at, ending.cause)
        case Owed.PREEMPTION:
            assert placed.job_id in state.jobs, "nothing is owed to a job that ended"
            yield JobPreempted(
                at=at,
                job_id=placed.job_id,
                placement_id=placed.placement_id,
                reason=ending.why,
                samples_done=state.jobs[placed.job_id].samples_done,
                cause=ending.cause,
            )
        case Owed.NOTHING:
            pass


def _begin(state: State, placed: Placed, coming: ComingUp, at: float) -> Iterator[Event]:
    state.enter(placed, Training(workers=coming.workers))
    spec = state.jobs[placed.job_id].spec
    yield JobStarted(
        at=at,
        job_id=placed.job_id,
        placement_id=placed.placement_id,
        gang=placed.gang,
        learning_rate=gangs.learning_rate(placed.gang, spec.learning_rates),
        global_batch=gangs.global_batch(placed.gang, spec.workload.batch_size),
    )
    for part in gangs.parts(placed.gang):
        meeting = coming.meetings.get(gangs.leader(part), "")
        for node_id in gangs.trained_by(part, meets=bool(meeting)):
            yield GangFormed(
                at=at,
                node_id=node_id,
                placement_id=placed.placement_id,
                job_id=placed.job_id,
                meeting=meeting,
            )


def _fitting(state: State) -> list[Placed]:
    """Waiting placements whose GPUs are free: measurements first, then older plans first."""
    candidates = [one for one in state.take_candidates() if one.profile or not _trains(state, one.job_id)]
    nodes = {member.node for placed in candidates for member in placed.gang.members}
    held = {node_id: state.gpus_held(node_id) for node_id in nodes}
    fitting = []
    for placed in sorted(candidates, key=lambda placed: not placed.profile):
        holder, members = placed.holder, placed.gang.members
        fits = all(
            _with(held[one.node], holder, one.gpus) <= state.nodes[one.node].node.gpus for one in members
        )
        if fits:
            fitting.append(placed)
        if fits or placed.profile:  # GPUs stay reserved for a measurement that waits
            for one in members:
                held[one.node][holder] = one.gpus
    return fitting


def _with(holders: Mapping[str, int], holder: str, gpus: int) -> int:
    """GPUs of a node that are held once `holder` has `gpus`; a rota holds only those of its first gang."""
    return sum(holders.values()) + (0 if holder in holders else gpus)


def _trains(state: State, job_id: JobId) -> bool:
    """Whether the job still has workers that train; a new placement of it waits until they have stopped."""
    return any(placed.workers and not placed.profile for placed in state.of_job(job_id))


def _start(state: State, placed: Placed, at: float, profile_iterations: int) -> Iterator[Event]:
    assert placed.profile or not _trains(state, placed.job_id), "a job trains in one place"
    workers = dict.fromkeys(placed.gang.nodes, WorkerState.ORDERED)
    phase = Measuring(workers=workers) if placed.profile else ComingUp(workers=workers)
    state.enter(placed, phase)
    job = state.jobs[placed.job_id]
    spec, left = job.spec, job.spec.samples - job.samples_done
    quotas = gangs.quotas(placed.gang, left, spec.workload.batch_size)
    for part in gangs.parts(placed.gang):
        nodes = tuple(state.nodes[node_id].node for node_id in part.nodes)
        for node_id in part.nodes:
            order = StartOrdered(
                at=at,
                node_id=node_id,
                placement_id=placed.placement_id,
                job_id=placed.job_id,
                spec=spec,
                gang=part,
                nodes=nodes,
                samples_done=0.0 if placed.profile else job.samples_done,
                learning_rate=gangs.learning_rate(part, spec.learning_rates),
                profile_iterations=profile_iterations if placed.profile else 0,
                until=job.samples_done + quotas[node_id] if quotas else None,
            )
            placed.tally.order(order)
            yield order
