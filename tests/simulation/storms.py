"""A small scenario that costs little, and storms over it: the bus errs by a seed, services are killed."""

from collections.abc import Sequence
from random import Random

import msgspec

from loadgen.fault_injection import Disturbance, Stack
from loadgen.simulation import Engine, Simulated, simulate
from schemas.cluster import ClusterFile, GpuTypeFile, NodeGroup
from schemas.events import NodeDrained, NodeRestored
from schemas.ids import GpuType, NodeId
from schemas.jobs import Checkpoint, GpuRange, JobFile, Workload
from schemas.scenarios import ArrivingJob, ListedWorkload, ScenarioFile
from shared.runtime.bus.memory import Faults

XP, RTX = GpuType("titan-xp"), GpuType("rtx-3090")
Gpus = int | list[int] | GpuRange

SAMPLES_PER_S = 2_900.0
"""of the storms' workload on one GPU, roughly"""

CLUSTER = ClusterFile(
    name="storm",
    gpu_types={
        XP: GpuTypeFile(link_bandwidth=4.7e9, network_bandwidth=2.7e9),
        RTX: GpuTypeFile(link_bandwidth=3.2e9, network_bandwidth=2.6e9),
    },
    nodes=[
        NodeGroup(prefix="xp", count=2, gpus=2, gpu_type=XP, server="w780-g"),
        NodeGroup(prefix="rtx", count=2, gpus=2, gpu_type=RTX, server="yk8100"),
    ],
)
"""eight GPUs of two types in four servers"""
NODES = [NodeId(name) for name in ("xp-0", "xp-1", "rtx-0", "rtx-1")]


def arriving(
    at_s: float, name: str, gpus: Gpus, gpu_s: float, types: list[GpuType] | None = None
) -> ArrivingJob:
    """`gpu_s`: its length on one GPU, roughly."""
    job = JobFile(
        name=name,
        workload=Workload(model="resnet18", dataset="cifar10", batch_size=256),
        gpus=gpus,
        gpu_types=types,
        samples=gpu_s * SAMPLES_PER_S,
        checkpoint=Checkpoint(interval_s=60.0),
    )
    return ArrivingJob(at_s=at_s, job=job)


SMALL_JOBS = [
    arriving(0.0, "distributed", 4, 1200.0, [XP]),
    arriving(5.0, "rigid", 2, 600.0),
    arriving(10.0, "elastic", GpuRange(min=1, max=4, choices=4), 900.0),
    arriving(130.0, "late", [1, 2], 500.0),
    arriving(140.0, "short", 1, 200.0),
    arriving(400.0, "last", [1, 2, 4], 600.0),
]
SMALL = ScenarioFile(
    name="storm",
    cluster=CLUSTER,
    workload=ListedWorkload(jobs=SMALL_JOBS),
    settings={
        "round_s": 200.0,
        "observe_every_s": 100.0,
        "snapshot_every": 40,  # so that a life begins with a snapshot and a replay
        "heartbeat_real_s": 10.0,
        "node_lease_real_s": 40.0,
        "lease_real_s": 10.0,
    },
)
JOBS = 6

NARROW = msgspec.structs.replace(
    SMALL,
    workload=ListedWorkload(
        jobs=[arriving(0.0, "wide", [2, 4], 1200.0, [XP]), *SMALL_JOBS[1:]],
    ),
)
"""every job can run on a node alone"""

NEVER_PLACED = {
    "hadare": {"distributed-1"},
    "hadare-literal": {"distributed-1"},
    "hops-literal": {"rigid-2"},
}
"""by policy: jobs of `SMALL` that it never runs, since a copy takes all of a job's GPUs from one node, or
since Hops as printed gives a job no node's last GPU"""

FAULTS = Faults(duplicate=0.1, delay_s=0.5, redeliver=0.2, one_by_one=True)
AWAY_S = (0.0, 0.5, 5.0, 60.0)
"""the last is longer than a node's lease"""


class Storm:
    """Services and agents are killed, or parted from the bus, and come back, three at a time.

    A strike follows some fact by some turns of the loop, so that it hits whoever is at work.
    """

    def __init__(self, seed: int, strikes: int = 12) -> None:
        self._random = Random(f"storm/{seed}")
        self._strikes = strikes
        self._struck: set[str] = set()

    async def __call__(self, stack: Stack) -> None:
        for _ in range(self._strikes):
            await self._moment(stack)
            name = self._random.choice([name for name in stack.names if name not in self._struck])
            self._struck.add(name)
            away_s = self._random.choice(AWAY_S)
            if self._random.random() < 0.5 and stack.is_up(name):
                await part(stack, name, away_s)
            else:
                await kill(stack, name, away_s)
            self._struck.discard(name)

    async def _moment(self, stack: Stack) -> None:
        """Wait for some facts, then for some turns."""
        await stack.facts(self._random.randrange(1, 60))
        await stack.steps(self._random.randrange(40))


class Operators:
    """Operators drain nodes and restore them; in the end all are restored."""

    def __init__(self, seed: int, acts: int = 12) -> None:
        self._random = Random(f"operators/{seed}")
        self._acts = acts

    async def __call__(self, stack: Stack) -> None:
        drained: list[NodeId] = []
        for _ in range(self._acts):
            await stack.facts(self._random.randrange(1, 40))
            await stack.steps(self._random.randrange(40))
            node_id = self._random.choice(NODES)
            if node_id in drained:
                drained.remove(node_id)
                stack.store(NodeRestored(at=_now(stack), node_id=node_id))
            else:
                drained.append(node_id)
                stack.store(NodeDrained(at=_now(stack), node_id=node_id))
            await stack.sleep(self._random.choice((0.0, 1.0, 300.0)))
        for node_id in drained:
            stack.store(NodeRestored(at=_now(stack), node_id=node_id))


def _now(stack: Stack) -> float:
    return stack.stored(0)[-1].at


async def kill(stack: Stack, name: str, away_s: float) -> None:
    await stack.kill(name)
    await stack.sleep(away_s)
    stack.start(name)


async def part(stack: Stack, name: str, away_s: float) -> None:
    stack.cut(name)
    await stack.sleep(away_s)
    stack.mend(name)


def stormy(
    seed: int,
    policy: str | None = None,
    engine: Engine = "conductor",
    scenario: ScenarioFile = SMALL,
    *,
    beside: Sequence[Disturbance] = (),
) -> Simulated:
    """`beside`: what disturbs the stack beside the storms."""
    faults = Faults(
        seed=seed,
        duplicate=FAULTS.duplicate,
        delay_s=FAULTS.delay_s,
        redeliver=FAULTS.redeliver,
        one_by_one=FAULTS.one_by_one,
    )
    disturb: list[Disturbance] = [*[Storm(seed)] * 3, *beside]
    return simulate(scenario, policy=policy, seed=seed, faults=faults, disturb=disturb, engine=engine)
