"""All settings of all services, with units, defaults and bounds. Also the format of the settings file.

`HOPYARD_<NAME>` in the environment overrides the file. `hopyard config show` prints the settings in force.
Times are cluster seconds; those whose names end in `_real_s` are seconds of the wall clock.
"""

from collections.abc import Mapping
from typing import Annotated, Literal

from msgspec import Meta

from schemas.base import File
from schemas.cluster import Address
from schemas.instances import INSTANCES_MAX

Seconds = Annotated[float, Meta(ge=1e-3, le=1e8)]
"""a timer counts as due 0.1 ms early, so that an interval has to be longer than that"""
Whole = Annotated[int, Meta(ge=1, le=1_000_000_000)]
Share = Annotated[float, Meta(ge=0, le=1)]
SEED_MOST = 10**18
"""the largest seed: those of further runs count on from it, and stay below 2^63"""
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
"""setting names of earlier versions, which files and variables may still use → present names"""


class Settings(File, frozen=True, kw_only=True):
    # ---- bus and process
    nats_url: str = "nats://127.0.0.1:4222"
    """address of NATS; those of several servers are separated by commas"""
    nats_token: str = ""
    """token with which services connect to NATS; empty: none"""
    nats_user: str = ""
    """user as which services connect to NATS; empty: none"""
    nats_password: str = ""
    """that user's password"""
    nats_credentials: str = ""
    """path of a file with an account's `user` and `password`, as `hopyard node admit` writes it; in place of
    `nats_token` and `nats_user`"""
    nats_authority: str = ""
    """path of the authority's certificate by which that of NATS is checked; empty: the system's
    authorities"""
    nats_server_name: str = ""
    """name in the certificate of NATS, if it is not the one in `nats_url`"""
    nats_certificate: str = ""
    """path of the certificate of the NATS server that `hopyard up` runs, which then accepts only TLS; empty:
    no TLS"""
    nats_key: str = ""
    """path of the key of `nats_certificate`"""
    nats_replicas: Annotated[int, Meta(ge=1, le=5)] = 1
    """copies of every stream and bucket; 3 in production"""
    ask_timeout_real_s: Seconds = 5.0
    """time limit of a question to another service"""
    publish_timeout_real_s: Seconds = 5.0
    """time after which a fact that NATS has not confirmed is published again"""
    publish_in_flight: Whole = 256
    """largest number of facts that wait for confirmation by NATS at once"""
    allow_lost_facts: bool = False
    """run even if the stream of facts has lost some, as by a damaged disk; false: services then end and say
    which"""
    stream_max_bytes: Whole = 1_000_000_000
    """size above which the oldest facts are trimmed from their stream, unless a service still needs them or
    they are not archived yet"""
    archive: str = ""
    """path of the folder in which the monitor archives facts and observations before they are trimmed; empty:
    they are not archived"""
    archive_file_messages: Annotated[int, Meta(ge=1, le=100_000)] = 10_000
    """messages in one file of the archive"""
    archive_every_real_s: Seconds = 5.0
    """interval at which the monitor archives and trims"""
    sample_max_age_real_s: Seconds = 3600.0
    """samples older than this are dropped"""
    sample_max_bytes: Whole = 268_435_456
    """size of the stream of samples; beyond it the oldest are dropped"""
    listener_queue: Whole = 10_000
    """samples that may wait for a slow listener before the oldest are dropped"""
    duplicate_window_real_s: Seconds = 600.0
    """time within which NATS drops a fact that is published again"""
    snapshot_every: Whole = 5_000
    """facts between two snapshots of a service"""
    remembered_ids: Whole = 20_000
    """ids of facts that a service remembers, to drop facts that come twice"""
    work_timeout_real_s: Seconds = 120.0
    """time after which work outside a core counts as failed"""
    instance: Annotated[int, Meta(ge=1, le=INSTANCES_MAX)] = 1
    """number of this instance of its service; one of several leads, and the others stand ready"""
    instances: Annotated[int, Meta(ge=0, le=INSTANCES_MAX)] = 0
    """number of instances that this service has in the stack; reports of instances with higher numbers are
    outdated; 0: not known"""
    lease_real_s: Seconds = 3.0
    """time after which a leader that does not renew its lease no longer leads"""
    stuck_after_real_s: Seconds = 60.0
    """time after which a leader that makes no progress with its work gives up its lease and ends"""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """lowest level of messages that are logged"""
    log_format: Literal["json", "console"] = "json"
    """one JSON document a line, or text for people, as `hopyard agent` logs on a terminal"""
    web_host: str = "127.0.0.1"
    """address on which a service listens for HTTP"""
    web_port: Annotated[int, Meta(ge=0, le=65535)] = 0
    """port of a service's health and metrics, and of admission's API; 0: any free port"""
    web_max_body_bytes: Whole = 1_048_576
    """largest body of a request that is accepted"""
    web_certificate: str = ""
    """path of the certificate for HTTPS, followed by intermediate certificates; empty: plain HTTP"""
    web_key: str = ""
    """path of the key of `web_certificate`"""
    behind_proxy: bool = False
    """admission: true if other machines reach it only through a proxy that does TLS"""

    # ---- clock
    speed: Annotated[float, Meta(gt=0, le=100_000)] = 1.0
    """cluster seconds per second"""
    clock_origin: float = 0.0
    """Unix time of cluster second 0"""
    seed: Annotated[int, Meta(ge=0, le=SEED_MOST)] = 1
    """seed of all random numbers: of the emulated world and of workloads"""

    # ---- cluster
    cluster: str = ""
    """path or name of a cluster file; empty: nodes become known when their agents announce them"""
    cluster_name: str = ""
    """name of the cluster in answers of the API; `hopyard up` takes that of the cluster file"""
    node: str = ""
    """agent: the node that it stands for; empty: the first of the cluster file that no agent has claimed"""

    node_until: Annotated[float, Meta(ge=0)] = 0.0
    """agent: Unix time at which its node goes away, such as the end of an allocation; 0: it stays"""
    leave_before_end_s: Seconds = 120.0
    """time before the end of its node at which an agent leaves: its jobs save, and go on elsewhere"""

    # ---- admission
    api_url: str = ""
    """URL of the API for commands; empty: that of the stack of this folder, or of this user"""
    api_token: str = ""
    """token that commands send to the API; empty: none. An admission that has this setting accepts the token
    as an operator's; `hopyard up` does not pass it to its admission"""
    api_token_file: str = ""
    """path of a file with the token for commands, in place of `api_token`"""
    api_tokens: str = ""
    """path of the file of tokens that the API accepts, as `hopyard token create` writes it; empty: none"""
    jobs_open_max: Whole = 10_000
    """largest number of jobs that have not ended; further submissions are refused"""
    gpus_per_job_max: Whole = 4_096
    """largest number of GPUs that a job may ask for"""

    # ---- rounds
    round_s: Annotated[float, Meta(ge=1, le=1e8)] = 360.0
    """length of a round; at its start all jobs are planned again"""
    policy: str = "hops"
    """policy with its options, as `hops+moving_cost_s=15`; `hopyard policy show NAME` lists the options"""
    policies_allowed: str = ""
    """policies of the form `module:attribute` that may be chosen besides installed ones, separated by spaces;
    `*`: any"""
    policy_load_real_s: Seconds = 10.0
    """time within which a policy must be imported and built, or it cannot be chosen"""
    policy_wants_real_s: Seconds = 5.0
    """time within which a policy must name the configurations that it wants, or it is ended"""
    policy_memory_max_bytes: Annotated[int, Meta(ge=2**30)] = 8 * 2**30
    """address space of the process in which policies and the solver run"""
    profile_at_once: bool = True
    """a new workload is measured as soon as GPUs are idle; false: at the start of the next round, as in the
    Hops paper"""
    profile_known: bool = False
    """measure every job, also one whose workload was measured before, as in the Hops paper"""
    profile_iterations: Annotated[int, Meta(ge=10, le=50)] = 30
    """iterations of a short measurement"""
    profile_timeout_s: Seconds = 600.0
    """time after which a measurement is stopped and counts as failed"""
    profile_attempts: Annotated[int, Meta(ge=1, le=20)] = 3
    """failed measurements on a GPU type after which the job does not use that type"""
    gradient_bucket_bytes: Annotated[float, Meta(ge=0, le=1e12)] = 25e6
    """size of the buckets in which gradients are exchanged, as in PyTorch's DistributedDataParallel"""
    equations_as_printed: Annotated[
        str,
        Meta(
            pattern=r"^((update|bucket|bandwidth|waiting|evidence|residuals|all)( +|$(?!\n)))*$(?!\n)",
            description="words between spaces, of update, bucket, bandwidth, waiting, evidence, "
            "residuals, all",
        ),
    ] = ""
    """equations of the Hops paper that predictions follow to the letter: `update`, `bucket`, `bandwidth`,
    `waiting`, `evidence`, `residuals`, or `all`"""
    round_opening_timeout_real_s: Seconds = 2.0
    """how long the planner waits for the profiler to open a round"""

    # ---- estimator
    store: str = ":memory:"
    """path of the estimator's DuckDB file; `:memory:`: no file, so what it has learnt is lost when it ends"""
    store_flush_real_s: Seconds = 2.0
    """time for which observations are gathered before they are written"""
    evidence_observations: Whole = 3
    """number of observations from which on a layer answers; see `evidence_s`"""
    evidence_s: Seconds = 60.0
    """running time from which on a layer answers: its observations together cover it; `evidence_observations`
    of them are enough too"""
    evidence_half_life_s: Seconds = 7 * 86_400.0
    """age at which an observation counts half"""
    calibrate: bool = False
    """measure bandwidths on the first idle nodes of every GPU type that joins"""

    # ---- planner
    restart_prior_s: Seconds = 15.0
    """assumed running time that a restart costs, until restarts of the workload on the GPU type were
    measured"""
    minimum_run_restarts: Annotated[float, Meta(ge=0, le=1000)] = 4.0
    """a started job is not moved until it has run for this multiple of the time that its restart takes; 0: it
    may be moved at once"""
    restart_share_max: Annotated[float, Meta(gt=0, le=1)] = 0.03
    """share of GPU time that plans may spend on restarting running jobs; 1: no limit"""
    fragment_settle_s: Seconds = 1.0
    """time for which facts are gathered before the fragment plan that they trigger; a job that arrives while
    no other waits to be measured or estimated is planned at once"""
    gap: Share = 0.01
    """gap at which a solve stops: a plan proven to be so near to the best is good enough"""
    solve_deadline_real_s: Seconds = 10.0
    """time after which a solve ends with the best plan that it has found"""
    solve_node_limit: Whole = 200
    """branch-and-bound nodes after which a solve ends if `solve_limit` is `work`"""
    solve_limit: Literal["seconds", "work"] = "seconds"
    """what limits a solve: time on this machine, or the amount of work, which is the same on every machine"""
    solver: Literal["hopyard", "highs", "scip", "cp-sat"] = "hopyard"
    """solver of the integer program: hopyard's own, or one that gets the full model"""
    dump_problems: str = ""
    """save the problem of every plan in this folder, for `hopyard solve`; empty: do not"""
    estimate_timeout_real_s: Seconds = 2.0
    """time after which the planner uses the estimates of earlier plans instead of waiting for new ones"""
    raqlr_window_s: Seconds = 4 * 3600.0
    """time for which ended jobs count in the mean latency ratio (Hops eq. 7)"""

    # ---- placer
    start_timeout_real_s: Seconds = 60.0
    """time after which a placement whose workers are not all up is withdrawn"""
    interruptions_max: Whole = 3
    """interruptions without a new checkpoint in between after which a job fails"""

    # ---- agents and monitor
    heartbeat_real_s: Seconds = 1.0
    """interval of a node's heartbeats"""
    node_lease_real_s: Seconds = 6.0
    """time without a heartbeat after which a node is lost"""
    turn_limit_s: Seconds = 300.0
    """time after which a process is ended that keeps its turn on a GPU, where jobs take turns"""
    observe_every_s: Seconds = 120.0
    """running time that a placement's first throughput observation covers; each later one covers as much as
    all before it"""
    runner: str = "emulated"
    """agent: what runs jobs on its node; an entry point of `hopyard.runners`, or `module:attribute`"""
    jobs_folder: str = ""
    """agent that runs processes: folder for the jobs' checkpoints, which all nodes share"""
    run_folder: str = ""
    """agent that runs processes: folder for its socket and its workers' files, with a folder in it for each
    node; empty: `/run/hopyard`, or a folder of the account if the agent is not root"""
    job_account: Literal["user", "agent"] = "user"
    """agent that runs processes and is root: `user` runs each job as the account of its user, and refuses it
    if the node has no such account; `agent` runs all jobs as root"""
    network_interface: str = ""
    """agent that runs processes: network interface over which ranks exchange data; empty: gloo or NCCL choose
    one"""
    merge: Literal["weighted", "plain"] = "weighted"
    """agent that runs processes: how the weights of a job's copies are averaged: in proportion to the samples
    that each did, or equally"""
    template: bool = True
    """agent that runs processes: fork ranks from a process that has imported torch, so that they start in a
    fraction of a second instead of seconds; false: start each as a new process"""
    nodes: str = "cluster-file"
    """agent: what finds the node that it stands for; an entry point of `hopyard.nodes`, or
    `module:attribute`"""
    gpus: Annotated[
        str,
        Meta(
            pattern=r"^([a-z0-9][a-z0-9-]{0,62}:([1-9]|[1-5][0-9]|6[0-4]))?$(?!\n)",
            description="TYPE:COUNT as v100:8, or cpu:4 for slots of the CPU; up to 64",
        ),
    ] = ""
    """agent of `this-machine`: type and number of its node's GPUs, as `v100:8`, or `cpu:4` for CPU slots;
    empty: the GPUs that the driver lists"""
    node_file: str = ""
    """agent of `this-machine`: path of its node file, as `hopyard node discover` writes it"""
    address: Address = ""
    """agent of `this-machine`: host or IP at which other nodes reach it; empty: the one from which it reaches
    NATS"""
    world: str = "emulated"
    """world of the emulated runner: an entry point of `hopyard.worlds`, or `module:attribute`"""
    learnt_from: str = ""
    """world `learnt`: path of the store of another stack, as `hopyard store export` writes it"""
    catalogue: str = ""
    """path of a file with models, data sets, GPUs and servers of the emulated world, besides those that ship
    with hopyard; an entry with a shipped name replaces the shipped one"""
    output_folder: str = ""
    """agent: folder in which the output of jobs is kept, with a folder for each node; empty: it is not
    kept"""
    output_file_bytes: Whole = 1_000_000
    """agent: size of an output file at which the next one is begun"""
    output_files: Annotated[int, Meta(ge=1, le=1_000)] = 4
    """agent: number of newest output files that are kept of a process"""
    output_node_bytes: Whole = 1_000_000_000
    """agent: size of all output on a node, roughly; beyond it the jobs that have printed nothing for longest
    are dropped"""
    startup_s: Annotated[float, Meta(ge=0)] = 10.0
    """emulated runner: time to start processes and restore a checkpoint (Hadar: 10 s)"""
    checkpoint_s: Annotated[float, Meta(ge=0)] = 5.0
    """emulated runner: time to write a checkpoint when a job is stopped"""
    switching: Switching = "hare"
    """emulated runner: how a GPU switches to a relaxed job that stands by, as in table III of Hare"""
    world_structure: WorldStructure = "plain"
    """world `emulated`: effects that eq. 1 to 5 of Hops do not describe (docs/scenarios.md)"""
    residents_max: Annotated[int, Meta(ge=1, le=1_000)] = 16
    """emulated runner: relaxed jobs whose processes may be on one GPU, running or standing by"""
