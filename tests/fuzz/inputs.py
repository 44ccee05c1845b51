"""One sample and one question of each kind, about what `tests/simulation/storms.py` simulates."""

from array import array

from schemas.calibration import Ring
from schemas.ids import GpuType, JobId, NodeId, PlacementId, PlanId
from schemas.placement import Gang
from schemas.questions import (
    REPLIES,
    Calibrate,
    CopyArchive,
    EstimateQuestion,
    ExplainJob,
    ExportStore,
    FindFacts,
    FitLoading,
    ImportStore,
    JoinAllReduce,
    JudgePolicy,
    ListArchive,
    ListJobs,
    ListNodes,
    ListPlans,
    ListRuns,
    ListSummaries,
    OpenAllReduce,
    ReadArchive,
    ReadOutput,
    ShowAccuracy,
    ShowJob,
    ShowPlan,
    ShowStatus,
    ShowTimeline,
)
from schemas.samples import Heartbeat, ThroughputObserved
from services.admission.questions import SetDrain, handed_on
from tests.fact_builders import a_node, a_spec

JOB, NODE, PLACE = JobId("rigid-2"), NodeId("xp-0"), PlacementId("rigid-2-1-1")

SAMPLES = (
    Heartbeat(at=10.0, node_id=NODE, life="1", workers=(PLACE,), progress={JOB: 5.0}),
    ThroughputObserved(
        at=10.0,
        node_id=NODE,
        fingerprint=a_spec().workload.fingerprint,
        job_id=JOB,
        placement_id=PLACE,
        gpu_type=GpuType("titan-xp"),
        gpus_on_node=2,
        gang=Gang.of({NODE: 2}),
        seconds=60.0,
        throughput=100.0,
        data_s=(0.1, 0.2),
        wait_s=(0.0, 0.1),
    ),
)


def columns(*numbers: int) -> bytes:
    return array("i", numbers).tobytes()


RING = Ring(members=((a_node("xp-0", gpus=2), 1), (a_node("xp-1", gpus=2), 1)))

QUESTIONS = (
    EstimateQuestion(
        jobs=(JOB,),
        nodes=(NODE,),
        job=columns(0),
        start=columns(0, 1),
        node=columns(0),
        gpus=columns(2),
    ),
    ShowAccuracy(),
    Calibrate(),
    ExportStore(),
    ImportStore(lines=(b"{}",)),
    JudgePolicy(policy="hops+theta=0.5"),
    FitLoading(data_s=(0.1, 0.2)),
    OpenAllReduce(node_id=NODE, ring=RING, sizes=(1e6,)),
    JoinAllReduce(node_id=NODE, ring=RING, sizes=(1e6,), repeats=2, meeting="xp-0:29500"),
    ReadOutput(node_id=NODE, job_id=JOB, after={0: 1}),
    ShowStatus(),
    ListJobs(states=("queued",), project="default", user="ada", after=JOB),
    ShowJob(job_id=JOB),
    ExplainJob(job_id=JOB),
    ListNodes(),
    ShowTimeline(after=3),
    ListSummaries(),
    ListRuns(job_id=JOB),
    FindFacts(job_id=JOB),
    ListPlans(),
    ShowPlan(plan_id=PlanId("plan-0-0")),
    ReadArchive(after=3, seqs=(1, 2), node=NODE),
    ListArchive(),
    CopyArchive(name="facts-1-2.parquet", offset=4),
    handed_on(SetDrain(node_id=NODE, draining=True)),
)
assert {type(question) for question in QUESTIONS} == set(REPLIES), "one of each kind"
