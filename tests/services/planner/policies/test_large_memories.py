"""Policies that remember every job, with as many jobs as may be open by default: their memory fits a plan."""

from random import Random

import msgspec
import pytest

from schemas.ids import Fingerprint, GpuType, JobId, NodeId
from schemas.settings import Settings
from services.planner.policies.contract.view import View, ViewJob
from services.planner.policies.gavel import memory as gavel
from services.planner.policies.gavel.placing import Gpus
from services.planner.policies.hlas import memory as hlas
from services.planner.policies.hlas.queues import QueuePlace
from services.planner.policies.kit.packing import PACKED_BYTES_MAX, PLAIN_BYTES_MAX
from services.planner.policies.tiresias import memory as tiresias
from services.planner.policies.tiresias.queues import QueueEntry
from tests.services.planner.planner_builders import FAST, SLOW, decide, job, node, present, view

OPEN = Settings().jobs_open_max
NODES = 50
TYPES = (FAST, SLOW)
LONG = [JobId(f"j-{Random(number).randbytes(34).hex()}") for number in range(OPEN)]
"""ids of 70 characters"""
FEW = LONG[:2000]


def crowd(draw: Random) -> View:
    """Some run, some have run, most wait."""
    cluster = [node(f"n{number:02}", 8, gpu_type=TYPES[number % 2]) for number in range(NODES)]
    return view([one_of_many(number, draw) for number in range(OPEN)], cluster, at=1e5)


def one_of_many(number: int, draw: Random) -> ViewJob:
    runs, ran = number < 4 * NODES, number < OPEN // 4
    received = {kind: draw.uniform(0, 9000) for kind in TYPES} if ran else {}
    return job(
        LONG[number],
        (2, 4),
        gpu_types=TYPES,
        single_gpu={kind: draw.uniform(5, 10) for kind in TYPES},
        submitted_at=float(number),
        samples=draw.uniform(1e6, 1e8),
        samples_done=draw.uniform(1, 1e5) if ran else 0.0,
        received_s=received,
        attained_gpu_s=sum(received.values()),
        workload=Fingerprint(f"resnet50|imagenet-2012|256|sgd|{number % 40}"),
        present=present(**{f"n{number // 4:02}": 2}) if runs else None,
    )


@pytest.mark.parametrize("policy", ["gavel-throughput", "tiresias", "hlas", "sia"])
def test_a_policy_plans_with_as_many_jobs_as_may_be_open(policy: str) -> None:
    """Also again, with its memory, in a process that has just started."""
    seen = crowd(Random(1))
    first = decide(policy, seen)
    assert 0 < len(first.memory) <= PACKED_BYTES_MAX
    later = msgspec.structs.replace(seen, at=seen.at + 360.0, memory=first.memory)
    assert 0 < len(decide(policy, later).memory) <= PACKED_BYTES_MAX


def figures(draw: Random) -> dict[GpuType, float]:
    return {kind: draw.random() for kind in TYPES}


def gavel_memory(jobs: list[JobId]) -> gavel.Memory:
    draw = Random(2)
    entries = [
        gavel.Entry(
            share=figures(draw), received=figures(draw), deficit=figures(draw), left=draw.random(),
            isolated_rate=draw.random(), isolated_s=draw.random(),
        )
        for _ in jobs
    ]  # fmt: skip
    nodes: dict[JobId, Gpus] = {
        job_id: {NodeId("a"): (number, number + 9)} for number, job_id in enumerate(jobs[:9])
    }
    return gavel.Memory(
        at=3.0, stale=True, gpus={SLOW: 4.0}, jobs=dict(zip(jobs, entries, strict=True)), gpus_of=nodes
    )


def test_gavel_reads_what_it_has_packed() -> None:
    memory = gavel_memory(FEW)
    assert len(msgspec.msgpack.encode(memory)) > PLAIN_BYTES_MAX > 0
    assert gavel.read(gavel.stored(memory), FEW) == memory


def test_gavel_still_reads_a_large_memory_that_is_not_packed() -> None:
    memory = gavel_memory(FEW)
    assert gavel.read(msgspec.msgpack.encode(memory), FEW) == memory


def test_jobs_that_are_gone_are_not_those_that_there_are_now() -> None:
    known = gavel.read(gavel.stored(gavel_memory(FEW)), FEW[1:]).jobs
    assert len(known) == len(FEW)
    assert set(FEW) - set(known) == {FEW[0]}


@pytest.mark.parametrize(
    ("jobs", "forgotten"),
    [(5_000, set()), (9_000, {"deficit"}), (14_000, {"deficit", "received"})],
)
def test_gavel_forgets_time_owed_before_time_received_and_no_shares(jobs: int, forgotten: set[str]) -> None:
    """All numbers are drawn, so that none of them compresses."""
    names = [JobId(f"j{number}") for number in range(jobs)]
    memory = gavel_memory(names)
    known = gavel.read(gavel.stored(memory), names).jobs
    assert known.keys() == memory.jobs.keys()
    for name, entry in memory.jobs.items():
        for figure in ("share", "received", "deficit"):
            expected = {} if figure in forgotten else getattr(entry, figure)
            assert getattr(known[name], figure) == pytest.approx(expected)


def test_gavel_computes_shares_again_where_all_is_forgotten() -> None:
    assert gavel.stored(gavel_memory([JobId(f"j{number}") for number in range(20_000)])) == b""


def test_tiresias_reads_what_it_has_packed() -> None:
    draw = Random(3)
    entries = tuple(QueueEntry(job_id, draw.random(), draw.random(), draw.random()) for job_id in FEW)
    queues = (entries[7:], (), entries[:7])
    for memory in (tiresias.stored(queues), msgspec.msgpack.encode(queues)):
        assert tiresias.remembered(memory, FEW) == queues
    assert not tiresias.is_exact(tiresias.stored(queues))


@pytest.mark.parametrize(("jobs", "kept"), [(11_000, True), (16_000, False)])
def test_tiresias_forgets_promotions_and_no_queue(jobs: int, kept: bool) -> None:  # noqa: FBT001
    draw = Random(4)
    entries = [
        QueueEntry(JobId(f"j{number}"), draw.random(), draw.random(), draw.random()) for number in range(jobs)
    ]
    names = [one.job_id for one in entries]
    found = tiresias.remembered(tiresias.stored(((), tuple(entries))), names)
    assert [[own.job_id for own in line] for line in found] == [[], names]
    for own, one in zip(found[1], entries, strict=True):
        assert own.since_s == pytest.approx(one.since_s if kept else 0.0)


def test_hlas_reads_what_it_has_packed() -> None:
    draw = Random(5)
    jobs = {
        job_id: hlas.RememberedJob(
            scale=1 + number % 4,
            queue_place=QueuePlace(number % 3, draw.random(), number, number % 5 - 1),
            groups=tuple(range(number % 3)),
            workload=Fingerprint(f"w{number % 7}"),
            samples=draw.random(),
            rate=draw.random(),
        )
        for number, job_id in enumerate(FEW)
    }
    group = hlas.GpuGroup(present(a=1).gang.configuration, "basis")
    memory = hlas.HlasMemory(at=3.0, groups=(group,) * 3, jobs=jobs, ended={Fingerprint("w"): (1.0,)})
    for data in (hlas.stored(memory), msgspec.msgpack.encode(memory)):
        assert hlas.remembered(data, FEW) == memory
