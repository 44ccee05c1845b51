"""Every setting of every service: name, unit, default, bound. Also the format of the settings file.

`HOPYARD_<NAME>` in the environment wins over the file. `hopyard config show` prints what is in force.
Times are cluster seconds unless the name says `_real_s`: those are about processes, not jobs.
"""

from typing import Annotated, Literal

from msgspec import Meta

from schemas.base import File

Seconds = Annotated[float, Meta(gt=0, le=1e8)]
Whole = Annotated[int, Meta(ge=1, le=1_000_000_000)]
Share = Annotated[float, Meta(ge=0, le=1)]


class Settings(File, frozen=True, kw_only=True):
    # ---- bus and process
    nats_url: str = "nats://127.0.0.1:4222"
    nats_token: str = ""
    nats_user: str = ""
    nats_password: str = ""
    nats_replicas: Annotated[int, Meta(ge=1, le=5)] = 1
    """copies of every stream and bucket; 3 in production"""
    ask_timeout_real_s: Seconds = 5.0
    publish_timeout_real_s: Seconds = 5.0
    publish_in_flight: Whole = 256
    """facts on their way to the server at once"""
    stream_max_bytes: Whole = 1_000_000_000
    sample_max_age_real_s: Seconds = 3600.0
    sample_max_bytes: Whole = 268_435_456
    listener_queue: Whole = 10_000
    """samples a slow listener may be behind before it loses the oldest"""
    duplicate_window_real_s: Seconds = 600.0
    snapshot_every: Whole = 5_000
    """facts between two snapshots of a service"""
    remembered_ids: Whole = 20_000
    """fact ids a service knows again when they are told twice"""
    work_timeout_real_s: Seconds = 120.0
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_format: Literal["json", "console"] = "json"
    web_host: str = "127.0.0.1"
    web_port: Annotated[int, Meta(ge=0, le=65535)] = 0
    """health and metrics (and admission's API); 0: any free port"""
    web_max_body_bytes: Whole = 1_048_576

    # ---- clock
    speed: Annotated[float, Meta(gt=0, le=100_000)] = 1.0
    """cluster seconds per second"""
    clock_origin: float = 0.0
    """Unix time of cluster second 0"""
    seed: Annotated[int, Meta(ge=0)] = 1
    """root of all randomness: the emulated world, the workload"""

    # ---- cluster
    cluster: str = ""
    """path or name of a cluster file; empty: nodes are known once their agents announce them"""
    node: str = ""
    """agent: the node it stands for; empty: the first of the cluster file that no agent has claimed"""

    # ---- admission
    api_url: str = "http://127.0.0.1:8080"
    """where the command line finds admission"""
    api_token: str = ""
    """bearer token that the API asks for; empty: none"""
    jobs_open_max: Whole = 10_000
    """unfinished jobs"""
    gpus_per_job_max: Whole = 4_096

    # ---- rounds
    round_s: Seconds = 360.0
    policy: str = "hops"
    profile_iterations: Annotated[int, Meta(ge=10, le=50)] = 30
    profile_timeout_s: Seconds = 600.0
    profile_attempts: Annotated[int, Meta(ge=1, le=20)] = 3
    """per type, before the type is out for the job"""
    gradient_bucket_bytes: Annotated[float, Meta(ge=0, le=1e12)] = 25e6
    """gradients leave in buckets of this size, as PyTorch's DistributedDataParallel has it"""
    opening_grace_real_s: Seconds = 2.0
    """how long the planner waits for the profiler to open a round"""

    # ---- estimator
    store: str = ":memory:"
    """path of the DuckDB file"""
    evidence_observations: Whole = 3
    evidence_s: Seconds = 60.0
    """a layer answers with at least so many observations, or so many seconds of running"""
    evidence_half_life_s: Seconds = 7 * 86_400.0
    """after so long an observation counts half"""
    calibrate: bool = False
    """have the paths of gradients measured on the first idle nodes of every GPU type that joins"""

    # ---- planner
    queue_refresh_s: Seconds = 30.0
    fragment_settle_s: Seconds = 1.0
    """how long the planner lets facts gather before a fragment plan; a lone arrival is planned at once"""
    priority_rule: Literal["lr", "ftf", "las", "sjf", "srtf", "fifo"] = "lr"
    sensitivity_threshold: Annotated[float, Meta(gt=0)] = 1.4
    """σ"""
    priority_power: Annotated[float, Meta(ge=0, le=10)] = 1.0
    """λ"""
    window_factor: Annotated[float, Meta(gt=0, le=100)] = 1.0
    """service window, in multiples of the GPUs the plan may use"""
    moving_cost_s: Annotated[float, Meta(ge=0, le=1e6)] = 0.0
    """what a running job loses when a first plan moves it; 0: moving is free, as the paper has it"""
    gap: Share = 0.01
    solve_deadline_real_s: Seconds = 10.0
    solve_node_limit: Whole = 200
    """branch-and-bound nodes: the limit in simulation, where seconds must not decide"""
    solver: Literal["hopyard", "highs", "scip", "cp-sat"] = "hopyard"
    """what solves the program: our own, or a solver that is given the full model"""
    dump_problems: str = ""
    """save the problem of every plan in this folder, for `hopyard solve`; empty: do not"""
    estimate_timeout_real_s: Seconds = 2.0
    lease_real_s: Seconds = 3.0
    """how long a planner leads without renewing"""
    raqlr_window_s: Seconds = 4 * 3600.0

    # ---- planner: policies without elasticity
    rigid_demand: Literal["median", "min", "max"] = "median"
    """which of a job's GPU counts it gets from a policy that cannot choose; of two medians the smaller"""
    yarn_capacities: Annotated[str, Meta(pattern=r"^([^\s=]+=\d+(\.\d+)?( +|$))*$")] = ""
    """relative capacities of the projects' queues, as `vision=3 speech=1`; those not named have 1"""

    # ---- planner: tiresias
    tiresias_thresholds: Annotated[str, Meta(pattern=r"^\d+(\.\d+)?( +\d+(\.\d+)?)*$")] = "3250 7200"
    """where each queue but the last ends, ascending: GPU·s of attained service"""
    tiresias_service: Literal["gpu-time", "time"] = "gpu-time"
    """what service is; with `time`, the thresholds are seconds"""
    tiresias_order: Literal["fifo", "gittins"] = "fifo"
    """within a queue: by start, or by the Gittins index of the attained service"""
    tiresias_promote_knob: Annotated[float, Meta(ge=0, le=1e9)] = 0.0
    """a job that has waited so many times as long as it ran goes back to the first queue; 0: never"""
    tiresias_faithful: bool = False
    """with the quirks of the authors' simulator"""

    # ---- planner: sia
    sia_power: Annotated[float, Meta(ge=-10, le=10)] = -0.5
    """p: below 0 the smaller, the fairer; above 0 the larger, the more for jobs that gain most"""
    sia_penalty: Annotated[float, Meta(ge=0, le=1e6)] = 1.1
    """|λ|: what a job without GPUs costs"""
    sia_scale_up: Annotated[float, Meta(ge=1, le=1e6)] = 2.0
    """a job gets at most so many times the GPUs it has run with, or its next larger GPU count"""

    # ---- planner: gavel
    gavel_reset_s: Annotated[float, Meta(ge=0, le=1e8)] = 1920.0
    """shares of time hold for at least so long, whoever comes or goes"""
    gavel_queue: Literal["all", "window", "weights"] = "all"
    """`window`: only the service window by `priority_rule` takes part; `weights`: the rule weighs all"""
    gavel_faithful: bool = False
    """with the quirks of the authors' scheduler"""

    # ---- placer
    start_timeout_real_s: Seconds = 60.0
    """a placement whose workers are not up by then is taken back"""

    # ---- agents and monitor
    heartbeat_real_s: Seconds = 1.0
    node_lease_real_s: Seconds = 6.0
    """a node whose heartbeats stay out for so long is lost"""
    observe_every_s: Seconds = 120.0
    """running time that one throughput observation covers"""
    world: str = "emulated"
    """agent: entry point of `hopyard.worlds`, or `module:attribute`"""
    startup_s: Annotated[float, Meta(ge=0)] = 10.0
    """start of processes and restore of a checkpoint (Hadar: 10 s)"""
    checkpoint_s: Annotated[float, Meta(ge=0)] = 5.0
    """writing a checkpoint when a job is stopped"""
