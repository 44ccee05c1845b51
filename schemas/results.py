"""The result of a scenario's run: the JSON that demo and simulate write."""

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
    """without GPUs"""
    age_s: float | None
    """expected running time without waiting"""
    jct_s: float | None
    latency_ratio: float | None
    ftf_rho: float | None
    gpu_s: float
    """GPU time held"""
    restarts: int
    lost_gpu_s: float
    """recomputed, or spent on checkpoints and restores"""
    placements: int = 0
    """how often it was placed and ran"""
    priority: float = 1.0
    nodes: tuple[str, ...] = ()
    """where it ran, in the order of its first stay"""
    merges: int = 0
    """means taken of the weights of its copies"""
    merge_steps_mean: float | None = None
    """optimizer steps of a copy from one merge to the next; None, as below: nothing was merged"""
    merge_steps_max: float | None = None
    copy_share_max: float | None = None
    """the most that one copy did of the samples between two merges"""


class RunResult(Message, frozen=True, kw_only=True):
    scenario: str
    policy: str
    seed: int
    speed: float | None
    """cluster seconds per second; None in simulation"""
    round_s: float
    jobs: dict[str, int]
    """submitted, and the number in each final or open state"""
    metrics: dict[str, float | None]
    plans: PlanFigures
    event_log_hash: str
    events: int
    wall_s: float
    settings: dict[str, str | float | bool | None]
    """what the services ran with, where it differs from the defaults"""
    made_by: dict[str, str] = {}
    """versions of hopyard, Python and the libraries that compute, and the processor's vector instructions.
    Empty: of a version before this was noted"""
    job_results: tuple[JobResult, ...] = ()
    """in the order of submission"""

    @property
    def waiting(self) -> tuple[str, ...]:
        """Jobs that had not ended when the run stopped making progress: the policy never places them."""
        return tuple(job.job_id for job in self.job_results if job.ended_at is None)
