"""The monitor's Prometheus metrics: jobs, nodes and GPUs, and the last plan."""

from collections.abc import Iterator

from schemas.plans import Stage
from schemas.views import PlanView
from services.monitor.answers import gpus, nodes_by_state
from services.monitor.cluster_now import ClusterNow, listed
from shared.domain.metrics import jobs_by_state, jobs_on_hold
from shared.domain.metrics.use import cluster_throughput_now
from shared.domain.states import JobState
from shared.runtime.service import Metric


def metrics(cluster: ClusterNow) -> list[Metric]:
    return [*_jobs(cluster), *_nodes(cluster), *_plans(cluster)]


def _jobs(cluster: ClusterNow) -> Iterator[Metric]:
    found = jobs_by_state(cluster.ledger)
    for state in JobState:
        number = float(found.get(state, 0))
        yield Metric(name="hopyard_jobs", help="Jobs by state.", value=number, labels={"state": state.value})
    yield Metric(
        name="hopyard_jobs_on_hold",
        help="Queued and preempted jobs that are on hold.",
        value=float(jobs_on_hold(cluster.ledger)),
    )
    yield Metric(
        name="hopyard_facts_void_total",
        help="Facts about jobs that the table of states did not allow.",
        value=float(cluster.ledger.void),
        counter=True,
    )
    if cluster.raqlr is not None:
        yield Metric(
            name="hopyard_latency_ratio_mean",
            help="Mean latency ratio of the jobs that ended lately.",
            value=cluster.raqlr,
        )


def _nodes(cluster: ClusterNow) -> Iterator[Metric]:
    for state, number in nodes_by_state(cluster.ledger).items():
        yield Metric(
            name="hopyard_nodes", help="Nodes by state.", value=float(number), labels={"state": state}
        )
    in_use = sum(1 for known in cluster.ledger.nodes.values() if known.alive and known.workers)
    yield Metric(name="hopyard_nodes_busy", help="Nodes with a GPU in use.", value=float(in_use))
    speeds = [(known, cluster.speeds().get(known.node.node_id)) for known in listed(cluster.ledger)]
    slow = sum(1 for known, speed in speeds if known.alive and speed is not None and speed.slow)
    yield Metric(
        name="hopyard_nodes_slow",
        help="Nodes on which jobs run slower than on others of their kind.",
        value=float(slow),
    )
    for known, speed in speeds:
        if known.alive and speed is not None:
            yield Metric(
                name="hopyard_node_speed_ratio",
                help="How fast jobs run on a node, compared with others of its kind; if enough is known.",
                value=speed.ratio,
                labels={"node": known.node.node_id, "type": known.node.gpu_type},
            )
    for gpu_type, (busy, there) in gpus(cluster.ledger).items():
        labels = {"type": gpu_type}
        yield Metric(name="hopyard_gpus_busy", help="GPUs in use.", value=float(busy), labels=labels)
        yield Metric(name="hopyard_gpus", help="GPUs of nodes alive.", value=float(there), labels=labels)
    yield Metric(
        name="hopyard_cluster_throughput",
        help="Samples/s of all running jobs as estimated, each in units of its single-GPU mean over types.",
        value=cluster_throughput_now(cluster.ledger),
    )


def _plans(cluster: ClusterNow) -> Iterator[Metric]:
    if not cluster.ledger.plans:
        return
    last = cluster.ledger.plans[-1].view
    for name, text, value in _plan_rows(last):
        yield Metric(name=f"hopyard_plan_{name}", help=text, value=value)
    for stage in Stage:
        yield Metric(
            name="hopyard_plan_stage",
            help="1 for the stage that made the last plan.",
            value=float(stage is last.stage),
            labels={"stage": stage.value},
        )


def _plan_rows(last: PlanView) -> tuple[tuple[str, str, float], ...]:
    return (
        ("gap_ratio", "Proven relative gap of the last plan.", last.gap),
        ("decision_seconds", "Cluster seconds the last plan took.", last.decision_s),
        ("solve_seconds", "Machine seconds the last plan's solver took.", last.solve_s),
        ("placements", "Jobs the last plan places.", float(last.placements)),
        ("left_out", "Jobs the last plan leaves out.", float(last.left_out)),
        ("idle_gpus", "GPUs the last plan leaves idle.", float(last.idle_gpus)),
        ("configurations", "Configurations the last plan chose from.", float(last.configurations)),
    )
