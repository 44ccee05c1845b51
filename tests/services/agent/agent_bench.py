"""What the agent's tests share: a world with fixed numbers, orders that default everything, an agent."""

from collections.abc import Hashable, Sequence
from typing import TypeVar

import msgspec

from schemas.base import Event
from schemas.calibration import Ring
from schemas.catalogue import NOTHING_MORE, CatalogueFile
from schemas.cluster import Node
from schemas.codec import decode_fact, encode
from schemas.events import GangFormed, NodeJoined, StartOrdered, StopOrdered
from schemas.ids import GpuType, JobId, NodeId, PlacementId
from schemas.jobs import JobSpec, Workload
from schemas.measurements import Measured, Stretch
from schemas.placement import LOCKSTEP, Gang, Lockstep, Mode, Proportional, Relaxed, Sync
from schemas.settings import Settings
from services.agent.core import Agent
from services.agent.tasks import ALL_WELL, GpusSeen, Report
from services.agent.work.world import DoesNotFit
from shared.domain.core import Effects, Publish, Send, Work

HERE, THERE = NodeId("here"), NodeId("there")
MODES: frozenset[type[Mode]] = frozenset({Lockstep, Proportional, Relaxed})
"""of the test world and its runner"""
LIFE = "life-1"
LEAVE_S = 60.0
E = TypeVar("E", bound=Event)


def node(node_id: NodeId = HERE, gpus: int = 4) -> Node:
    return Node(
        node_id=node_id,
        gpu_type=GpuType("t4"),
        gpus=gpus,
        server="generic",
        link_bandwidth=1e10,
        network_bandwidth=1e9,
    )


def job(samples: float = 1_000.0, checkpoint_interval_s: float = 600.0, model: str = "resnet") -> JobSpec:
    return JobSpec(
        name="job",
        workload=Workload(model=model, dataset="cifar", batch_size=32),
        demand=(1, 2, 4),
        samples=samples,
        checkpoint_interval_s=checkpoint_interval_s,
    )


def start(
    name: str = "p1",
    *,
    gpus: int = 1,
    gang: Sequence[tuple[Node, int]] | None = None,
    sync: Sync = LOCKSTEP,
    spec: JobSpec | None = None,
    samples_done: float = 0.0,
    profile_iterations: int = 0,
    at: float = 0.0,
) -> StartOrdered:
    members = gang or [(node(), gpus)]
    return StartOrdered(
        at=at,
        node_id=HERE,
        placement_id=PlacementId(name),
        job_id=JobId(f"job-of-{name}"),
        spec=spec or job(),
        gang=Gang.of({one.node_id: count for one, count in members}, sync),
        nodes=tuple(one for one, _ in sorted(members, key=lambda member: member[0].node_id)),
        samples_done=samples_done,
        learning_rate=None,
        profile_iterations=profile_iterations,
    )


def stop(name: str = "p1", at: float = 0.0) -> StopOrdered:
    return StopOrdered(at=at, node_id=HERE, placement_id=PlacementId(name), job_id=JobId(f"job-of-{name}"))


def formed(name: str = "p1", at: float = 0.0, meeting: str = "") -> GangFormed:
    return GangFormed(
        at=at,
        node_id=HERE,
        placement_id=PlacementId(name),
        job_id=JobId(f"job-of-{name}"),
        meeting=meeting,
    )


def joined(life: str = LIFE, at: float = 0.0, gpus: int = 4) -> NodeJoined:
    return NodeJoined(
        at=at, node_id=HERE, node=node(gpus=gpus), life=life, modes=("lockstep", "proportional", "relaxed")
    )


def only(facts: list[Event], kind: type[E]) -> E:
    [event] = facts
    assert isinstance(event, kind)
    return event


class Bench:
    """An agent in its life, whose own facts come straight back; its orders to the runner pile up.

    `adopted`: what its runner found. `before`: what it replays of earlier lives. `seen`: its GPUs before.
    """

    def __init__(
        self,
        *,
        gpus: int = 4,
        life: str = LIFE,
        adopted: Sequence[str] = (),
        before: Sequence[Event] = (),
        seen: GpusSeen = ALL_WELL,
        until: float | None = None,
    ) -> None:
        here, mine = msgspec.structs.replace(node(gpus=gpus), until=until), tuple(map(PlacementId, adopted))
        self.core = Agent(here, life, MODES, adopted=mine, seen=seen, leave_s=LEAVE_S)
        for fact in before:
            self.core.handle(fact, fact.at)
        self.log: list[Event] = []
        self.work: list[object] = []
        self.sent: list[object] = []
        self.perform(self.core.resume(0.0))

    def tell(self, message: Event | Report | GpusSeen, at: float = 0.0) -> list[Event]:
        """Handle it, a fact as the stream brings it, and all that follows; the facts that were published."""
        if isinstance(message, Event):
            read = decode_fact(encode(message))
            assert read is not None
            message = read
            self.log.append(message)
        return self.perform(self.core.handle(message, at))

    def perform(self, effects: Effects) -> list[Event]:
        published: list[Event] = []
        for effect in effects:
            match effect:
                case Publish(event):
                    published += [event, *self.tell(event)]
                case Work(task):
                    self.work.append(task)
                case Send(sample):
                    self.sent.append(sample)
                case _:
                    raise AssertionError(effect)
        return published

    def owners(self) -> dict[int, PlacementId]:
        """Who owns each GPU that has an owner; fails where two do."""
        owners: dict[int, PlacementId] = {}
        for placement_id, worker in self.core.state.workers.items():
            for index in worker.gpu_indices:
                assert owners.setdefault(index, placement_id) == placement_id
        return owners


class FixedWorld:
    """Implements `World`: 2 samples/s a GPU, every module 0.1 s; a model named `huge` fits nowhere."""

    modes = MODES
    workloads: tuple[str, ...] = ()

    def __init__(self, settings: Settings | None = None, catalogue: CatalogueFile = NOTHING_MORE) -> None:
        self.settings = settings
        self.catalogue = catalogue

    def stretch(
        self,
        spec: JobSpec,
        nodes: Sequence[Node],  # noqa: ARG002
        gang: Gang,
        *,
        key: str,  # noqa: ARG002
        index: int,  # noqa: ARG002
    ) -> Stretch:
        _check(spec)
        return Stretch(
            throughput=2.0 * gang.gpus,
            data_s=dict.fromkeys(gang.nodes, (0.1, 0.1)),
            wait_s=dict.fromkeys(gang.nodes, (0.0, 0.0)),
        )

    def alike(self, spec: JobSpec) -> Hashable:
        return spec.workload

    def rota(
        self,
        jobs: Sequence[tuple[JobSpec, Gang]],
        nodes: Sequence[Node],  # noqa: ARG002
        *,
        key: str,  # noqa: ARG002
        index: int,  # noqa: ARG002
    ) -> tuple[float, ...]:
        """A GPU's 2 samples/s, divided by turns."""
        turns = [gang.sync.turns for _, gang in jobs if isinstance(gang.sync, Relaxed)]
        for spec, _ in jobs:
            _check(spec)
        return tuple(
            2.0 * gang.gpus * own / max(sum(turns), 1) for (_, gang), own in zip(jobs, turns, strict=True)
        )

    def switch_s(self, spec: JobSpec) -> float:  # noqa: ARG002
        return 0.5

    def profile(self, spec: JobSpec, node: Node, *, iterations: int, key: str) -> Measured:  # noqa: ARG002
        _check(spec)
        module = (0.1,) * iterations
        return Measured(
            data_s=module,
            forward_s=module,
            backward_s=module,
            update_s=module,
            iteration_s=(0.4,) * iterations,
            parameters=1e6,
        )

    def all_reduce(self, ring: Ring, *, size: float, repeats: int, key: str) -> tuple[float, ...]:  # noqa: ARG002
        return (size / 1e9,) * repeats


def _check(spec: JobSpec) -> None:
    if spec.workload.model == "huge":
        raise DoesNotFit("out of memory")
