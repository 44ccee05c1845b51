"""A stack whose agents are jobs of a Slurm cluster: up, cancelled, at the end of their time, down."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from hopyard.api.client import Client
from hopyard.api.connect import connect
from hopyard.local.accounts import admitted_any
from hopyard.local.stack import Stack, running_stack
from hopyard.local.stack_settings import StackSpec
from schemas.base import Event
from schemas.cluster import ClusterFile, GpuTypeFile, NodeGroup
from schemas.events import JobCompleted, JobPreempted, JobStarted, NodeDrained, NodeJoined, PreemptReason
from schemas.ids import GpuType, JobId, NodeId
from schemas.jobs import JobFile, Workload
from shared.domain.audit import audit
from shared.runtime import owner_only
from tests.container.slurm.slurm_cluster import KILL_WAIT_S, NODES, SlurmCluster, build, slurm_cluster
from tests.stack_watch import LIMIT_S, log_of

pytestmark = pytest.mark.container

RTX = GpuType("rtx-3090")
FOLDER = "/shared/tenant"
LEAVE_S = 10.0
SHORT = {
    "round_s": 10.0,
    "restart_prior_s": 1.0,
    "startup_s": 0.5,
    "checkpoint_s": 0.5,
    "leave_before_end_s": LEAVE_S,
    "profile_iterations": 10,
}
OF_THE_USER = {
    "SBATCH_PARTITION": "nowhere",
    "SBATCH_TIMELIMIT": "30",
    "SBATCH_JOB_NAME": "other",
    "SBATCH_SIGNAL": "B:USR2@70",
    "SBATCH_MEM_PER_CPU": "10",
    "SQUEUE_STATES": "SUSPENDED",
    "SCANCEL_STATE": "SUSPENDED",
}
"""variables that Slurm's commands read, and that agents must not suffer from"""
SAMPLES_PER_S = 3_800.0
"""of the job's workload on one GPU, roughly"""
CLUSTER = ClusterFile(
    name="tenant",
    gpu_types={RTX: GpuTypeFile(link_bandwidth=3.2e9, network_bandwidth=2.6e9)},
    nodes=[NodeGroup(prefix="srv", count=len(NODES), gpus=1, gpu_type=RTX, server="yk8100")],
)


@pytest.fixture(scope="module")
def brought(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the cluster finds in `/cfg`."""
    folder = tmp_path_factory.mktemp("slurm")
    (folder / "cluster.json").write_bytes(msgspec.json.encode(CLUSTER))
    return folder


@pytest.fixture(scope="module")
def slurm(brought: Path, request: pytest.FixtureRequest) -> Iterator[SlurmCluster]:
    build()
    with slurm_cluster(brought) as cluster:
        try:
            yield cluster
        finally:
            if request.session.testsfailed:
                print(cluster.logs())


@pytest.fixture
async def stack(tmp_path: Path, brought: Path) -> AsyncIterator[tuple[Stack, Client, dict[str, str]]]:
    """A stack without a node; with the environment of the user who brings agents up for it."""
    spec = StackSpec(data=tmp_path, cluster=None, clock_origin=time.time(), settings=SHORT)
    async with running_stack(spec, print) as stack, connect(stack.api_url, stack.token) as client:
        owner_only.write(brought / "agents.json", admitted_any(tmp_path).read_bytes())
        settings = SHORT | {
            "cluster": "/cfg/cluster.json",
            "nodes": "cluster-file",
            "runner": "emulated",
            "nats_credentials": "/cfg/agents.json",
        }
        environ = {f"HOPYARD_{name.upper()}": str(value) for name, value in settings.items()}
        yield stack, client, environ | OF_THE_USER


def hopyard(
    slurm: SlurmCluster, *words: str, environ: dict[str, str] | None = None, fails: bool = False
) -> str:
    return slurm.run("python", "-m", "hopyard.cli", "slurm", *words, environ=environ, fails=fails)


def job(name: str, seconds: float) -> JobFile:
    workload = Workload(model="resnet18", dataset="cifar10", batch_size=256)
    return JobFile(name=name, workload=workload, gpus=1, gpu_types=[RTX], samples=seconds * SAMPLES_PER_S)


async def seen(client: Client, fine: Callable[[list[Event]], bool]) -> list[Event]:
    """The log, once it is as wanted."""
    async with asyncio.timeout(LIMIT_S):
        while not fine(events := await log_of(client)):
            await asyncio.sleep(0.2)
    return events


def of(events: list[Event], job_id: JobId) -> list[JobStarted]:
    return [fact for fact in events if isinstance(fact, JobStarted) and fact.job_id == job_id]


def joined(events: list[Event]) -> dict[NodeId, list[NodeJoined]]:
    found: dict[NodeId, list[NodeJoined]] = {NodeId(node): [] for node in NODES}
    for fact in events:
        if isinstance(fact, NodeJoined) and fact.node_id in found:
            found[fact.node_id].append(fact)
    return found


async def test_agents_come_and_go_with_their_allocations(
    slurm: SlurmCluster, stack: tuple[Stack, Client, dict[str, str]]
) -> None:
    """Three agents for a minute each. One is cancelled; the others leave in time, and come back."""
    running, client, environ = stack
    where = ("--folder", FOLDER, "--name", "tenant")
    up = ("up", "--partition", "batch", "--nodes", "3", "--time", "1", "--join", running.nats.url, *where)

    other = slurm.run("sbatch", "--parsable", "--hold", "--job-name=tenant", "--wrap=true").strip()
    said = hopyard(slurm, *up, environ=environ)
    assert "ProctrackType=proctrack/linuxproc" in said
    assert f"KillWait={KILL_WAIT_S}" in said
    events = await seen(client, lambda events: all(joined(events).values()))
    ends = {node: lives[0].node.until or 0.0 for node, lives in joined(events).items()}
    assert all(0.0 < end - joined(events)[node][0].at <= 61.0 for node, end in ends.items())
    assert "already" in hopyard(slurm, *up, environ=environ)
    listed = json.loads(hopyard(slurm, "status", *where, "--json", environ=OF_THE_USER))
    assert sorted(each["node"] for each in listed if each["state"] == "RUNNING") == sorted(NODES)
    keeps_its_secret(slurm)
    agents = slurm.run("pgrep", "--full", "services.agent").split()
    environ_of = slurm.run("bash", "-c", f"cat /proc/{agents[0]}/environ | tr '\\0' '\\n'")
    assert "HOPYARD_NODE_UNTIL=" in environ_of
    assert "SLURM_" not in environ_of  # trainers would take a rank for a task of Slurm

    first, second = [(await client.submit(job(name, 60.0), name)).job_id for name in ("first", "second")]
    events = await seen(client, lambda events: bool(of(events, first) and of(events, second)))
    [node] = of(events, first)[0].gang.nodes
    slurm.run("scancel", slurm.jobs()[node])
    events = await seen(client, lambda events: len(of(events, first)) > 1)

    stayed = [each for each in ends if each != node]
    events = await seen(
        client,
        lambda events: (
            {fact.job_id for fact in events if isinstance(fact, JobCompleted)} == {first, second}
            and sum(map(len, joined(events).values())) >= len(NODES) + len(stayed)
        ),
    )
    left: dict[NodeId, float] = {}
    for fact in events:
        if isinstance(fact, NodeDrained):
            left.setdefault(fact.node_id, fact.at)
    assert set(left) >= set(stayed)
    for each in stayed:
        assert left[each] == pytest.approx(ends[each] - LEAVE_S, abs=5.0)
    for again in (each for lives in joined(events).values() for each in lives[1:]):
        assert (again.node.until or 0.0) > max(ends.values())  # on whichever node
    reasons = {fact.reason for fact in events if isinstance(fact, JobPreempted)}
    assert PreemptReason.NODE_LEFT in reasons
    assert audit(events, drained=True) == []

    assert "jobs ended" in hopyard(slurm, "down", *where, environ=OF_THE_USER)
    assert slurm.run("squeue", "--noheader", "--format=%i").strip() == other
    slurm.run("scancel", other)
    assert slurm.run("pgrep", "--full", "services.agent", fails=True) == ""
    assert not {"settings.yaml", "agent.sh", "wanted"} & set(slurm.run("ls", FOLDER).split())
    assert "no jobs" in hopyard(slurm, "down", *where)


def keeps_its_secret(slurm: SlurmCluster) -> None:
    """On no command line, in no environment, not in the script, not among the settings that agents get."""
    assert slurm.run("stat", "--format=%a", f"{FOLDER}/settings.yaml", FOLDER).split() == ["600", "700"]
    secret = json.loads(slurm.run("cat", "/cfg/agents.json"))["password"]
    read = f"cat {FOLDER}/* /proc/[0-9]*/cmdline; scontrol show job --details; cat /proc/[0-9]*/environ"
    said = slurm.run("bash", "-c", f"{{ {read}; }} 2>/dev/null | tr '\\0' '\\n'")
    assert "services.agent" in said
    assert secret not in said


def test_a_job_that_is_requeued_after_it_got_its_successor_gets_no_second_one(slurm: SlurmCluster) -> None:
    """Its agent waits for a stack all the while, in an environment that is not the user's."""
    folder = "/shared/requeued"
    up = ("up", "-p", "batch", "--nodes", "1", "--time", "30", "--join", "nats://127.0.0.1:1")
    hopyard(slurm, *up, "--folder", folder, environ={"SBATCH_EXPORT": "NONE", "HOPYARD_GPUS": "cpu:1"})
    job_id = "".join(until(slurm, "squeue --noheader --states=RUNNING --format=%i").split())
    log = f"{folder}/agent-{job_id}.log"
    until(slurm, f"grep 'trying again' {log}")
    slurm.run("scancel", "--batch", "--signal=USR1", job_id)
    said = until(slurm, f"grep 'goes on' {log}").split()
    slurm.run("scontrol", "requeue", job_id)
    until(slurm, f"test $(grep --count 'trying again' {log}) = 2 && echo both")
    slurm.run("scancel", "--batch", "--signal=USR1", job_id)
    assert (
        until(slurm, f"test $(grep --count 'goes on' {log}) = 2 && grep 'goes on' {log}").split() == 2 * said
    )
    assert set(slurm.run("squeue", "--noheader", "--format=%i").split()) == {job_id, said[1]}
    assert "2 jobs ended" in hopyard(slurm, "down", "--folder", folder)


def until(slurm: SlurmCluster, line: str) -> str:
    """What a line of bash prints, once it prints something."""
    latest = time.monotonic() + LIMIT_S
    while not (said := slurm.run("bash", "-c", f"{{ {line}; }} 2>/dev/null || true")):
        assert time.monotonic() < latest, f"{line}\n{slurm.logs()}"
        time.sleep(0.2)
    return said


def test_a_refusal_by_slurm_is_one_sentence(slurm: SlurmCluster) -> None:
    join = ("--nodes", "1", "--join", "nats://127.0.0.1:1", "--folder", "/tmp/refused")
    said = hopyard(slurm, "up", "--partition", "nowhere", *join, fails=True).splitlines()
    assert said[-1].startswith("hopyard: sbatch: ")
    assert "partition" in said[-1]
    assert not any(line.startswith("Traceback") for line in said)
