"""What the ledger is made of: jobs, runs, nodes, plans. Small, serialisable, almost no behaviour.

All times are cluster seconds.
"""

import msgspec

from schemas.events import Outcome, PreemptReason, ProfileRun
from schemas.ids import GpuType, JobId, NodeId, PlacementId, PlanId
from schemas.jobs import JobSpec
from schemas.placement import Gang
from schemas.plans import Cause, Layer, Placement, PlanKind, Standing, Waiting
from schemas.views import PlanView
from shared.domain.nodes import KnownNode
from shared.domain.states import ENDED, JobState
from shared.domain.sums import plain_sum
from shared.domain.tally import Tally


class Broken(msgspec.Struct, frozen=True, kw_only=True):
    """How a placement ended by itself: it failed, or it was interrupted."""

    placement_id: PlacementId
    outcome: Outcome
    reason: str
    exit_code: int | None = None
    signal: int | None = None


class Run(msgspec.Struct, kw_only=True):
    """The time in which a job holds one set of GPUs: from JobStarted to JobPreempted or the job's end."""

    placement_id: PlacementId
    gang: Gang
    started_at: float
    samples_from: float
    """samples in the checkpoint from which it resumed"""
    saved_at: float
    """time of the newest checkpoint; the start while there is none"""
    ended_at: float | None = None
    samples_to: float | None = None
    """samples that count at its end: those in its last checkpoint"""
    trained: float | None = None
    """samples after which its script ended by itself; None: it did not"""
    share: float = 1.0
    """share of its GPUs' time, by the newest plan"""
    throughput: float | None = None
    """samples/s, as estimated when it was placed"""
    layer: Layer | None = None
    plan_id: PlanId | None = None
    """the plan that gave the job these GPUs"""
    standing: Standing | None = None
    """the job's standing in that plan"""
    preempted: PreemptReason | None = None
    """why the run ended, if the job did not end with it"""
    cause: Cause | None = None
    broken: Broken | None = None
    start_s: float | None = None
    """seconds from the order to start until its processes were up"""
    stop_ordered_at: float | None = None
    copies: dict[NodeId, float] = {}
    """samples that count of each copy, once the run is over; without copies that did none"""

    @property
    def merged(self) -> bool:
        """Whether the weights of its copies were averaged when it ended."""
        return len(self.copies) > 1

    @property
    def stop_s(self) -> float | None:
        """Seconds from the order to stop to its GPUs being free; None: no order, or it has not ended."""
        if self.stop_ordered_at is None or self.ended_at is None:
            return None
        return max(self.ended_at - self.stop_ordered_at, 0.0)

    @property
    def gpus(self) -> float:
        """Number of GPUs; a GPU that the run has in turns counts with its share of the time."""
        return self.gang.gpus * self.share if self.share < 1.0 else self.gang.gpus


class RunSums(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Sums and maxima over runs, for the figures that are about all runs, whether they are kept or not."""

    switches: int = 0
    """starts of jobs that ran before, if the order to start was seen"""
    switch_s: float = 0.0
    """seconds that they took"""
    merges: int = 0
    """runs whose copies were merged"""
    copies: int = 0
    """copies of these runs"""
    steps: float = 0.0
    """optimizer steps of these copies"""
    steps_max: float = 0.0
    share_max: float = 0.0
    """the largest share of one copy in the samples of a run"""

    def add(self, run: Run, batch_size: int, *, first: bool) -> None:
        """`first`: whether it is the first run of its job."""
        if run.start_s is not None and not first:
            self.switches += 1
            self.switch_s += run.start_s
        if run.merged:
            self.merges += 1
            self.share_max = max(self.share_max, max(run.copies.values()) / plain_sum(run.copies.values()))
            for node_id, samples in run.copies.items():
                steps = samples / (batch_size * run.gang.on(node_id))
                self.copies += 1
                self.steps += steps
                self.steps_max = max(self.steps_max, steps)

    def include(self, more: "RunSums") -> None:
        self.switches += more.switches
        self.switch_s += more.switch_s
        self.merges += more.merges
        self.copies += more.copies
        self.steps += more.steps
        self.steps_max = max(self.steps_max, more.steps_max)
        self.share_max = max(self.share_max, more.share_max)


class Hold(msgspec.Struct, frozen=True, kw_only=True):
    at: float
    by: str
    """as in `JobHeld`"""
    wait_s: float
    """the job's waiting time until then"""


class JobRecord(msgspec.Struct, kw_only=True):
    job_id: JobId
    spec: JobSpec
    submitted_at: float
    state: JobState = JobState.SUBMITTED
    since: float
    """time at which it entered the state"""
    started_at: float | None = None
    """time of its first start"""
    ended_at: float | None = None
    age_s: float | None = None
    """expected running time without waiting (Hops eq. 9)"""
    single_gpu: dict[GpuType, float] = {}
    """samples/s on one GPU"""
    ordered: PlacementId | None = None
    """the newest placement whose start was ordered; None once it is taken back"""
    ordered_at: float = 0.0
    tally: Tally = msgspec.field(default_factory=Tally)
    """progress on the newest placement whose start was ordered"""
    nodes: dict[NodeId, None] = {}
    """nodes on which its processes, measurements included, were ordered to start: the newest, oldest first"""
    run_s: float = 0.0
    """seconds of all runs that are over"""
    runs: list[Run] = []
    """its newest runs, oldest first; the last one is open while the job runs"""
    runs_before: RunSums = msgspec.field(default_factory=RunSums)
    """over its runs before these"""
    starts: int = 0
    """number of its runs, whether they are kept or not"""
    restarts: int = 0
    samples_done: float = 0.0
    """samples in its newest checkpoint, or at its end"""
    lost_gpu_s: float = 0.0
    """GPU-seconds recomputed, or spent on checkpoints and restores"""
    reason: str = ""
    unmeasured: str = ""
    """where and why its last measurement failed; empty: it did not fail, or there was none"""
    broken: Broken | None = None
    """the newest of its placements that failed or was interrupted"""
    failures: int = 0
    """placements that failed"""
    interruptions: int = 0
    """placements that were interrupted, and went back to the queue"""
    fruitless: int = 0
    """number of the newest interruptions that had no new checkpoint in between"""
    samples_then: float = 0.0
    """samples in its newest checkpoint when it was last interrupted"""
    checkpoints: int = 0
    """checkpoints written so far"""
    hold: Hold | None = None
    """None: it is not on hold; a job that ended on hold keeps it"""
    on_hold_s: float = 0.0
    """seconds for which it waited on hold, until its last release"""

    @property
    def ended(self) -> bool:
        return self.state in ENDED

    @property
    def present(self) -> Run | None:
        """The run that is under way; None unless the job is running."""
        return self.runs[-1] if self.state is JobState.RUNNING else None

    @property
    def cut_short(self) -> Run | None:
        """The run in which the job was cancelled or failed; None: no run ended with it, or it completed."""
        run = self.runs[-1] if self.runs and self.ended and self.state is not JobState.COMPLETED else None
        return run if run is not None and run.preempted is None else None

    def running_s(self, now: float) -> float:
        """Length of all its runs until now."""
        run = self.present
        return self.run_s + (max(now - run.started_at, 0.0) if run else 0.0)

    def wait_s(self, now: float) -> float:
        """Seconds from its submission to its end in which it did not run; its profiling and starts count.

        On hold it does not wait.
        """
        if self.hold is not None:
            return self.hold.wait_s
        until = now if self.ended_at is None else self.ended_at
        return max(until - self.submitted_at - self.on_hold_s - self.running_s(until), 0.0)


class WorkerRecord(msgspec.Struct, kw_only=True):
    """GPUs that a placement holds on one node, possibly in turns with others."""

    job_id: JobId
    gpu_indices: tuple[int, ...]
    stop_ordered_at: float | None = None

    @property
    def gpus(self) -> int:
        return len(self.gpu_indices)


class NodeRecord(KnownNode, kw_only=True):
    up: list[tuple[float, float, int, GpuType]] = []
    """the newest intervals in which it was alive, each with the GPUs that jobs could get in it and their
    type; the present one is open and not among them"""
    up_before_s: dict[int, float] = {}
    """seconds of the intervals before these, from the first submission on, by the GPUs that jobs could get"""
    up_since: float
    """begin of the present interval"""
    workers: dict[PlacementId, WorkerRecord] = {}
    """a lost node keeps them: it may come back with them"""
    settled_at: float
    """time up to which `busy_s` and `gpu_busy_s` are added up"""
    busy_s: float = 0.0
    """seconds with at least one GPU in use"""
    gpu_busy_s: float = 0.0
    """the same, times the GPUs in use of those that jobs could get"""

    @property
    def gpus_in_use(self) -> int:
        if len(self.workers) == 1:  # most of the time
            return next(iter(self.workers.values())).gpus
        return len({index for worker in self.workers.values() for index in worker.gpu_indices})

    @property
    def withheld_in_use(self) -> int:
        """GPUs that no job gets any more, and that one still holds."""
        if not self.withheld:
            return 0
        held = {index for worker in self.workers.values() for index in worker.gpu_indices}
        return len(held & self.withheld.keys())

    @property
    def available_in_use(self) -> int:
        """GPUs in use of those that jobs can get."""
        return self.gpus_in_use - self.withheld_in_use

    def settle(self, at: float) -> None:
        """Add up use until `at`. Called before anything about the node changes."""
        if self.alive and self.workers:
            elapsed_s = max(at - self.settled_at, 0.0)
            self.busy_s += elapsed_s
            self.gpu_busy_s += elapsed_s * self.available_in_use
        self.settled_at = max(at, self.settled_at)


class PlanRecord(msgspec.Struct, frozen=True):
    view: PlanView
    fragments: int
    """idle GPUs, if at least one job that could run was left out; else 0"""


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """Why the newest plan that looked at a job did not run it."""

    plan_id: PlanId
    reason: str
    detail: str
    held_by: tuple[JobId, ...] = ()
    since: float = 0.0
    """time of the first of the consecutive plans with this verdict"""
    position: int = 0
    """its place among the jobs that the plan left out, in the order of the queue, from 1"""
    waiting: int = 0
    """number of jobs that the plan left out"""
    standing: Standing | None = None
    rivals: tuple[Standing | None, ...] = ()
    """standings of the jobs `held_by`"""
    kind: PlanKind = PlanKind.FIRST
    """kind of the plan"""
    first: "Verdict | None" = None
    """of a fragment plan: what the first plan of the round said, if it left the job out"""

    @property
    def deciding(self) -> "Verdict":
        """The verdict to show.

        If a fragment plan found no GPUs, it is that of the first plan before it, which knows who got them.
        """
        if self.first is None or self.reason != Waiting.NO_CONFIGURATION.value:
            return self
        return self.first


class Chosen(msgspec.Struct, frozen=True, kw_only=True):
    """Which plan gave a job its newest place, and how the job stood there."""

    placement_id: PlacementId
    plan_id: PlanId
    standing: Standing | None = None
    at: float = 0.0
    """time of the plan"""


class Supply(msgspec.Struct, frozen=True):
    """Whether some node with GPUs of a type is usable, and since when that is so."""

    usable: bool
    since: float


class Ledger(msgspec.Struct, kw_only=True):
    at: float = 0.0
    """time of the newest fact"""
    jobs: dict[JobId, JobRecord] = {}
    """jobs, in the order of their submission"""
    nodes: dict[NodeId, NodeRecord] = {}
    supply: dict[GpuType, Supply] = {}
    """of each type that a node ever had"""
    plans: list[PlanRecord] = []
    policy: str | None = None
    """policy of the newest plan; before the first plan, the policy that was chosen"""
    token: int = 0
    """the newest fencing token; a plan with an older one changes nothing"""
    planned: dict[JobId, Placement] = {}
    """placements that the round's plans want to run"""
    chosen: dict[JobId, Chosen] = {}
    verdicts: dict[JobId, Verdict] = {}
    """why jobs wait, by job"""
    explains: bool = True
    """whether `verdicts` are kept; no metric needs them"""
    measuring: dict[PlacementId, ProfileRun] = {}
    first_submitted_at: float | None = None
    """when the first job was submitted, whether it is kept or not"""
    forgotten: dict[JobState, int] = {}
    """ended jobs that are no longer kept"""
    void: int = 0
    """number of facts that the table of states did not allow"""
