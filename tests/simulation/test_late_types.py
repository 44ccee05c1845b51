"""A job that is submitted while the nodes of a type are drained runs there once they are restored."""

import pytest

from loadgen.fault_injection import Stack
from loadgen.simulation import simulate
from schemas.cluster import ClusterFile, GpuTypeFile, NodeGroup
from schemas.events import JobProfiled, JobTypeEstimated, JobTypeProfiled
from schemas.ids import GpuType, NodeId
from schemas.jobs import JobFile, Workload
from schemas.scenarios import ArrivingJob, ListedWorkload, ScenarioFile
from services.admission.questions import SetDrain
from shared.domain.audit import audit

TYPES = {
    GpuType("v100"): GpuTypeFile(link_bandwidth=4e10, network_bandwidth=5e9),
    GpuType("k80"): GpuTypeFile(link_bandwidth=4e9, network_bandwidth=1e9),
}
JOB = JobFile(
    name="long",
    workload=Workload(model="resnet18", dataset="imagenet", batch_size=64, optimizer="sgd"),
    gpus=[1, 2],
    samples=4e6,
)
SCENARIO = ScenarioFile(
    name="drained",
    cluster=ClusterFile(
        name="drained",
        gpu_types=TYPES,
        nodes=[NodeGroup(prefix=name, count=1, gpus=4, gpu_type=name) for name in TYPES],
    ),
    workload=ListedWorkload(jobs=[ArrivingJob(at_s=120.0, job=JOB)]),
)


async def drains_the_faster(stack: Stack) -> None:
    """From before the job comes until after it was profiled."""
    await stack.sleep(60.0)
    await stack.put_to("admission", SetDrain(node_id=NodeId("v100-0"), draining=True))
    await stack.sleep(600.0)
    await stack.put_to("admission", SetDrain(node_id=NodeId("v100-0"), draining=False))


@pytest.mark.parametrize("policy", ["hops", "sia", "gavel"])
def test_a_job_moves_to_the_faster_type_once_it_is_there(policy: str) -> None:
    ran = simulate(SCENARIO, policy=policy, disturb=[drains_the_faster])
    assert audit(ran.events) == []
    [first] = [fact for fact in ran.events if isinstance(fact, JobProfiled)]
    assert list(first.modules) == ["k80"]
    later = [fact for fact in ran.events if isinstance(fact, JobTypeProfiled | JobTypeEstimated)]
    assert [(type(fact), fact.gpu_type) for fact in later] == [
        (JobTypeProfiled, "v100"),
        (JobTypeEstimated, "v100"),
    ]
    [job] = ran.result.job_results
    assert job.nodes == ("k80-0", "v100-0")
    undisturbed = simulate(SCENARIO, policy=policy).result.job_results[0]
    assert job.jct_s is not None
    assert undisturbed.jct_s is not None
    assert job.jct_s < undisturbed.jct_s + 1200.0
