"""What the planner makes of jobs that take turns on the same GPUs."""

import msgspec
import pytest

from schemas.events import PlanPublished, PolicyChosen, TurnsOrdered
from schemas.placement import Gang, Relaxed
from schemas.settings import Settings
from services.planner.core.viewing import idle_gpus
from services.planner.policies.contract.decision import Decision
from services.planner.policies.contract.estimates import Estimated
from services.planner.policies.contract.view import View
from tests.fact_builders import (
    completed,
    in_queue,
    joined,
    opened,
    preempted,
    start_ordered,
    started,
    worker_started,
    worker_stopped,
)
from tests.services.planner.planner_builders import Stage
from tests.simulation.mode_policies import Rotas


class Dealing(Rotas):
    """Deals the tasks of a round anew in every round."""

    def decide(self, view: View, wanted: object, estimates: Estimated, solve: object = None) -> Decision:
        made = super().decide(view, wanted, estimates, solve)  # type: ignore[arg-type] # it needs none of them
        choices = []
        for choice in made.choices:
            sync = choice.gang.sync
            assert isinstance(sync, Relaxed)
            [tasks] = sync.tasks
            shift = view.round % len(tasks)
            sync = msgspec.structs.replace(sync, tasks=((*tasks[shift:], *tasks[:shift]),))
            choices.append(msgspec.structs.replace(choice, gang=Gang(choice.gang.members, sync)))
        return msgspec.structs.replace(made, choices=tuple(choices))


def stage_of(policy: type[Rotas] = Rotas, *, runs_commands: bool = False) -> Stage:
    """A node of 4 GPUs, and one job that runs on it, with more tasks on some than on others."""
    module = Rotas.__module__ if policy is Rotas else __name__
    stage = Stage(Settings(policy=f"{module}:{policy.__name__}", restart_share_max=1.0))
    there = joined(gpus=4, modes=("lockstep", "relaxed"))
    stage.tell(msgspec.structs.replace(there, runs_commands=runs_commands))
    stage.tell(*in_queue("first", demand=(6,), samples=1e9), opened())
    up(stage, stage.plan)
    return stage


def up(stage: Stage, plan: PlanPublished) -> None:
    """Whatever is new in the plan comes up, and whoever takes other turns hears of it."""
    for one in plan.placements:
        job = stage.core.state.jobs[one.job_id]
        if job.placement == one.placement_id:
            if job.running != one.gang:
                stage.tell(
                    TurnsOrdered(
                        at=stage.now,
                        node_id=one.gang.nodes[0],
                        placement_id=one.placement_id,
                        job_id=one.job_id,
                        gang=one.gang,
                        plan_id=plan.plan_id,
                    )
                )
            continue
        at, name = stage.now, one.placement_id
        stage.tell(start_ordered(one.job_id, at=at, place=name))
        stage.tell(worker_started(one.job_id, at=at, place=name, gpu_indices=range(4)))
        stage.tell(msgspec.structs.replace(started(one.job_id, at=at, place=name), gang=one.gang))


def test_a_new_job_shares_the_gpus_without_restarts() -> None:
    stage = stage_of()
    [before] = stage.plan.placements
    stage.until(100.0)
    stage.tell(*in_queue("second", at=100.0, demand=(4,)))
    placements = {str(one.job_id): one for one in stage.plan.placements}
    assert placements["first"].placement_id == before.placement_id
    assert {one.gang.members for one in placements.values()} == {before.gang.members}
    assert sum(one.share for one in placements.values()) == pytest.approx(1.0)
    assert (stage.plan.idle_gpus, idle_gpus(stage.core.state)) == (0, 0)


def test_gpus_of_a_rota_are_claimed_until_its_last_worker_is_gone() -> None:
    stage = stage_of()
    stage.until(100.0)
    stage.tell(*in_queue("second", at=100.0, demand=(4,)))
    up(stage, stage.plan)
    names = {str(one.job_id): one.placement_id for one in stage.plan.placements}
    claimed = []
    for job_id, name in sorted(names.items()):
        stage.tell(completed(job_id, at=stage.now, place=name))
        stage.tell(worker_stopped(job_id, at=stage.now, place=name))
        claimed.append(dict(stage.core.state.claims.claimed))
    assert claimed == [{"node-1": 4}, {}]
    assert stage.core.state.claims.rotas == {}


def test_service_is_counted_by_share() -> None:
    """100 s alone on four GPUs, then 200 s in turns."""
    stage = stage_of()
    stage.until(100.0)
    stage.tell(*in_queue("second", at=100.0, demand=(4,)))
    up(stage, stage.plan)
    begun, names = stage.plan.at, {str(one.job_id): one for one in stage.plan.placements}
    stage.until(300.0)
    served = {}
    for job_id, one in names.items():
        stage.tell(preempted(job_id, at=300.0, place=one.placement_id))
        served[job_id] = stage.core.state.jobs[one.job_id].attained_gpu_s
    assert served["second"] == pytest.approx(4 * names["second"].share * (300.0 - begun))
    assert served["first"] == pytest.approx(4 * begun + 4 * names["first"].share * (300.0 - begun))
    assert sum(served.values()) == pytest.approx(4 * 300.0)


@pytest.mark.parametrize("runs_commands", [False, True])
def test_other_tasks_are_a_new_start_only_for_real_processes(runs_commands: bool) -> None:  # noqa: FBT001
    stage = stage_of(Dealing, runs_commands=runs_commands)
    [before] = stage.plan.placements
    stage.until(360.0)
    stage.tell(opened(at=360.0, number=1))
    stage.until(361.0)
    [after] = stage.plan.placements
    assert after.gang != before.gang
    assert (after.placement_id != before.placement_id) == runs_commands


def test_a_job_that_may_not_be_moved_keeps_its_tasks() -> None:
    """Within the minimum that a job runs, on a node of real processes."""
    stage = stage_of(Dealing, runs_commands=True)
    stage.tell(*in_queue("second", at=359.5, demand=(6,)))
    up(stage, stage.plan)
    before = {str(one.job_id): one for one in stage.plan.placements}["second"]
    stage.until(361.0)
    stage.tell(opened(at=361.0, number=1))
    stage.until(362.0)
    after = {str(one.job_id): one for one in stage.plan.placements}["second"]
    assert after == before


@pytest.mark.parametrize("policy", ["hops", "fifo", "hlas"])
def test_a_job_that_may_not_be_moved_keeps_its_whole_rota_under_every_policy(policy: str) -> None:
    """`first` has run for long and may go; `second` is not preemptible; both are in turns on all GPUs."""
    stage = stage_of()
    stage.until(100.0)
    stage.tell(*in_queue("second", at=100.0, demand=(4,), preemptible=False))
    up(stage, stage.plan)
    before = {str(one.job_id): one.placement_id for one in stage.plan.placements}
    stage.until(3590.0)
    stage.tell(PolicyChosen(at=3590.0, policy=policy), opened(at=3600.0, number=10))
    stage.until(3700.0)
    assert stage.plan.policy == policy
    assert {str(one.job_id): one.placement_id for one in stage.plan.placements} == before
