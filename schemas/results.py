"""What a run of a scenario came to: the JSON that demo and simulate write."""

from schemas.base import Message


class PlanFigures(Message, frozen=True, kw_only=True):
    plans: int
    decision_s_p50: float | None
    decision_s_p99: float | None
    gap_max: float | None
    stages: dict[str, int]


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
