"""A placer whose own facts come straight back, and the facts it gets."""

from collections.abc import Mapping, Sequence

import msgspec

from schemas.base import Event
from schemas.cluster import Node
from schemas.events import (
    JobSubmitted,
    NodeJoined,
    Outcome,
    PlanPublished,
    WorkerStarted,
    WorkerStopped,
)
from schemas.ids import GpuType, JobId, NodeId, PlacementId, PlanId
from schemas.jobs import JobSpec, Workload
from schemas.placement import Forked, Gang, Lockstep
from schemas.plans import Layer, LeftOut, Measures, Placement, PlanKind, Stage, Standing
from services.placer.core import Placer
from shared.domain import gangs
from shared.domain.core import Effects, Publish

A, B = NodeId("a"), NodeId("b")
MEASURES = Measures(gain="worth")
JOB, OTHER = JobId("job-1"), JobId("job-2")


class Bench:
    """A placer whose own facts come straight back, two nodes of four GPUs, and two jobs."""

    def __init__(self, *, nodes: Sequence[NodeId] = (A, B), gpus: int = 4, speed: float = 1.0) -> None:
        self.core = Placer(start_timeout_s=60.0, profile_iterations=20, speed=speed)
        self.log: list[Event] = []
        self.plans = 0
        for node_id in nodes:
            self.tell(joined(node_id, node(node_id, gpus), life="1"))
        for job_id in (JOB, OTHER):
            self.submit(job_id)

    def submit(self, job_id: JobId, retries: int = 0) -> None:
        self.tell(JobSubmitted(at=0.0, job_id=job_id, spec=spec(retries), key=job_id))

    def tell(self, event: Event) -> list[Event]:
        """Handle the fact and all that follow from it; the facts published."""
        return [event for effect in self._fold(event) for event in self._come_back(effect)]

    def wake(self, now: float) -> list[Event]:
        return [event for effect in self.core.wake(now) for event in self._come_back(effect)]

    def _fold(self, event: Event) -> Effects:
        self.log.append(event)
        return self.core.handle(event, event.at)

    def _come_back(self, effect: object) -> list[Event]:
        assert isinstance(effect, Publish)
        return [effect.event, *self.tell(effect.event)]

    def plan(
        self,
        *placements: Placement,
        kind: PlanKind = PlanKind.FIRST,
        token: int = 1,
        at: float = 10.0,
        standings: Mapping[JobId, Standing] | None = None,
        left_out: tuple[LeftOut, ...] = (),
    ) -> list[Event]:
        self.plans += 1
        made = plan(f"plan-{self.plans}", placements, kind=kind, token=token, at=at)
        explained = msgspec.structs.replace(made, measures=MEASURES, standings=dict(standings or {}))
        return self.tell(msgspec.structs.replace(explained, left_out=left_out))

    def start(self, placement: Placement) -> list[Event]:
        """Plan it and let every worker come up."""
        facts = self.plan(placement, kind=PlanKind.FRAGMENT)
        return facts + self.come_up(placement)

    def come_up(self, placement: Placement) -> list[Event]:
        return [
            event
            for node_id, gpus in placement.gang.configuration.items()
            for event in self.tell(worker_started(placement, node_id, gpus))
        ]

    def stop(
        self,
        placement: Placement,
        node_id: NodeId,
        outcome: Outcome,
        samples: float = 0.0,
        *,
        leads: bool = False,
    ) -> list[Event]:
        """`leads`: even if another node led as the gang was formed."""
        return self.tell(
            WorkerStopped(
                at=50.0,
                node_id=node_id,
                placement_id=placement.placement_id,
                job_id=placement.job_id,
                outcome=outcome,
                samples_done=samples,
                leads=leads or node_id == gangs.leader(placement.gang),
            )
        )


def joined(
    node_id: NodeId, there: Node, *, life: str, at: float = 0.0, workers: tuple[PlacementId, ...] = ()
) -> NodeJoined:
    """A node that runs copies too."""
    modes = (Forked.tag(), Lockstep.tag())
    return NodeJoined(at=at, node_id=node_id, node=there, life=life, workers=workers, modes=modes)


def node(node_id: NodeId, gpus: int = 4) -> Node:
    return Node(
        node_id=node_id,
        gpu_type=GpuType("t4"),
        gpus=gpus,
        server="generic",
        link_bandwidth=1e10,
        network_bandwidth=1e9,
    )


def spec(retries: int = 0) -> JobSpec:
    return JobSpec(
        name="job",
        workload=Workload(model="resnet18", dataset="cifar10", batch_size=32),
        demand=(1, 2, 4, 6),
        samples=1e6,
        learning_rates={4: 0.4},
        retries=retries,
    )


def place(placement_id: str, job_id: JobId = JOB, **gpus: int) -> Placement:
    return Placement(
        placement_id=PlacementId(placement_id),
        job_id=job_id,
        gang=Gang.of({NodeId(name): count for name, count in gpus.items()}),
        throughput=1.0,
        layer=Layer.THEORY,
    )


def copies(placement_id: str, job_id: JobId = JOB, **gpus: int) -> Placement:
    """Equal shares."""
    made = place(placement_id, job_id, **gpus)
    shares = Forked(shares=(1 / len(gpus),) * len(gpus))
    return msgspec.structs.replace(made, gang=Gang(made.gang.members, shares))


def plan(
    plan_id: str, placements: Sequence[Placement], *, kind: PlanKind, token: int, at: float
) -> PlanPublished:
    return PlanPublished(
        at=at,
        plan_id=PlanId(plan_id),
        kind=kind,
        round=0,
        policy="hops",
        token=token,
        made_from=0,
        placements=tuple(placements),
        left_out=(),
        idle_gpus=0,
        stage=Stage.OPTIMAL,
        objective=1.0,
        bound=1.0,
        gap=0.0,
        decision_s=0.0,
        solve_s=0.0,
        configurations=1,
    )


def worker_started(
    placement: Placement,
    node_id: NodeId,
    gpus: int,
    meeting: str = "",
    samples_restored: float | None = None,
) -> WorkerStarted:
    return WorkerStarted(
        at=20.0,
        node_id=node_id,
        placement_id=placement.placement_id,
        job_id=placement.job_id,
        gpu_indices=tuple(range(gpus)),
        meeting=meeting,
        samples_restored=samples_restored,
    )
