"""Builders for the estimator's tests: everything has a default."""

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from schemas.accuracy import Execution
from schemas.archive import workload_of
from schemas.base import Event
from schemas.cluster import Node
from schemas.events import JobProfiled, JobSubmitted, NodeJoined, StartOrdered
from schemas.ids import GpuType, JobId, NodeId, PlacementId
from schemas.jobs import JobSpec, Workload
from schemas.measurements import DataMode, TimeModules
from schemas.placement import Gang
from schemas.plans import Layer
from schemas.questions import EstimateQuestion
from schemas.samples import ThroughputObserved
from services.estimator.lookup.columns import Wanted
from tests.fact_builders import placement, plan

GIGA = 1e9


def workload(model: str = "resnet18", batch_size: int = 100) -> Workload:
    return Workload(model=model, dataset="imagenet", batch_size=batch_size)


def spec(model: str = "resnet18", *, samples: float = 6e6, demand: tuple[int, ...] = (1, 2, 3)) -> JobSpec:
    return JobSpec(name="job", workload=workload(model), demand=demand, samples=samples)


def node(node_id: str = "a0", gpu_type: str = "A", *, gpus: int = 8) -> Node:
    return Node(
        node_id=NodeId(node_id),
        gpu_type=GpuType(gpu_type),
        gpus=gpus,
        server="s",
        link_bandwidth=10 * GIGA,
        network_bandwidth=1 * GIGA,
    )


def mode(mean_s: float = 0.0, std_s: float = 0.0, probability: float = 1.0) -> DataMode:
    return DataMode(probability=probability, mean_s=mean_s, std_s=std_s)


def modules(
    *,
    data: Sequence[DataMode] = (mode(),),
    forward_s: float = 0.3,
    backward_s: float = 0.5,
    update_s: float = 0.2,
    parameters: float = 0.25 * GIGA,
    pattern: int = 1,
) -> TimeModules:
    """One second an iteration on one GPU; its gradients are 1 GB."""
    return TimeModules(
        data=tuple(data),
        forward_s=forward_s,
        backward_s=backward_s,
        update_s=update_s,
        parameters=parameters,
        pattern=pattern,
        iterations=30,
    )


def observed(
    node_id: str = "a0",
    gpu_type: str = "A",
    *,
    configuration: Mapping[str, int] | None = None,
    throughput: float = 50.0,
    seconds: float = 20.0,
    at: float = 100.0,
    model: str = "resnet18",
    place: str = "p1",
) -> ThroughputObserved:
    gpus = {NodeId(one): count for one, count in (configuration or {node_id: 1}).items()}
    return ThroughputObserved(
        at=at,
        fingerprint=workload(model).fingerprint,
        job_id=JobId("j1"),
        placement_id=PlacementId(place),
        node_id=NodeId(node_id),
        gpu_type=GpuType(gpu_type),
        gpus_on_node=gpus[NodeId(node_id)],
        gang=Gang.of(gpus),
        seconds=seconds,
        throughput=throughput,
    )


def execution(estimated: float = 9.0) -> Execution:
    return Execution(
        placement_id=PlacementId("p1"),
        job_id=JobId("j1"),
        fingerprint=workload().fingerprint,
        model="resnet18",
        gpu_type="A",
        gpus=1,
        nodes=1,
        layer=Layer.TYPE,
        estimated=estimated,
        measured=10.0,
        at=5.0,
        seconds=100.0,
        number=1,
        unstable=True,
    )


def wanted(*configurations: Mapping[str, int], nodes: Sequence[Node], model: str = "resnet18") -> Wanted:
    """Configurations of one job."""
    index = {one.node_id: place for place, one in enumerate(nodes)}
    pairs = [(index[NodeId(one)], gpus) for each in configurations for one, gpus in each.items()]
    return Wanted(
        fingerprints=(workload(model).fingerprint,),
        nodes=tuple(nodes),
        job=np.zeros(len(configurations), dtype=np.int64),
        start=np.cumsum([0, *(len(each) for each in configurations)]).astype(np.int64),
        node=np.array([place for place, _ in pairs], dtype=np.int64),
        gpus=np.array([gpus for _, gpus in pairs], dtype=np.int64),
    )


def question(
    *,
    jobs: tuple[str, ...] = ("j1",),
    nodes: tuple[str, ...] = ("a0",),
    job: Sequence[int] = (0,),
    start: Sequence[int] = (0, 1),
    node: Sequence[int] = (0,),
    gpus: Sequence[int] = (1,),
) -> EstimateQuestion:
    return EstimateQuestion(
        jobs=tuple(JobId(one) for one in jobs),
        nodes=tuple(NodeId(one) for one in nodes),
        job=_bytes(job),
        start=_bytes(start),
        node=_bytes(node),
        gpus=_bytes(gpus),
    )


def submitted(job: str = "j1", model: str = "resnet18") -> JobSubmitted:
    return JobSubmitted(at=1.0, job_id=JobId(job), spec=spec(model), key=job)


def profiled(job: str = "j1", model: str = "resnet18", gpu_types: Sequence[str] = ("A",)) -> JobProfiled:
    return JobProfiled(
        at=2.0,
        job_id=JobId(job),
        workload=workload(model),
        modules={GpuType(one): modules() for one in gpu_types},
        known=False,
    )


def joined(one: Node | None = None) -> NodeJoined:
    one = one or node()
    return NodeJoined(at=0.0, node_id=one.node_id, node=one, life="1")


def ran(*seen: ThroughputObserved, at: float = -1e4) -> list[Event]:
    """The plan and the orders by which gangs ran that were observed so; `at`: time of the orders."""
    gangs = {one.placement_id: one for one in seen}
    placements = [placement(one.job_id, place=name) for name, one in gangs.items()]
    return [plan(*placements, at=at), *(_order(one, at) for one in gangs.values())]


def _order(seen: ThroughputObserved, at: float) -> StartOrdered:
    found = workload_of(seen.fingerprint)
    return StartOrdered(
        at=at,
        job_id=seen.job_id,
        placement_id=seen.placement_id,
        node_id=seen.gang.nodes[0],
        spec=msgspec.structs.replace(spec(), workload=found),
        gang=seen.gang,
        nodes=tuple(node(one, seen.gpu_type) for one in seen.gang.nodes),
        samples_done=0.0,
        learning_rate=None,
    )


def _bytes(column: Sequence[int]) -> bytes:
    return np.array(column, dtype="<i4").tobytes()
