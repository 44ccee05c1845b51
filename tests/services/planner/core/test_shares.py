"""What a first plan makes of a gang whose shares it would change: little is no reason to start anew."""

from collections.abc import Mapping

import msgspec
import pytest

from schemas.ids import NodeId
from schemas.placement import Gang, Proportional
from schemas.settings import Settings
from services.planner.policies.contract.decision import Choice
from services.planner.policies.contract.view import View, ViewJob
from shared.domain import gangs
from tests.fact_builders import in_queue, joined, opened, start_ordered, started, worker_started
from tests.services.planner.planner_builders import Stage
from tests.simulation.mode_policies import InMode

ONE, TWO = NodeId("node-1"), NodeId("node-2")
RUNNING = ("proportional", "lockstep")


class Drifting(InMode):
    """Every job on all it can have; each round it believes the first node faster than before."""

    modes = (Proportional,)
    drift = 0.0

    def gang(self, gang: Gang, job: ViewJob, speed: Mapping[NodeId, float]) -> Gang:
        return gangs.proportional(gang.configuration, speed, job.batch_size)

    def _in_mode(self, view: View, choice: Choice) -> Choice:
        job = next(job for job in view.jobs if job.job_id == choice.job_id)
        speed = dict.fromkeys(choice.gang.nodes, 1.0)
        speed[ONE] += self.drift * view.round
        return msgspec.structs.replace(choice, gang=self.gang(choice.gang, job, speed))


class Slightly(Drifting):
    drift = 0.08


class Much(Drifting):
    drift = 0.3


def planned_twice(policy: type[Drifting]) -> Stage:
    """A job on two nodes that runs, and the plan of the next round."""
    stage = Stage(Settings(policy=f"{__name__}:{policy.__name__}", restart_share_max=1.0))
    stage.tell(joined(modes=RUNNING), joined(TWO, modes=RUNNING))
    stage.tell(*in_queue(demand=(16,), samples=1e9), opened())
    [placement] = stage.plan.placements
    name = placement.placement_id
    for node in (ONE, TWO):
        stage.tell(start_ordered(at=2.0, place=name, node_id=node))
        stage.tell(worker_started(at=20.0, place=name, node_id=node, gpu_indices=range(8)))
    stage.tell(msgspec.structs.replace(started(at=20.0, place=name), gang=placement.gang))
    stage.until(360.0)
    stage.tell(opened(at=360.0, number=1))
    stage.until(361.0)
    return stage


@pytest.mark.parametrize(("policy", "stays"), [(Slightly, True), (Much, False)])
def test_shares_that_change_little_are_not_worth_a_restart(policy: type[Drifting], stays: bool) -> None:  # noqa: FBT001
    before, after = (plan.placements[0] for plan in planned_twice(policy).plans)
    assert (after.gang == before.gang) == stays
    assert (after.placement_id == before.placement_id) == stays
    assert after.gang.configuration == before.gang.configuration
