"""What the planner knows from facts about jobs and nodes; `folds` has what each fact changes.

Which GPUs are taken is in `claims`.
"""

import msgspec

from schemas.ids import Fingerprint, GpuType, JobId, NodeId, PlacementId
from schemas.placement import Gang
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
    status: JobState = JobState.SUBMITTED
    age_s: float = 0.0
    sensitivity: float = 1.0
    single_gpu: dict[GpuType, float] = {}
    gpu_types: tuple[GpuType, ...] = ()
    """of `single_gpu`"""
    restarts: int = 0
    held_s: float = 0.0
    """time for which it held GPUs, without the present placement"""
    attained_gpu_s: float = 0.0
    received_s: dict[GpuType, float] = {}
    """see `ViewJob.received_s`"""
    running: Gang | None = None
    running_since: float = 0.0
    share: float = 1.0
    """of its GPUs' time that it has"""
    ordered_at: float | None = None
    """when its workers were ordered to start, or to stop, until they have"""
    switched: bool = False
    """whether all processes of its newest placement stood by when they were ordered to start"""
    samples_done: float = 0.0
    """as last reported"""
    samples_at: float = 0.0
    """time of that report, or of the start of the present run if that was later"""
    ahead: float = 0.0
    """samples that it has done since then, as estimated, before it took its present turns"""
    ahead_at: float = 0.0
    """when it began to take them; or else as `samples_at`"""
    refusals: int = 0
    """of its placements, one after the other, without a start in between"""
    held_until: float = 0.0
    """while it waits no plan is made for it before: the placer refuses it again and again"""
    placement: PlacementId | None = None
    """the newest whose start was ordered"""
    tally: Tally = msgspec.field(default_factory=Tally)
    """of that placement"""


class State(msgspec.Struct, kw_only=True):
    seq: int = 0
    """of the last fact; the shell sets it"""
    jobs: dict[JobId, TrackedJob] = {}
    coming: dict[JobId, None] = {}
    """those on their way to the queue"""
    waiting: dict[JobId, None] = {}
    """those in the queue, some with the promise of GPUs"""
    nodes: dict[NodeId, KnownNode] = {}
    node_facts: int = 0
    """number of facts so far that changed the nodes"""
    residents: dict[NodeId, Residents] = {}
    """processes of relaxed jobs that are there, by node where they stand by between placements"""
    claims: Claims = msgspec.field(default_factory=Claims)
    restarts: RestartTimes = msgspec.field(default_factory=RestartTimes)
    moves_from: float = 0.0
    """when what plans took from running jobs is made up for (see `staying`)"""
    opened_round: int = -1
    """the last round the profiler opened"""
    planned_round: int = -1
    """the last round with a first plan"""
    plans: int = 0
    """published so far: makes ids unique"""
    token: int = 0
    """the newest leader's, as seen in plans"""
    policy: str = ""
    """chosen at run time; empty: the settings say"""
    memory: bytes = b""
    """the policy's, from its last decision"""
    memory_of: str = ""
    """the policy it belongs to"""


def is_held(state: State, job_id: JobId, at: float) -> bool:
    """Whether it waits, and was refused so often that no plan is made for it yet."""
    return state.jobs[job_id].held_until > at and job_id in state.waiting


def stands_by(state: State, job_id: JobId, gang: Gang) -> bool:
    """Whether it has a process for each GPU of the gang: it starts there by a switch."""
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
