"""One run of an experiment, and its outcome. Messages only.

A trial is a whole description: the same trial and the same code give the same outcome, seconds of the
machine aside. All times are cluster seconds unless a field says otherwise.
"""

from schemas.accuracy import Execution
from schemas.base import Message
from schemas.results import JobResult, RunResult
from schemas.scenarios import ScenarioFile

Overrides = dict[str, str | int | float | bool]


class Simulation(Message, frozen=True, kw_only=True, tag="simulation"):
    """A scenario from its first job to its last."""

    scenario: ScenarioFile
    policy: str
    seed: int
    overrides: Overrides = {}

    def __str__(self) -> str:
        return f"{self.scenario.name} {self.policy} seed {self.seed}{_shown(self.overrides)}"


class Solving(Message, frozen=True, kw_only=True, tag="solving"):
    """The integer programs of a scenario's first rounds, each solved to several gaps."""

    scenario: ScenarioFile
    seed: int
    gaps: tuple[float, ...]
    rounds: int
    """how many programs, one a round"""
    warm_rounds: int
    """rounds before the first of them"""
    budget_s: float
    """seconds of the wall clock for one solve"""
    options: dict[str, str] = {}
    """options of `hops`, with values as they are written"""
    overrides: Overrides = {}

    def __str__(self) -> str:
        return f"{self.scenario.name} seed {self.seed}, {self.rounds} programs{_shown(self.overrides)}"


class Bounding(Message, frozen=True, kw_only=True, tag="bounding"):
    """Bounds that no scheduler of gangs in lockstep can beat on the jobs and the world of a scenario."""

    scenario: ScenarioFile
    seed: int
    overrides: Overrides = {}

    def __str__(self) -> str:
        return f"{self.scenario.name} bound seed {self.seed}{_shown(self.overrides)}"


Trial = Simulation | Solving | Bounding


def _shown(overrides: Overrides) -> str:
    return "".join(f" {name}={plain(value)}" for name, value in sorted(overrides.items()))


def plain(value: object) -> str:
    """A setting's value as it is shown."""
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)


class PlanRow(Message, frozen=True, kw_only=True):
    at: float
    round: int
    kind: str
    fragments: int
    idle_gpus: int
    placements: int
    left_out: int
    configurations: int
    stage: str
    gap: float
    solve_s: float
    decision_s: float
    horizon_s: float | None = None


class Hold(Message, frozen=True, kw_only=True, array_like=True):
    """A GPU in the hands of a job."""

    gpu: int
    """counted through all nodes, types together"""
    job: int
    """position in the outcome's jobs"""
    started_at: float
    ended_at: float


class PointRow(Message, frozen=True, kw_only=True, array_like=True):
    at: float
    throughput: float
    """throughput of the cluster, in single-GPU means"""
    busy_gpus: float


class LoadingRow(Message, frozen=True, kw_only=True):
    """Data times that one profile measured, an iteration each, seconds."""

    model: str
    dataset: str
    gpu_type: str
    data_s: tuple[float, ...]


class GpuTime(Message, frozen=True, kw_only=True):
    """GPU-seconds of a run, in parts that sum to all that nodes offered (`gpu_time`)."""

    useful: float
    slower_types: float
    gangs: float
    restarts: float
    profiling: float
    beside_waiting: float
    idle: float


class Simulated(Message, frozen=True, kw_only=True, tag="simulated"):
    result: RunResult
    violations: tuple[str, ...]
    """rules of the audit that the event log breaks; there should be none"""
    gpu_types: tuple[str, ...]
    """types by GPU, in the numbering of the holds"""
    plans: tuple[PlanRow, ...]
    executions: tuple[Execution, ...]
    holds: tuple[Hold, ...]
    curve: tuple[PointRow, ...]
    loading: tuple[LoadingRow, ...]
    gpu_time: GpuTime | None = None
    """None: there were no jobs"""

    @property
    def jobs(self) -> tuple[JobResult, ...]:
        return self.result.job_results

    @property
    def began_at(self) -> float:
        """The first submission."""
        return min((job.submitted_at for job in self.jobs), default=0.0)


class SolveRow(Message, frozen=True, kw_only=True):
    configurations: int
    tolerated: float
    """gap at which the solver was to stop"""
    cpu_s: float
    gap: float
    """proven"""
    stage: str


class Solved(Message, frozen=True, kw_only=True, tag="solved"):
    rows: tuple[SolveRow, ...]


class Bounded(Message, frozen=True, kw_only=True, tag="bounded"):
    """Named as the metrics that they bound from below."""

    makespan_s: float | None = None
    jct_s_mean: float | None = None
    left_out: int = 0
    """jobs that fit nowhere"""
    unknown: str = ""
    """why there are no bounds"""


Outcome = Simulated | Solved | Bounded


class StoredOutcome(Message, frozen=True, kw_only=True):
    """An outcome with what it is the outcome of."""

    trial: Trial
    outcome: Outcome
    wall_s: float
