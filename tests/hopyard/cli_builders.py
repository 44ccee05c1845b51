"""Views and facts that default everything."""

from msgspec.structs import replace

from schemas.cluster import ClusterFile, GpuTypeFile, Node, NodeGroup
from schemas.ids import GpuType, JobId, NodeId, PlanId
from schemas.jobs import JobSpec, Workload
from schemas.plans import PlanKind, Stage
from schemas.results import PlanFigures, RunResult
from schemas.views import JobView, NodeView, PlanView, StatusView, Submitted

JOB_YAML = """\
name: resnet
workload: {model: resnet50, dataset: imagenet, batch_size: 128}
gpus: [1, 2, 4]
samples: 100000
"""


def job_view(job_id: str = "job-1", **fields: object) -> JobView:
    workload = Workload(model="resnet50", dataset="imagenet", batch_size=128)
    spec = JobSpec(name="resnet", workload=workload, demand=(1, 2, 4), samples=1000.0)
    view = JobView(job_id=JobId(job_id), state="queued", spec=spec, submitted_at=0.0)
    return replace(view, **fields)


def submitted(*, created: bool = True) -> Submitted:
    return Submitted(job_id=JobId("job-1"), created=created)


def node_view(node_id: str = "titan-0", **fields: object) -> NodeView:
    node = Node(
        node_id=NodeId(node_id),
        gpu_type=GpuType("titan"),
        gpus=8,
        server="sugon",
        link_bandwidth=1e10,
        network_bandwidth=1e9,
    )
    view = NodeView(
        node=node,
        state="alive",
        gpus_free=6,
        jobs={JobId("job-1"): 2},
        heartbeat_age_s=0.5,
    )
    return replace(view, **fields)


def plan_view(**fields: object) -> PlanView:
    view = PlanView(
        plan_id=PlanId("plan-3"),
        at=720.0,
        kind=PlanKind.FIRST,
        round=2,
        policy="hops",
        stage=Stage.OPTIMAL,
        placements=4,
        left_out=2,
        idle_gpus=0,
        objective=9.9,
        bound=10.0,
        gap=0.01,
        decision_s=30.0,
        solve_s=0.034,
        configurations=120,
        notes=(),
    )
    return replace(view, **fields)


def status_view(**fields: object) -> StatusView:
    view = StatusView(
        at=725.0,
        speed=60.0,
        jobs={"running": 4, "queued": 2, "completed": 1},
        gpus={GpuType("titan"): (12, 16)},
        nodes={"alive": 2},
        policy="hops",
        plan=plan_view(),
        raqlr=None,
        metrics={},
    )
    return replace(view, **fields)


def run_result(**fields: object) -> RunResult:
    view = RunResult(
        scenario="hops-64",
        policy="hops",
        seed=1,
        speed=None,
        round_s=360.0,
        jobs={"submitted": 25, "completed": 25},
        metrics={"makespan_s": 34236.0, "lr_max": 0.37, "ftf_max": None},
        plans=PlanFigures(
            plans=90, decision_s_p50=0.1, decision_s_p99=1.2, gap_max=0.01, stages={"optimal": 90}
        ),
        event_log_hash="0123456789abcdef0123456789abcdef",
        events=4321,
        wall_s=12.0,
        settings={},
    )
    return replace(view, **fields)


def cluster(nodes: int = 2) -> ClusterFile:
    group = NodeGroup(prefix="titan", count=nodes, gpus=8, gpu_type=GpuType("titan"))
    paths = GpuTypeFile(link_bandwidth=1e10, network_bandwidth=1e9)
    return ClusterFile(name="small", gpu_types={GpuType("titan"): paths}, nodes=[group])
