"""A planner on a stage of its own, and what its plans say in short."""

from schemas.base import Event
from schemas.events import PlanPublished
from schemas.placement import Configuration
from schemas.plans import PlanKind
from schemas.settings import Settings
from tests.fact_builders import (
    in_queue,
    joined,
    opened,
    started,
    worker_started,
)
from tests.services.planner.planner_builders import Stage


def places(made: PlanPublished) -> dict[str, Configuration]:
    return {placement.job_id: placement.gang.configuration for placement in made.placements}


def kinds(stage: Stage) -> list[PlanKind]:
    return [made.kind for made in stage.plans]


def carried_out(stage: Stage, made: PlanPublished) -> None:
    """The gangs of a plan come up at once."""
    for placement in made.placements:
        for node_id, gpus in placement.gang.configuration.items():
            indices = range(gpus)
            stage.tell(
                worker_started(
                    placement.job_id,
                    at=stage.now,
                    place=placement.placement_id,
                    node_id=node_id,
                    gpu_indices=list(indices),
                )
            )
        stage.tell(
            started(
                placement.job_id, at=stage.now, place=placement.placement_id, on=placement.gang.configuration
            )
        )


def cluster(*facts: Event, settings: Settings | None = None) -> Stage:
    """One node of 8 GPUs, then the facts; nothing planned yet."""
    stage = Stage(settings)
    stage.tell(joined(), *facts)
    return stage


def two_jobs() -> Stage:
    """The first job has half of the node; the second arrives after the round's plan."""
    stage = cluster(*in_queue("first", demand=(4,)), opened())
    carried_out(stage, stage.plan)
    stage.until(10.0)
    return stage
