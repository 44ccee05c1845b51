"""Every setting of every service: name, unit, default, bound. Also the format of the settings file.

`HOPYARD_<NAME>` in the environment wins over the file. `hopyard config show` prints what is in force.
Times are cluster seconds unless the name says `_real_s`: those are about processes, not jobs.
"""

from collections.abc import Mapping
from typing import Annotated, Literal

from msgspec import Meta

from schemas.base import File
from schemas.cluster import Address
from schemas.instances import INSTANCES_MAX

Seconds = Annotated[float, Meta(gt=0, le=1e8)]
Whole = Annotated[int, Meta(ge=1, le=1_000_000_000)]
Share = Annotated[float, Meta(ge=0, le=1)]
Switching = Literal["default", "pipeswitch", "hare"]
WorldStructure = Literal[
    "plain",
    "bucket-1mb",
    "bucket-10mb",
    "bucket-50mb",
    "bucket-100mb",
    "buckets-by-job",
    "messages",
    "head-0.3",
    "head-0.5",
    "protocols",
    "slowed-backward",
    "contention",
    "clocks",
    "inputs",
    "everyday",
    "harsh",
]
"""as in `loadgen/world/structures.yaml`"""


FORMER_NAMES: Mapping[str, str] = {
    "facts_may_lack": "allow_lost_facts",
    "idle_limit_real_s": "stuck_after_real_s",
    "leave_s": "leave_before_end_s",
    "opening_grace_real_s": "round_opening_timeout_real_s",
}
"""names of earlier versions, which files and variables may still use, with those of now"""


class Settings(File, frozen=True, kw_only=True):
    # ---- bus and process
    nats_url: str = "nats://127.0.0.1:4222"
    """where NATS is; several servers between commas"""
    nats_token: str = ""
    """token that NATS asks for; empty: none"""
    nats_user: str = ""
    """user by which NATS knows the services; empty: none"""
    nats_password: str = ""
    """that user's password"""
    nats_credentials: str = ""
    """path of a file with an account's `user` and `password`, as `hopyard node admit` writes it; in place of
    `nats_token` and `nats_user`"""
    nats_authority: str = ""
    """path of the certificate of the authority that NATS's own is checked by; empty: those of the system"""
    nats_server_name: str = ""
    """name in the certificate of NATS, where `nats_url` has another"""
    nats_certificate: str = ""
    """path of the certificate of the NATS server that `hopyard up` runs: it speaks TLS, and nothing else"""
    nats_key: str = ""
    """path of the key of `nats_certificate`"""
    nats_replicas: Annotated[int, Meta(ge=1, le=5)] = 1
    """copies of every stream and bucket; 3 in production"""
    ask_timeout_real_s: Seconds = 5.0
    """how long a question to another service may take"""
    publish_timeout_real_s: Seconds = 5.0
    """how long NATS may take to confirm a fact before it is published again"""
    publish_in_flight: Whole = 256
    """facts on their way to the server at once"""
    allow_lost_facts: bool = False
    """go on where the stream of facts has lost some to a damaged disk; false: services end, and say which"""
    stream_max_bytes: Whole = 1_000_000_000
    """size that the stream of facts is kept to: beyond it the oldest are trimmed, unless a service needs them
    or they are not in the archive yet"""
    archive: str = ""
    """path of the folder in which the monitor archives facts and observations before they are trimmed; empty:
    what is trimmed is gone"""
    archive_file_messages: Annotated[int, Meta(ge=1, le=100_000)] = 10_000
    """in one file of the archive"""
    archive_every_real_s: Seconds = 5.0
    """how often the monitor looks for what is to be archived and trimmed"""
    sample_max_age_real_s: Seconds = 3600.0
    """samples older than this are dropped"""
    sample_max_bytes: Whole = 268_435_456
    """size of the stream of samples; beyond it the oldest are dropped"""
    listener_queue: Whole = 10_000
    """samples a slow listener may be behind before it loses the oldest"""
    duplicate_window_real_s: Seconds = 600.0
    """a fact that is published again within this time is dropped by the server"""
    snapshot_every: Whole = 5_000
    """facts between two snapshots of a service"""
    remembered_ids: Whole = 20_000
    """ids of facts that a service remembers, to drop what comes twice"""
    work_timeout_real_s: Seconds = 120.0
    """work outside a core that takes longer counts as failed"""
    instance: Annotated[int, Meta(ge=1, le=INSTANCES_MAX)] = 1
    """number of this instance of its service; of several one leads, and the others are ready to"""
    instances: Annotated[int, Meta(ge=0, le=INSTANCES_MAX)] = 0
    """how many instances of this service the stack has; reports of further instances are from when it had
    more; 0: not known"""
    lease_real_s: Seconds = 3.0
    """how long an instance leads without renewing"""
    stuck_after_real_s: Seconds = 60.0
    """a leader that leaves something undone for so long gives its lease up and ends"""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """what is logged: this and what is graver"""
    log_format: Literal["json", "console"] = "json"
    """one JSON document a line, or text for people"""
    web_host: str = "127.0.0.1"
    """address on which a service listens for HTTP"""
    web_port: Annotated[int, Meta(ge=0, le=65535)] = 0
    """health and metrics (and admission's API); 0: any free port"""
    web_max_body_bytes: Whole = 1_048_576
    """a request with a larger body is refused"""
    web_certificate: str = ""
    """path of a certificate, with those between it and the authority: HTTP speaks TLS; empty: it does not"""
    web_key: str = ""
    """path of the key of `web_certificate`"""
    behind_proxy: bool = False
    """admission: other machines reach it only by a proxy in front of it that speaks TLS"""

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
    cluster_name: str = ""
    """what every answer of the API calls the cluster; `hopyard up` takes the name in the cluster file"""
    node: str = ""
    """agent: the node it stands for; empty: the first of the cluster file that no agent has claimed"""

    node_until: Annotated[float, Meta(ge=0)] = 0.0
    """agent: Unix time at which its node goes away, as the end of an allocation; 0: it stays"""
    leave_before_end_s: Seconds = 120.0
    """how long before its node goes away an agent leaves: what runs there saves, to go on elsewhere"""

    # ---- admission
    api_url: str = ""
    """where the command line finds admission; empty: at the stack of its folder or user"""
    api_token: str = ""
    """token by which commands come to the API; an admission that has it takes it as an operator's, one of
    `hopyard up` is never handed it; empty: none"""
    api_token_file: str = ""
    """path of a file that holds the token of commands, in place of `api_token`"""
    api_tokens: str = ""
    """path of the file of tokens that the API takes, as `hopyard token create` writes it; empty: none"""
    jobs_open_max: Whole = 10_000
    """unfinished jobs"""
    gpus_per_job_max: Whole = 4_096
    """a job that asks for more is refused"""

    # ---- rounds
    round_s: Seconds = 360.0
    """length of a round, after which policies plan anew"""
    policy: str = "hops"
    """with its options, as `hops+moving_cost_s=15`; `hopyard policy show NAME` prints them"""
    policies_allowed: str = ""
    """names as `module:attribute` that can be chosen besides installed policies, between spaces; `*`: any"""
    policy_load_real_s: Seconds = 10.0
    """a policy that takes longer to be imported and built is unfit"""
    policy_wants_real_s: Seconds = 5.0
    """a policy that takes longer to name its configurations is ended"""
    policy_memory_max_bytes: Annotated[int, Meta(ge=2**30)] = 8 * 2**30
    """address space of the process in which policies and the solver run"""
    profile_at_once: bool = True
    """a new workload is measured as soon as GPUs are idle; false: at the next boundary of a round, as in the
    Hops paper"""
    profile_known: bool = False
    """every job is measured, also one of a workload that was measured before, as in the Hops paper"""
    profile_iterations: Annotated[int, Meta(ge=10, le=50)] = 30
    """iterations of a short measurement"""
    profile_timeout_s: Seconds = 600.0
    """a measurement that takes longer is taken back"""
    profile_attempts: Annotated[int, Meta(ge=1, le=20)] = 3
    """per type, before the type is out for the job"""
    gradient_bucket_bytes: Annotated[float, Meta(ge=0, le=1e12)] = 25e6
    """gradients leave in buckets of this size, as PyTorch's DistributedDataParallel has it"""
    equations_as_printed: Annotated[
        str,
        Meta(
            pattern=r"^((update|bucket|bandwidth|waiting|evidence|residuals|all)( +|$(?!\n)))*$(?!\n)",
            description="words between spaces",
        ),
    ] = ""
    """equations of the Hops paper that predictions follow to the letter: `update`, `bucket`, `bandwidth`,
    `waiting`, `evidence`, `residuals`, or `all`"""
    round_opening_timeout_real_s: Seconds = 2.0
    """how long the planner waits for the profiler to open a round"""

    # ---- estimator
    store: str = ":memory:"
    """path of the DuckDB file; `:memory:`: kept nowhere"""
    store_flush_real_s: Seconds = 2.0
    """how long an observation waits for others before it is written"""
    evidence_observations: Whole = 3
    """see `evidence_s`"""
    evidence_s: Seconds = 60.0
    """a layer answers with at least so many observations, or so many seconds of running"""
    evidence_half_life_s: Seconds = 7 * 86_400.0
    """after so long an observation counts half"""
    calibrate: bool = False
    """have the paths of gradients measured on the first idle nodes of every GPU type that joins"""

    # ---- planner
    restart_prior_s: Seconds = 15.0
    """of running that a restart takes, until restarts of the workload on the GPU type were measured"""
    minimum_run_restarts: Annotated[float, Meta(ge=0, le=1000)] = 4.0
    """a job that started stays where it is until it has run for so many times what its restart takes; 0: it
    may be moved at once"""
    restart_share_max: Annotated[float, Meta(gt=0, le=1)] = 0.03
    """of GPU time that plans may spend on restarting running jobs; 1: as much as they like"""
    fragment_settle_s: Seconds = 1.0
    """how long facts may gather before the plan that they call for; a job that arrives while no other is on
    its way to the queue is planned at once"""
    gap: Share = 0.01
    """a plan proven to be this near to the best is good enough"""
    solve_deadline_real_s: Seconds = 10.0
    """a solve ends by then, with the best it has found"""
    solve_node_limit: Whole = 200
    """branch-and-bound nodes of a solve that is limited by work"""
    solve_limit: Literal["seconds", "work"] = "seconds"
    """what ends a solve: seconds of the machine, or work done, from which seconds are computed"""
    solver: Literal["hopyard", "highs", "scip", "cp-sat"] = "hopyard"
    """what solves the program: our own, or a solver that is given the full model"""
    dump_problems: str = ""
    """save the problem of every plan in this folder, for `hopyard solve`; empty: do not"""
    estimate_timeout_real_s: Seconds = 2.0
    """a planner that waits longer for estimates goes by those of earlier plans"""
    raqlr_window_s: Seconds = 4 * 3600.0
    """jobs that ended within this time count in the mean latency ratio (Hops eq. 7)"""

    # ---- placer
    start_timeout_real_s: Seconds = 60.0
    """a placement whose workers are not up by then is taken back"""
    interruptions_max: Whole = 3
    """a job fails that was interrupted so often without a new checkpoint in between"""

    # ---- agents and monitor
    heartbeat_real_s: Seconds = 1.0
    """time between two heartbeats of a node"""
    node_lease_real_s: Seconds = 6.0
    """a node whose heartbeats stay out for so long is lost"""
    turn_limit_s: Seconds = 300.0
    """how long a process may keep a GPU's turn, where jobs take turns; then it is ended"""
    observe_every_s: Seconds = 120.0
    """running time that a placement's first throughput observation covers; later ones cover as much as all
    before them"""
    runner: str = "emulated"
    """agent: what runs jobs on its node; an entry point of `hopyard.runners`, or `module:attribute`"""
    jobs_folder: str = ""
    """agent that runs processes: folder of the jobs' checkpoints, which all nodes share"""
    run_folder: str = ""
    """agent that runs processes: folder for its socket and what its workers leave, one in it for each node;
    empty: `/run/hopyard`, or for an account without rights one of its own"""
    job_account: Literal["user", "agent"] = "user"
    """agent that runs processes and is root: each job runs as the account of its user, and not at all where
    the node has none of that name; `agent`: all as the agent, so as root"""
    network_interface: str = ""
    """agent that runs processes: the interface by which ranks on several nodes meet; empty: they find one"""
    merge: Literal["weighted", "plain"] = "weighted"
    """agent that runs processes: how weights of a job's copies are averaged, by the samples that each did or
    all alike"""
    template: bool = True
    """agent that runs processes: fork ranks from a process that has imported torch, so that they start within
    a fraction of a second and not some seconds; false: start each by itself"""
    nodes: str = "cluster-file"
    """agent: what finds the node it stands for; an entry point of `hopyard.nodes`, or `module:attribute`"""
    gpus: Annotated[
        str,
        Meta(
            pattern=r"^([a-z0-9][a-z0-9-]{0,62}:([1-9]|[1-5][0-9]|6[0-4]))?$(?!\n)",
            description="TYPE:COUNT as v100:8, or cpu:4 for slots of the CPU; up to 64",
        ),
    ] = ""
    """agent of `this-machine`: what its node has, as `v100:8`, or `cpu:4` for slots of the CPU; empty: the
    GPUs that the driver names"""
    node_file: str = ""
    """agent of `this-machine`: path of the file of its node, as `hopyard node discover` writes it"""
    address: Address = ""
    """agent of `this-machine`: host or IP at which other nodes reach it; empty: the one from which it reaches
    NATS"""
    world: str = "emulated"
    """of the emulated runner: an entry point of `hopyard.worlds`, or `module:attribute`"""
    learnt_from: str = ""
    """of the world `learnt`: path of what another stack knows, as `hopyard store export` writes it"""
    catalogue: str = ""
    """path of a file with models, data sets, GPUs and servers of the emulated world, beside those that ship
    with the product; an entry of a known name replaces it"""
    output_folder: str = ""
    """agent: where what jobs print is kept, a folder a node; empty: nowhere"""
    output_file_bytes: Whole = 1_000_000
    """agent: size at which the file of a process is followed by another"""
    output_files: Annotated[int, Meta(ge=1, le=1_000)] = 4
    """agent: files of a process that are kept, the newest"""
    output_node_bytes: Whole = 1_000_000_000
    """agent: what jobs printed on a node takes no more than about so much; the longest silent goes first"""
    startup_s: Annotated[float, Meta(ge=0)] = 10.0
    """start of processes and restore of a checkpoint (Hadar: 10 s)"""
    checkpoint_s: Annotated[float, Meta(ge=0)] = 5.0
    """writing a checkpoint when a job is stopped"""
    switching: Switching = "hare"
    """of the emulated runner: how a GPU switches to a relaxed job that stands by, as in table III of Hare"""
    world_structure: WorldStructure = "plain"
    """of the world `emulated`: what it has that eq. 1 to 5 do not describe (docs/scenarios.md)"""
    residents_max: Annotated[int, Meta(ge=1, le=1_000)] = 16
    """processes of relaxed jobs that a GPU has at most, the one that runs and those that stand by"""
