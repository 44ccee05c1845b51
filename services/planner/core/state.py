"""The planner's state: what facts said of jobs and nodes. `claims` has which GPUs are taken."""

import msgspec

from schemas.ids import Fingerprint, GpuType, JobId, NodeId, PlacementId
from schemas.placement import Gang
from schemas.plans import Placement
from services.planner.core.claims import Claims
from services.planner.core.restart_times import RestartTimes
from shared.domain import gangs
from shared.domain.nodes import KnownNode
from shared.domain.residents import Residents
from shared.domain.states import JobState
from shared.domain.tally import Tally

COMING = frozenset({JobState.SUBMITTED, JobState.PROFILED})


class TrackedJob(msgspec.Struct, kw_only=True):
    """An unfinished job; it is forgotten when it ends."""

    submitted_at: float
    """later by the seconds for which it waited on hold"""
    demand: tuple[int, ...]
    samples: float
    priority: float
    project: str = "default"
    workload: Fingerprint = Fingerprint("")
    batch_size: int = 1
    """samples of one GPU in an iteration"""
    gradient_bytes: float = 0.0
    """what an exchange of gradients has to move; 0: not known"""
    epoch_samples: float | None = None
    batch_most: dict[GpuType, int] = {}
    """see `ViewJob.batch_most`"""
    memory_share: dict[GpuType, float] = {}
    """see `ViewJob.memory_share`"""
    unfit: frozenset[NodeId] = frozenset()
    """see `ViewJob.unfit`"""
    modes: tuple[str, ...] = ()
    """see `ViewJob.modes`"""
    preemptible: bool = True
    """false: once it starts, no plan takes its place"""
    types_named: tuple[GpuType, ...] = ()
    """the types that its file names; empty: it may use any"""
    types_failed: frozenset[GpuType] = frozenset()
    """the types on which it was found not to run"""
    status: JobState = JobState.SUBMITTED
    age_s: float = 0.0
    sensitivity: float = 1.0
    single_gpu: dict[GpuType, float] = {}
    gpu_types: tuple[GpuType, ...] = ()
    """the types in `single_gpu`"""
    restarts: int = 0
    held_s: float = 0.0
    """seconds for which it held GPUs, without the present placement"""
    attained_gpu_s: float = 0.0
    received_s: dict[GpuType, float] = {}
    """see `ViewJob.received_s`"""
    running: Gang | None = None
    running_since: float = 0.0
    share: float = 1.0
    """share of its GPUs' time that the job has; below 1 where it takes turns"""
    ordered_at: float | None = None
    """when its workers were ordered to start or stop; None once they have"""
    switched: bool = False
    """whether all processes of its newest placement stood by when they were ordered to start"""
    samples_done: float = 0.0
    """samples that the job had done by its last report"""
    samples_at: float = 0.0
    """time of that report, or of the start of the present run if that was later"""
    ahead: float = 0.0
    """samples done between `samples_at` and `ahead_at`, as estimated"""
    ahead_at: float = 0.0
    """when it took its present turns; `samples_at` if it has taken no others since"""
    refusals: int = 0
    """refusals of its placements in a row, without a start in between"""
    put_off_until: float = 0.0
    """cluster time before which it is not planned, because the placer refused it several times in a row"""
    placement: PlacementId | None = None
    """the newest placement whose start was ordered"""
    tally: Tally = msgspec.field(default_factory=Tally)
    """samples of that placement"""


class State(msgspec.Struct, kw_only=True):
    seq: int = 0
    """stream sequence of the last fact; the shell sets it"""
    jobs: dict[JobId, TrackedJob] = {}
    coming: dict[JobId, None] = {}
    """jobs on their way to the queue"""
    waiting: dict[JobId, None] = {}
    """jobs in the queue, those with a planned placement too"""
    on_hold: dict[JobId, float] = {}
    """jobs on hold, each with the seconds that it had waited until then"""
    nodes: dict[NodeId, KnownNode] = {}
    node_facts: int = 0
    """number of facts so far that changed the nodes"""
    residents: dict[NodeId, Residents] = {}
    """by node: processes of relaxed jobs that run there, or stand by between placements"""
    claims: Claims = msgspec.field(default_factory=Claims)
    restarts: RestartTimes = msgspec.field(default_factory=RestartTimes)
    moves_from: float = 0.0
    """cluster time from which the restart budget allows moves again, if `paying_gpus` remain usable (see
    `staying`)"""
    paying_gpus: int = 0
    """GPUs that were usable at the last such plan or fact about a node; 0: no plan has cost anything yet"""
    opened_round: int = -1
    """the last round the profiler opened"""
    opened_at: float | None = None
    planned_round: int = -1
    """the last round with a first plan"""
    planned_at: float | None = None
    """when that plan was published; as with `opened_at`, None: it was not kept, or there is none"""
    plans: int = 0
    """plans published so far; makes ids unique"""
    token: int = 0
    """the newest leader's token, as seen in plans"""
    policy: str = ""
    """the policy chosen at run time; empty: that of the settings"""
    memory: bytes = b""
    """the memory in the last plan (see `Policy`)"""
    memory_of: str = ""
    """the policy that the memory belongs to"""


def is_any_coming(state: State) -> bool:
    """Whether a job is on its way to the queue; those on hold may take weeks."""
    return any(job_id not in state.on_hold for job_id in state.coming)


def jobs_coming(state: State) -> int:
    """Jobs on their way to the queue, without those that wait for a node on which they can be measured.

    A job that failed on each open type waits for a node of another one.
    """
    open_types = {known.node.gpu_type for known in state.nodes.values() if known.usable}
    return sum(
        job.status is not JobState.SUBMITTED
        or not open_types.isdisjoint(frozenset(job.types_named or open_types) - job.types_failed)
        for job in (state.jobs[job_id] for job_id in state.coming if job_id not in state.on_hold)
    )


def is_put_off(state: State, job_id: JobId, at: float) -> bool:
    """Whether the job waits and is not planned yet, because the placer refused it several times in a row."""
    put_off = state.jobs[job_id].put_off_until > at and job_id in state.waiting
    return put_off and job_id not in state.claims.of_job


def is_on_hold(state: State, job_id: JobId) -> bool:
    """Whether plans give the job no GPUs because it is on hold.

    One that is not preemptible keeps its GPUs once it has them, for as long as it can stay there.
    """
    if job_id not in state.on_hold:
        return False
    job, placement = state.jobs[job_id], state.claims.placement_of(job_id)
    if job.preemptible or placement is None or (job.running is None and job.ordered_at is None):
        return True
    return placement.placement_id in state.claims.broken or not on_usable_nodes(state, placement)


def on_usable_nodes(state: State, placement: Placement) -> bool:
    return all(node_id in state.nodes and state.nodes[node_id].usable for node_id in placement.gang.nodes)


def waited_s(job: TrackedJob, at: float) -> float:
    """Seconds since its submission in which the job did not run."""
    running_s = at - job.running_since if job.running is not None else 0.0
    return max(at - job.submitted_at - job.held_s - running_s, 0.0)


def stands_by(state: State, job_id: JobId, gang: Gang) -> bool:
    """Whether a process of the job stands by for each GPU of the gang, so that it starts by a switch."""
    return gangs.resident(gang) and all(
        one.node in state.residents and state.residents[one.node].processes.get(job_id, 0) >= one.gpus
        for one in gang.members
    )


def types_of(state: State, gang: Gang | None) -> list[GpuType]:
    """The GPU types of a gang, in alphabetical order."""
    nodes = gang.nodes if gang else ()
    if len(nodes) == 1 and nodes[0] in state.nodes:
        return [state.nodes[nodes[0]].node.gpu_type]
    return sorted({state.nodes[node_id].node.gpu_type for node_id in nodes if node_id in state.nodes})


def shares_of(state: State, gang: Gang | None) -> dict[GpuType, float]:
    """The part of a gang's GPUs that each of its types has, types in alphabetical order; they sum to 1."""
    types = types_of(state, gang)
    if gang is None or len(types) == 1:
        return dict.fromkeys(types, 1.0)
    gpus = dict.fromkeys(types, 0)
    for one in gang.members:
        if one.node in state.nodes:
            gpus[state.nodes[one.node].node.gpu_type] += one.gpus
    known = sum(gpus.values())
    return {gpu_type: count / known for gpu_type, count in gpus.items()}
