"""The result of running a scenario, as `hopyard demo` and `hopyard simulate` write it (JSON)."""

from schemas.base import Message


class PlanFigures(Message, frozen=True, kw_only=True):
    plans: int
    decision_s_p50: float | None
    decision_s_p99: float | None
    gap_max: float | None
    stages: dict[str, int]


class JobResult(Message, frozen=True, kw_only=True):
    """One job from its submission to its end. Times are cluster seconds; None if it did not get that far."""

    job_id: str
    name: str
    model: str
    dataset: str
    state: str
    submitted_at: float
    started_at: float | None
    """its first start"""
    ended_at: float | None
    wait_s: float
    """time in which it did not run; its profiling and starts count"""
    age_s: float | None
    """expected running time without waiting"""
    jct_s: float | None
    """from its submission to its completion; None unless it completed"""
    latency_ratio: float | None
    ftf_rho: float | None
    gpu_s: float
    """GPU time held while it ran, from each start to its end"""
    restarts: int
    lost_gpu_s: float
    """GPU time spent on recomputing lost samples, on checkpoints and on restores"""
    placements: int = 0
    """how often it was placed and ran"""
    priority: float = 1.0
    nodes: tuple[str, ...] = ()
    """nodes on which it ran, in the order of its first run there"""
    merges: int = 0
    """how often the weights of its copies were averaged"""
    merge_steps_mean: float | None = None
    """optimizer steps of a copy between two merges; None, as in the next two fields: nothing was merged"""
    merge_steps_max: float | None = None
    copy_share_max: float | None = None
    """largest share of the samples between two merges that one copy did"""


class RefusedJob(Message, frozen=True, kw_only=True):
    """A job that admission refused when it came: the run went on without it."""

    number: int
    """its place among the scenario's jobs, in order of arrival, from 1"""
    name: str
    at_s: float
    """seconds from the start"""
    reason: str


class CutJob(Message, frozen=True, kw_only=True):
    """A job of a trace that asks for fewer GPUs than the trace says, and for as much work."""

    number: int
    """its place among the scenario's jobs, in order of arrival, from 1"""
    name: str
    traced_gpus: int
    """as the trace says"""
    gpus: int
    """what it asks for: all of the most numerous type that its model fits, or the most that its mix gives
    that model"""


class PlanNote(Message, frozen=True, kw_only=True):
    """A note in plans of a run, such as that the policy failed and another one made them."""

    text: str
    plans: int
    """number of plans with it"""


class RunResult(Message, frozen=True, kw_only=True):
    scenario: str
    policy: str
    seed: int
    speed: float | None
    """cluster seconds per second of the wall clock; None in a simulation"""
    round_s: float
    jobs: dict[str, int]
    """number of jobs that were accepted, as `submitted`, and in each state at the end"""
    metrics: dict[str, float | None]
    plans: PlanFigures
    event_log_hash: str
    events: int
    wall_s: float
    settings: dict[str, str | float | bool | None]
    """settings of the services that differ from the defaults"""
    made_by: dict[str, str] = {}
    """versions of hopyard, Python and the libraries that compute, and the processor's vector instructions.
    Empty: the version that made it did not note them"""
    job_results: tuple[JobResult, ...] = ()
    """in the order of submission"""
    refused: tuple[RefusedJob, ...] = ()
    """jobs of a simulation that are in nothing above, since they were refused"""
    cut: tuple[CutJob, ...] = ()
    """jobs of a trace with fewer GPUs than it says"""
    notes: tuple[PlanNote, ...] = ()
    """what went wrong as plans were made, the most frequent first"""

    @property
    def waiting(self) -> tuple[str, ...]:
        """Jobs that had not ended when the run stopped making progress: the policy never places them."""
        return tuple(job.job_id for job in self.job_results if job.ended_at is None)
