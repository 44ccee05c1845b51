"""From state to view: what a policy sees of the cluster at one instant. Pure."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from types import MappingProxyType

import msgspec

from schemas.ids import Fingerprint, GpuType, JobId, NodeId, PlacementId
from schemas.placement import Gang
from schemas.plans import Placement, PlanKind
from schemas.settings import Settings
from services.planner.core.leaving import NONE, closed
from services.planner.core.restart_times import Restart
from services.planner.core.state import (
    State,
    TrackedJob,
    is_on_hold,
    is_put_off,
    jobs_coming,
    shares_of,
    waited_s,
)
from services.planner.policies.contract.view import Present, View, ViewJob, ViewNode, reduced
from services.planner.solver.effort import Effort
from shared.domain import gangs, in_turns
from shared.domain.states import WAITING, JobState

PLANNABLE = WAITING | {JobState.RUNNING}
LEAST_PRIORITY = 1e-6
"""the least priority that policies see: what they divide by a number near 0 is no number that a plan holds"""


class Memo(msgspec.Struct, kw_only=True):
    """Parts of the last view that the next one can reuse.

    A cache: it is in no snapshot and changes no view.
    """

    node_facts: int = -1
    """`State.node_facts` when the fields below were computed"""
    leave: bool = False
    """whether some node goes away at a known time"""
    types: tuple[GpuType, ...] = ()
    """GPU types of all nodes, in alphabetical order"""
    whole: tuple[ViewNode, ...] = ()
    """the usable nodes with every GPU idle"""
    nodes: dict[tuple[NodeId, int], ViewNode] = {}
    """by node and number of idle GPUs: the node as views show it"""
    places_of: dict[NodeId, int] = {}
    """each node's index in `whole`"""
    taken: dict[NodeId, int] = {}
    seen: tuple[ViewNode, ...] = ()
    """the nodes of the last view, without the GPUs taken then"""
    usable: dict[tuple[GpuType, ...], tuple[GpuType, ...]] = {}
    """by the GPU types that a job has speeds on: those that the cluster has"""
    jobs: dict[JobId, ViewJob] = {}
    """jobs as views show them, without the fields that change from view to view"""
    places: dict[PlacementId, "PlacedJob"] = {}
    """by placement of the last view, or of the one in the making: where its job is"""
    restarts: dict[Fingerprint, tuple[dict[GpuType, Restart], dict[GpuType, float]]] = {}
    """what was known of a workload's restarts, and what they are expected to take"""
    places_before: dict[PlacementId, "PlacedJob"] = {}
    """`places` of the view before"""


class PlacedJob(msgspec.Struct, frozen=True):
    placement: Placement
    running: Gang | None
    """where the job runs by now"""
    present: Present | None
    shares: dict[GpuType, float]
    """by type: share of its GPUs that are of the type, times its share of their time"""
    gpus: float
    """GPUs that it runs on, times its share of their time"""


def view_of(
    state: State,
    *,
    kind: PlanKind,
    at: float,
    round_s: float,
    restart_s: float,
    switch_s: float = 0.0,
    policy: str,
    effort: Effort,
    memo: Memo | None = None,
    staying: Mapping[JobId, Placement] = MappingProxyType({}),
    shown: bool = False,
    closed: frozenset[NodeId] = frozenset(),
) -> View:
    """What a policy sees: all jobs and GPUs; for a fragment plan, waiting jobs and idle GPUs.

    GPUs that measurements hold are never among them.

    `restart_s`, `switch_s`: expected seconds of a restart and of a switch before any was observed. `staying`:
    jobs that a first plan has to leave where they are. `shown`: the policy sees them all the same, except
    those on nodes that have fewer GPUs by now than their jobs hold. `closed`: nodes that show no GPUs but
    those of jobs that stay. A node without any GPU for the view is not shown.
    """
    memo = memo or Memo()
    fragment = kind == PlanKind.FRAGMENT
    apart = _too_large(state, staying) if shown else staying
    taken = state.claims.claimed if fragment else _taken(state, staying, apart)
    if closed:
        there = {} if fragment else {job_id: at for job_id, at in staying.items() if job_id not in apart}
        taken = taken | _shut(state, closed, _gpus(there.values()))
    nodes, lasting = _nodes(state, taken, memo), _lasting_gpus(state, apart)
    if closed or lasting:
        nodes = reduced(_marked_closed(nodes, closed), {}, lasting)
    names = waiting(state) if fragment else [job_id for job_id in plannable(state) if job_id not in apart]
    jobs = state.jobs
    if any(jobs[job_id].put_off_until > at for job_id in names):
        names = [job_id for job_id in names if not is_put_off(state, job_id, at)]
    rows = [((job := jobs[job_id]).submitted_at, job_id, job) for job_id in names]
    rows.sort()  # never by the job itself: ids are unique
    warm = _warm(state)
    memo.places_before, memo.places = memo.places, {}
    if len(memo.jobs) > 2 * len(state.jobs) + 100:  # most of them ended
        memo.jobs = {job_id: job for job_id, job in memo.jobs.items() if job_id in state.jobs}
    return View(
        at=at,
        round=int(at // round_s),
        round_s=round_s,
        kind=kind,
        nodes=nodes,
        jobs=tuple(_marked([_job(state, job_id, job, at, memo) for _, job_id, job in rows], staying, warm)),
        apart={job_id: _at(placement) for job_id, placement in apart.items()},
        jobs_present=len(state.jobs) - sum(is_on_hold(state, job_id) for job_id in state.on_hold),
        jobs_coming=jobs_coming(state),
        effort=effort,
        restart_s=restart_s,
        restarts_s=_restarts_s(state, names, restart_s, memo),
        switch_s=switch_s,
        switches_s=_switches_s(state, names, switch_s) if warm else {},
        memory=state.memory if state.memory_of == policy else b"",
    )


def _marked(
    jobs: list[ViewJob], staying: Mapping[JobId, Placement], warm: Mapping[JobId, dict[NodeId, int]]
) -> list[ViewJob]:
    if warm:
        jobs = [
            msgspec.structs.replace(job, warm=warm[job.job_id]) if job.job_id in warm else job for job in jobs
        ]
    if not staying:
        return jobs
    return [msgspec.structs.replace(job, stays=True) if job.job_id in staying else job for job in jobs]


def _warm(state: State) -> dict[JobId, dict[NodeId, int]]:
    """Processes that stand by or run, by job and usable node."""
    found: dict[JobId, dict[NodeId, int]] = {}
    for node_id, there in state.residents.items():
        if there.processes and state.nodes[node_id].usable:
            for job_id, gpus in there.processes.items():
                found.setdefault(job_id, {})[node_id] = gpus
    return found


def _switches_s(
    state: State, jobs: Iterable[JobId], before_s: float
) -> dict[Fingerprint, dict[GpuType, float]]:
    known = state.restarts.known
    workloads = dict.fromkeys([state.jobs[job_id].workload for job_id in jobs])
    return {
        workload: state.restarts.expected_switches_s(workload, before_s)
        for workload in workloads
        if workload in known
    }


def _marked_closed(nodes: tuple[ViewNode, ...], closed: Collection[NodeId]) -> Iterator[ViewNode]:
    return (msgspec.structs.replace(node, closed=True) if node.node_id in closed else node for node in nodes)


def _lasting_gpus(state: State, apart: Mapping[JobId, Placement]) -> dict[NodeId, int]:
    """GPUs by node that these jobs keep to their end."""
    return _gpus(placement for job_id, placement in apart.items() if not state.jobs[job_id].preemptible)


def _too_large(state: State, staying: Mapping[JobId, Placement]) -> Mapping[JobId, Placement]:
    """Jobs on nodes that have fewer GPUs than jobs that stay hold there: no choice could keep them all."""
    nodes = {
        node_id for node_id, gpus in _gpus(staying.values()).items() if gpus > state.nodes[node_id].node.gpus
    }
    if not nodes:
        return {}
    return {job_id: at for job_id, at in staying.items() if not nodes.isdisjoint(at.gang.nodes)}


def _taken(
    state: State, staying: Mapping[JobId, Placement], apart: Mapping[JobId, Placement]
) -> dict[NodeId, int]:
    """GPUs by node that a first plan may not use. A measurement takes none from a job that stays."""
    held, taken = _gpus(staying.values()), state.claims.reserved()
    for node_id, gpus in held.items():
        if node_id in taken:
            taken[node_id] = min(taken[node_id], max(state.nodes[node_id].node.gpus - gpus, 0))
    for node_id, gpus in _gpus(apart.values()).items():
        taken[node_id] = taken.get(node_id, 0) + gpus
    return taken


def _shut(state: State, closed: Iterable[NodeId], shown: Mapping[NodeId, int]) -> dict[NodeId, int]:
    """GPUs of closed nodes by node, except those of jobs that stay, which the view shows."""
    return {node_id: state.nodes[node_id].node.gpus - shown.get(node_id, 0) for node_id in closed}


def _gpus(placements: Iterable[Placement]) -> dict[NodeId, int]:
    return in_turns.held((placement.placement_id, placement.gang) for placement in placements)


def _restarts_s(
    state: State, jobs: Iterable[JobId], before_s: float, memo: Memo
) -> dict[Fingerprint, dict[GpuType, float]]:
    known, found = state.restarts.known, {}
    if len(memo.restarts) > len(known):
        memo.restarts = {}
    for workload in dict.fromkeys([state.jobs[job_id].workload for job_id in jobs]):
        own = known.get(workload)
        if own:
            before = memo.restarts.get(workload)
            if before is None or before[0] is not own:
                before = own, state.restarts.expected_s(workload, before_s)
                memo.restarts[workload] = before
            found[workload] = before[1]
    return found


def plannable(state: State) -> list[JobId]:
    found = [job_id for job_id, job in state.jobs.items() if job.status in PLANNABLE]
    return [job_id for job_id in found if not is_on_hold(state, job_id)] if state.on_hold else found


def left_on_hold(state: State) -> tuple[JobId, ...]:
    """The jobs that could be planned if they were not on hold."""
    return tuple(
        [
            job_id
            for job_id in state.on_hold
            if state.jobs[job_id].status in PLANNABLE and is_on_hold(state, job_id)
        ]
    )


def waiting(state: State) -> list[JobId]:
    """Jobs without GPUs and without a promise of any, that are not on hold."""
    placed, on_hold = state.claims.of_job, state.on_hold
    return [job_id for job_id in state.waiting if job_id not in placed and job_id not in on_hold]


def idle_gpus(state: State, memo: Memo | None = None, closed: frozenset[NodeId] = frozenset()) -> int:
    """GPUs of usable nodes that no placement claims."""
    nodes = _nodes(state, state.claims.claimed, memo or Memo())
    return sum([node.idle for node in nodes if node.node_id not in closed])


def closed_nodes(state: State, at: float, settings: Settings, memo: Memo) -> frozenset[NodeId]:
    """See `leaving`; most clusters have no node that leaves."""
    _look_at_nodes(state, memo)
    return closed(state, at, settings) if memo.leave else NONE


def _look_at_nodes(state: State, memo: Memo) -> None:
    if memo.node_facts == state.node_facts:
        return
    memo.node_facts = state.node_facts
    memo.leave = any(record.node.until is not None for record in state.nodes.values())
    memo.types = tuple(
        sorted({record.node.gpu_type for record in state.nodes.values() if not record.removed})
    )
    memo.whole = tuple(
        ViewNode(
            node_id=node_id,
            gpu_type=record.node.gpu_type,
            gpus=record.node.gpus,
            idle=record.node.gpus,
            modes=record.modes,
            link_bandwidth=record.node.link_bandwidth,
            network_bandwidth=record.node.network_bandwidth,
        )
        for node_id, record in sorted(state.nodes.items())
        if record.usable
    )
    memo.places_of = {node.node_id: place for place, node in enumerate(memo.whole)}
    memo.taken, memo.seen = {}, memo.whole
    memo.nodes, memo.usable, memo.places, memo.jobs = {}, {}, {}, {}


def _nodes(state: State, taken: dict[NodeId, int], memo: Memo) -> tuple[ViewNode, ...]:
    _look_at_nodes(state, memo)
    if taken != memo.taken:
        seen = list(memo.seen)
        for node_id, _ in memo.taken.items() ^ taken.items():  # a node in both comes twice
            place = memo.places_of.get(node_id)
            if place is not None:
                seen[place] = _less(memo.whole[place], taken.get(node_id, 0), memo)
        memo.taken, memo.seen = dict(taken), tuple(seen)
    return memo.seen


def _less(node: ViewNode, taken: int, memo: Memo) -> ViewNode:
    if not taken:
        return node
    idle = max(node.gpus - taken, 0)
    known = memo.nodes.get((node.node_id, idle))
    if known is None:
        known = memo.nodes[node.node_id, idle] = msgspec.structs.replace(node, idle=idle)
    return known


def _job(state: State, job_id: JobId, job: TrackedJob, at: float, memo: Memo) -> ViewJob:
    base = memo.jobs.get(job_id)
    if (
        base is None
        or base.single_gpu is not job.single_gpu
        or base.restarts != job.restarts
        or base.attained_gpu_s != job.attained_gpu_s
        or base.received_s is not job.received_s
        or base.unfit is not job.unfit
        or base.priority != max(job.priority, LEAST_PRIORITY)
        or base.submitted_at != job.submitted_at
    ):
        base = memo.jobs[job_id] = _lasting(job_id, job, memo)
    placement_id, running = state.claims.of_job.get(job_id), job.running
    if running is None:
        return msgspec.structs.replace(
            base,
            wait_s=waited_s(job, at),
            samples_done=min(job.samples_done, job.samples),
            present=None if placement_id is None else _place(state, job, placement_id, memo).present,
        )
    place = _place(state, job, placement_id, memo) if placement_id is not None else None
    shares, gpus, speed = (
        (place.shares, place.gpus, place.placement.throughput) if place else (*_served(state, job), 0.0)
    )
    stretch_s = at - job.running_since
    return msgspec.structs.replace(
        base,
        wait_s=waited_s(job, at),
        attained_gpu_s=job.attained_gpu_s + stretch_s * gpus,
        received_s=_received(job, shares, stretch_s),
        samples_done=min(job.samples_done + job.ahead + speed * (at - job.ahead_at), job.samples),
        present=place.present if place else None,
    )


def _lasting(job_id: JobId, job: TrackedJob, memo: Memo) -> ViewJob:
    """The fields that stay the same until a fact about the job changes one of them.

    `attained_gpu_s` is without the present run.
    """
    return ViewJob(
        job_id=job_id,
        submitted_at=job.submitted_at,
        demand=job.demand,
        gpu_types=_usable(job.gpu_types, memo),
        single_gpu=job.single_gpu,
        sensitivity=job.sensitivity,
        age_s=job.age_s,
        wait_s=0.0,
        attained_gpu_s=job.attained_gpu_s,
        received_s=job.received_s,
        restarts=job.restarts,
        samples=job.samples,
        samples_done=0.0,
        priority=max(job.priority, LEAST_PRIORITY),
        project=job.project,
        workload=job.workload,
        batch_size=job.batch_size,
        gradient_bytes=job.gradient_bytes,
        epoch_samples=job.epoch_samples,
        batch_most=job.batch_most,
        memory_share=job.memory_share,
        unfit=job.unfit,
        modes=job.modes,
        preemptible=job.preemptible,
    )


def _usable(known: tuple[GpuType, ...], memo: Memo) -> tuple[GpuType, ...]:
    """The GPU types that a job has speeds on and the cluster has."""
    found = memo.usable.get(known)
    if found is None:
        found = memo.usable[known] = tuple(gpu_type for gpu_type in memo.types if gpu_type in known)
    return found


def _received(job: TrackedJob, shares: Mapping[GpuType, float], stretch_s: float) -> dict[GpuType, float]:
    received = job.received_s.copy()
    for gpu_type, share in shares.items():
        received[gpu_type] = received.get(gpu_type, 0.0) + share * stretch_s
    return received


def _place(state: State, job: TrackedJob, placement_id: PlacementId, memo: Memo) -> PlacedJob:
    placement, running = state.claims.planned[placement_id], job.running
    known = memo.places_before.get(placement_id)
    if known is None or known.running is not running or known.placement is not placement:
        shares, gpus = _served(state, job)
        whole = placement_id not in state.claims.broken
        present = _where(job, placement) if whole else None
        known = PlacedJob(placement, running, present, shares, gpus)
    memo.places[placement_id] = known
    return known


def _served(state: State, job: TrackedJob) -> tuple[dict[GpuType, float], float]:
    """What the job receives in a second of running: share by type, and GPU-seconds."""
    shares, gpus = shares_of(state, job.running), job.running.gpus if job.running else 0
    if job.share == 1.0:
        return shares, gpus
    return {gpu_type: share * job.share for gpu_type, share in shares.items()}, gpus * job.share


def _where(job: TrackedJob, placement: Placement) -> Present | None:
    """Where the job runs or is about to run; None: it cannot stay there."""
    if gangs.misfit(placement.gang, job.demand, job.batch_size):
        return None
    runs = job.running == placement.gang or _is_retimed(job, placement)
    return _at(placement, starting=not runs)


def _is_retimed(job: TrackedJob, placement: Placement) -> bool:
    """Whether the job runs there in other turns, and will take these in a moment."""
    return job.running is not None and gangs.retimes(job.running, placement.gang)


def _at(placement: Placement, *, starting: bool = False) -> Present:
    return Present(
        placement_id=placement.placement_id,
        gang=placement.gang,
        throughput=placement.throughput,
        layer=placement.layer,
        share=placement.share,
        starting=starting,
    )
