"""Hare (IEEE TCC 2024), offline: the least weighted completion time of jobs that take turns on unlike GPUs.

A round of a job is a fixed number of tasks, which need neither a GPU each nor the same start. A GPU switches
to another job in milliseconds, and while a job exchanges gradients, the jobs that share its GPUs compute. The
policy plans shares of GPUs (`blocks`), and turns by these shares (`rotas`). It is a reconstruction; see
docs/policies/hare.md.

When the time for planning is out, the jobs that come later in order stay where they are if they can, or else
start on idle GPUs; they join no rota and end none.

It plans whenever a job comes or ends. It knows how long jobs are, and not which jobs are to come. A rota with
a job that may not be moved keeps its jobs and GPUs; only its turns change, and new jobs may join it.
"""

import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import ClassVar

from schemas.ids import JobId, RotaId
from schemas.placement import Gang, Member, Members, Mode, Relaxed
from schemas.plans import Layer, Measures, PlanKind, Stage, Standing, Waiting
from services.planner.policies.contract.configurations import Configurations, explicit
from services.planner.policies.contract.decision import Choice, Decision, Left, Trigger
from services.planner.policies.contract.estimates import Estimated
from services.planner.policies.contract.view import View
from services.planner.policies.hare.blocks import blocks, components
from services.planner.policies.hare.options import HareOptions
from services.planner.policies.hare.parts import Block, HareRoom
from services.planner.policies.hare.places import HarePlace
from services.planner.policies.hare.rotas import PlannedRota, RotaJob, rota_of
from services.planner.policies.hare.scene import HareJob, HareScene, hare_scene
from services.planner.solver.budget import Budget
from services.planner.solver.problem import Solve
from shared.domain import gangs
from shared.domain.sums import plain_sum

WEIGHT_LEAST = 1e-9
STEP_S = 1e-7
"""modelled seconds for each job and GPU, as measured on a common server"""
HURRIED = "the time for planning was out: the jobs that came last in order stay, or start on idle GPUs"
MEASURES = Measures(priority="GPU-seconds left on the fastest GPU over the weight, least first")


class Haste:
    """Whether the time for planning is over. It is asked before each job."""

    def __init__(self, budget: Budget, *, greedy: bool, step_s: float) -> None:
        self._budget, self._step_s = budget, step_s
        self.begun = greedy

    def __call__(self) -> bool:
        self._budget.charge(self._step_s)
        self.begun = self.begun or self._budget.left_s <= 0
        return self.begun


class Hare:
    """The least weighted completion time of jobs that take turns on unlike GPUs: a reconstruction of Hare."""

    Options = HareOptions
    calls: ClassVar[Mapping[Trigger, PlanKind]] = {
        trigger: PlanKind.FIRST for trigger in Trigger if trigger is not Trigger.ROUND
    }
    modes: ClassVar[frozenset[type[Mode]]] = frozenset({Relaxed})
    sees_staying: ClassVar[bool] = True

    def __init__(self, options: HareOptions) -> None:
        self._options = options

    def wants(self, view: View) -> Configurations:
        """No configurations: estimates are not about GPUs that are shared."""
        return explicit((), view.nodes)

    def decide(
        self,
        view: View,
        wanted: Configurations,  # noqa: ARG002 - see `wants`
        estimates: Estimated,  # noqa: ARG002
        solve: Solve,  # noqa: ARG002 - there is no integer program
    ) -> Decision:
        budget = Budget(seconds=view.effort.budget_s, modelled=view.effort.modelled)
        scene = hare_scene(view, self._options.rigid_demand)
        haste = Haste(budget, greedy=view.effort.greedy, step_s=STEP_S * len(scene.owner))
        choices = tuple(_choices(view, scene, self._rotas(scene, haste)))
        placed = {choice.job_id for choice in choices}
        return Decision(
            choices=choices,
            left=tuple(_left(view, scene, placed)),
            stage=Stage.GREEDY if view.effort.greedy else Stage.INCUMBENT if haste.begun else Stage.QUEUE,
            notes=(HURRIED,) if haste.begun and not view.effort.greedy else (),
            measures=MEASURES,
            standings={job.seen.job_id: Standing(priority=job.weighted_s) for job in scene.queue},
            solve_s=STEP_S * max(len(view.jobs) * len(scene.owner), 1) if view.effort.modelled else 0.0,
        )

    def _rotas(self, scene: HareScene, haste: Haste) -> Iterator[tuple[PlannedRota, HarePlace | None]]:
        """The rotas of the plan, each with the present place that it keeps; None: it is a new one."""
        rooms = blocks(
            map(scene.block, scene.queue),
            scene.gpus,
            scene.held,
            self._options.residents_max,
            kinds=scene.kinds,
            alike=scene.alike,
            hurries=haste,
        )
        jobs = {block.job: _rota_job(scene, block) for room in rooms for block in room.blocks}
        rota = partial(rota_of, jobs=jobs, switch_s=self._options.switch_s)
        for room in rooms:
            place = scene.places[room.held] if room.held is not None else None
            whole = rota(room.blocks, gpus=room.gpus)
            if place is None or place.kept or not _parts(room):
                yield whole, place
                continue
            parts = [rota(part) for part in _parts(room)]
            restart_s = plain_sum(
                scene.restart_s(member.block.job, part.gpus)
                for part in parts
                for member in part.members
                if scene.queue[member.block.job].seen.job_id in place.tasks
            )
            if whole.left_s <= plain_sum(part.left_s for part in parts) + restart_s:
                yield whole, place
            else:
                yield from ((part, None) for part in parts)


def _parts(room: HareRoom) -> list[list[Block]]:
    """The groups of a room's jobs that share GPUs; empty if all jobs are in one group."""
    found = list(components(room.blocks))
    return found if len(found) > 1 else []


def _rota_job(scene: HareScene, block: Block) -> RotaJob:
    job = scene.queue[block.job]
    return RotaJob(
        task_s=scene.task_s(job, block.tasks), rounds=job.rounds, weight=max(job.seen.priority, WEIGHT_LEAST)
    )


def _choices(
    view: View, scene: HareScene, rotas: Iterable[tuple[PlannedRota, HarePlace | None]]
) -> Iterator[Choice]:
    names = {gangs.rota(present.gang) for present in view.apart.values()}
    for rota, here in rotas:
        place = scene.place(rota.gpus)
        members = tuple(Member(node, len(gpus)) for node, gpus in place.items())
        jobs = [scene.queue[member.block.job] for member in rota.members]
        keeps = here and (here.kept or here.rota not in names)
        name = here.rota if here and keeps else _name(view, members, jobs, names)
        names.add(name)
        for order, (job, member) in enumerate(zip(jobs, rota.members, strict=True)):
            own = [member.block.tasks.get(gpu, 0) for gpu in rota.gpus]
            tasks = tuple(tuple(own[position] for position in positions) for positions in place.values())
            alone = Relaxed(tasks=tasks)
            in_turn = Relaxed(tasks=tasks, rota=name, turns=member.turns, place=order)
            gang = Gang(members, in_turn if name else alone)
            yield Choice(
                job_id=job.seen.job_id,
                gang=gang,
                throughput=member.turns * gangs.global_batch(gang, job.seen.batch_size) / rota.cycle_s,
                layer=Layer.THEORY,
                share=member.share if name else 1.0,
            )


def _name(view: View, members: Members, jobs: Sequence[HareJob], taken: Collection[RotaId]) -> RotaId:
    """The name of a rota: that of a rota which one of the jobs has on these members, else a new one.

    Two rotas on equally many GPUs of the same nodes have different names, also in different plans. A job that
    is alone has a rota, too, so that a later job can join it without moving it.
    """
    present = [job.seen.present.gang for job in jobs if job.seen.present is not None]
    known = {gangs.rota(gang) for gang in present if gang.members == members} - {RotaId(""), *taken}
    if known:
        return min(known)
    what = f"{view.at!r} {[(one.node, one.gpus) for one in members]} {jobs[0].seen.job_id}"
    return RotaId(f"rota-{hashlib.blake2b(what.encode(), digest_size=6).hexdigest()}")


def _left(view: View, scene: HareScene, placed: set[JobId]) -> Iterator[Left]:
    """Why jobs get no GPUs: those of the queue in its order, then those that can run nowhere."""
    queued = [job.seen.job_id for job in scene.queue]
    for job_id in queued:
        if job_id not in placed:
            yield Left(job_id=job_id, reason=Waiting.OUTWEIGHED)
    known = set(queued)
    for job in view.jobs:
        if job.job_id not in known:
            yield Left(job_id=job.job_id, reason=Waiting.NO_CONFIGURATION)
