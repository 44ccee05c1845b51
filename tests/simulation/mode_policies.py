"""Policies for tests: first come, first served, in modes that no policy that ships plans."""

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar

import msgspec

from schemas.ids import GpuType, JobId, NodeId, RotaId
from schemas.placement import Configuration, Forked, Gang, Member, Mode, Proportional, Relaxed
from schemas.plans import Layer, PlanKind, Waiting
from services.planner.policies.classical.fifo import FifoSkipping
from services.planner.policies.contract.configurations import Configurations, listed
from services.planner.policies.contract.decision import ROUNDS, Choice, Decision, Left, Trigger
from services.planner.policies.contract.estimates import Estimated
from services.planner.policies.contract.view import View, ViewJob, ViewNode
from services.planner.solver.problem import Solve
from shared.domain import gangs
from shared.domain.rota import Turn, period


class InMode(FifoSkipping):
    """What `fifo-skipping` decides, each gang made into one of the mode; who runs in it stays."""

    modes: ClassVar[tuple[type[Mode], ...]]

    def decide(
        self, view: View, wanted: Configurations, estimates: Estimated, solve: Solve | None = None
    ) -> Decision:
        made = super().decide(view, wanted, estimates, solve)
        return msgspec.structs.replace(
            made, choices=tuple(self._in_mode(view, choice) for choice in made.choices)
        )

    def _in_mode(self, view: View, choice: Choice) -> Choice:
        job = next(job for job in view.jobs if job.job_id == choice.job_id)
        here = job.present
        if here is not None and here.gang.configuration == choice.gang.configuration:
            return msgspec.structs.replace(choice, gang=here.gang, throughput=here.throughput)
        types = {node.node_id: node.gpu_type for node in view.nodes}
        speed = {node: job.single_gpu[types[node]] for node in choice.gang.nodes}
        gang = self.gang(choice.gang, job, speed)
        rate = gangs.throughput(gang, [speed[node] for node in gang.nodes], job.batch_size)
        return msgspec.structs.replace(choice, gang=gang, throughput=rate)

    @abstractmethod
    def gang(self, gang: Gang, job: ViewJob, speed: Mapping[NodeId, float]) -> Gang:
        """`speed`: samples/s of one GPU."""


class BySpeed(InMode):
    modes = (Proportional,)

    def gang(self, gang: Gang, job: ViewJob, speed: Mapping[NodeId, float]) -> Gang:
        return gangs.proportional(gang.configuration, speed, job.batch_size)


class InTurns(InMode):
    """Half of the GPUs with two tasks each, where their numbers are even; else a task each."""

    modes = (Relaxed,)

    def gang(self, gang: Gang, job: ViewJob, speed: Mapping[NodeId, float]) -> Gang:  # noqa: ARG002
        tasks = 1 if any(one.gpus % 2 for one in gang.members) else 2
        members = tuple(Member(one.node, one.gpus // tasks) for one in gang.members)
        return Gang(members, Relaxed(tasks=tuple((tasks,) * one.gpus for one in members)))


class Waves:
    """Those that have had least go first, on whatever GPUs are free, up to a task each; types are mixed."""

    modes = (Relaxed,)
    calls: ClassVar[Mapping[Trigger, PlanKind]] = ROUNDS

    def wants(self, view: View) -> Configurations:
        return listed([], view.nodes)

    def decide(
        self, view: View, wanted: Configurations, estimates: Estimated, solve: Solve | None = None
    ) -> Decision:
        del wanted, estimates, solve
        free = {node.node_id: node.idle for node in view.nodes}
        choices, left = [], []
        for job in sorted(view.jobs, key=lambda job: (job.attained_gpu_s, job.job_id)):
            choice = self._wave(view, job, free)
            if choice is None:
                left.append(Left(job_id=job.job_id, reason=Waiting.NO_CONFIGURATION))
            else:
                choices.append(choice)
                for one in choice.gang.members:
                    free[one.node] -= one.gpus
        return Decision(choices=tuple(choices), left=tuple(left))

    def _wave(self, view: View, job: ViewJob, free: Mapping[NodeId, int]) -> Choice | None:
        tasks = job.demand[-1]
        speed = {node.node_id: job.single_gpu.get(node.gpu_type, 0.0) for node in view.nodes}
        slots = [(node, index) for node in sorted(free) if speed[node] for index in range(free[node])]
        taken = sorted(slots[: max(tasks - 1, 1)])
        if not taken:
            return None
        queued = dict.fromkeys(taken, 0)
        for _ in range(tasks):
            queued[min(taken, key=lambda slot: ((queued[slot] + 1) / speed[slot[0]], slot))] += 1
        used = [slot for slot in taken if queued[slot]]
        nodes = sorted({node for node, _ in used})
        gang = Gang.of(
            {node: sum(one == node for one, _ in used) for node in nodes},
            Relaxed(tasks=tuple(tuple(queued[slot] for slot in used if slot[0] == node) for node in nodes)),
        )
        rate = gangs.throughput(gang, [speed[node] for node in nodes], job.batch_size)
        return Choice(job_id=job.job_id, gang=gang, throughput=rate, layer=Layer.THEORY)


class Rotas:
    """A rota on all nodes named `…0`, one on all `…1`, with tasks dealt by speed.

    Of more than two jobs the eldest is resident only. Who stays keeps its rota, and others join that.
    """

    modes = (Relaxed,)
    calls: ClassVar[Mapping[Trigger, PlanKind]] = dict.fromkeys(Trigger, PlanKind.FIRST)
    sees_staying = True

    def wants(self, view: View) -> Configurations:
        return listed([], view.nodes)

    def decide(
        self, view: View, wanted: Configurations, estimates: Estimated, solve: Solve | None = None
    ) -> Decision:
        del wanted, estimates, solve
        by_name = [[node for node in view.nodes if node.node_id.endswith(end)] for end in "01"]
        halves = [half for half in by_name if half]
        groups: list[list[ViewJob]] = [[] for _ in halves]
        for job in view.jobs:
            nodes = job.present.gang.nodes if job.present else ()
            own = [n for n, half in enumerate(halves) if {node.node_id for node in half} >= {*nodes}]
            fits = [n for n in own if any(node.gpu_type in job.gpu_types for node in halves[n])]
            if fits:
                groups[min(fits, key=lambda n: len(groups[n]))].append(job)
        choices = [
            choice
            for half, jobs in zip(halves, groups, strict=True)
            for place, those in _places(half, jobs)
            for choice in _in_turns(half, place, those)
        ]
        placed = {choice.job_id for choice in choices}
        left = [job.job_id for job in view.jobs if job.job_id not in placed]
        return Decision(
            choices=tuple(choices),
            left=tuple(Left(job_id=job_id, reason=Waiting.NO_CONFIGURATION) for job_id in left),
        )


class Apart(Rotas):
    """A job that its rota's last node has GPUs enough for has all its tasks there, and none on the others."""

    def decide(
        self, view: View, wanted: Configurations, estimates: Estimated, solve: Solve | None = None
    ) -> Decision:
        made = super().decide(view, wanted, estimates, solve)
        return msgspec.structs.replace(made, choices=tuple(map(_on_the_last, made.choices)))


def _on_the_last(choice: Choice) -> Choice:
    members, sync = choice.gang.members, choice.gang.sync
    assert isinstance(sync, Relaxed)
    tasks, last = sum(map(sum, sync.tasks)), members[-1].gpus
    if tasks > last:
        return choice
    of_last = gangs.divided(tasks, (1.0,) * last)
    dealt = (*((0,) * one.gpus for one in members[:-1]), of_last)
    return msgspec.structs.replace(choice, gang=Gang(members, msgspec.structs.replace(sync, tasks=dealt)))


def _places(
    half: Sequence[ViewNode], jobs: Sequence[ViewJob]
) -> Iterator[tuple[Configuration, list[ViewJob]]]:
    kept: dict[Gang, list[ViewJob]] = {}
    for job in jobs:
        if job.stays and job.present:
            kept.setdefault(Gang(job.present.gang.members), []).append(job)
    idle = {node.node_id: node.idle for node in half if node.idle}
    together = kept or ({Gang.of(idle): []} if idle else {})
    if not together:
        return
    next(iter(together.values())).extend([job for job in jobs if not (job.stays and job.present)])
    for place, those in together.items():
        yield place.configuration, sorted(those, key=lambda job: job.submitted_at)


def _in_turns(half: Sequence[ViewNode], place: Configuration, jobs: Sequence[ViewJob]) -> Iterator[Choice]:
    types = {node.node_id: node.gpu_type for node in half}
    slots = [(node, gpu) for node in sorted(place) for gpu in range(place[node])]
    given = [(job, queued) for job in jobs if (queued := _dealt(job, slots, types))]
    rounds = [0 if len(given) > 2 and not n else 1 + n % 2 for n in range(len(given))]
    turns = [
        Turn(
            busy_s=[
                [k * job.batch_size / job.single_gpu.get(types[node], 1.0) for (node, _), k in q.items()]
            ],
            exchange_s=0.0,
            switch_s=0.0,
            rounds=times,
        )
        for (job, q), times in zip(given, rounds, strict=True)
        if times
    ]
    cycle_s = period(turns) if turns else 1.0
    for n, ((job, queued), times) in enumerate(zip(given, rounds, strict=True)):
        tasks = tuple(tuple(k for (where, _), k in queued.items() if where == node) for node in sorted(place))
        sync = Relaxed(
            tasks=tasks,
            rota=RotaId("+".join(f"{node}:{place[node]}" for node in sorted(place))),
            turns=times,
            place=n,
        )
        yield Choice(
            job_id=job.job_id,
            gang=Gang.of(place, sync),
            throughput=times * sum(queued.values()) * job.batch_size / cycle_s,
            layer=Layer.THEORY,
            share=times / max(sum(rounds), 1),
        )


def _dealt(
    job: ViewJob, slots: Sequence[tuple[NodeId, int]], types: Mapping[NodeId, GpuType]
) -> dict[tuple[NodeId, int], int]:
    """Tasks by GPU, those of a round each where it ends first; empty: none can have any."""
    usable = [slot for slot in slots if types[slot[0]] in job.gpu_types]
    queued = dict.fromkeys(slots, 0)
    for _ in range(job.demand[-1] if usable else 0):
        queued[min(usable, key=lambda s: ((queued[s] + 1) / job.single_gpu[types[s[0]]], s))] += 1
    return queued if usable else {}


class Copies:
    """Nodes dealt out to the jobs in turn, each a copy on as many of its GPUs as the job can use there."""

    modes = (Forked,)
    calls: ClassVar[Mapping[Trigger, PlanKind]] = ROUNDS

    def wants(self, view: View) -> Configurations:
        return listed([], view.nodes)

    def decide(
        self, view: View, wanted: Configurations, estimates: Estimated, solve: Solve | None = None
    ) -> Decision:
        del wanted, estimates, solve
        hands = self._deal(view)
        choices = tuple(_copies(job, hands[job.job_id]) for job in view.jobs if hands[job.job_id])
        left = [job.job_id for job in view.jobs if not hands[job.job_id]]
        return Decision(
            choices=choices,
            left=tuple(Left(job_id=job_id, reason=Waiting.NO_CONFIGURATION) for job_id in left),
        )

    def _deal(self, view: View) -> dict[JobId, dict[ViewNode, int]]:
        hands: dict[JobId, dict[ViewNode, int]] = {job.job_id: {} for job in view.jobs}
        for place, node in enumerate(view.nodes):
            for job in (*view.jobs[place % max(len(view.jobs), 1) :], *view.jobs):
                most = max((gpus for gpus in job.demand if gpus <= node.idle), default=0)
                if most and node.gpu_type in job.gpu_types:
                    hands[job.job_id][node] = most
                    break
        return hands


def _copies(job: ViewJob, hand: Mapping[ViewNode, int]) -> Choice:
    """Shares by the speed of a single GPU."""
    speed = {node.node_id: gpus * job.single_gpu[node.gpu_type] for node, gpus in hand.items()}
    whole = sum(speed.values())
    nodes = sorted(hand, key=lambda node: node.node_id)
    return Choice(
        job_id=job.job_id,
        gang=Gang.of(
            {node.node_id: hand[node] for node in nodes},
            Forked(shares=tuple(speed[node.node_id] / whole for node in nodes)),
        ),
        throughput=whole,
        layer=Layer.THEORY,
    )
