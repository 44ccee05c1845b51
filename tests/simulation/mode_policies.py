"""Policies for tests: first come, first served, in modes that no policy that ships plans."""

from abc import abstractmethod
from collections.abc import Mapping
from typing import ClassVar

import msgspec

from schemas.ids import JobId, NodeId
from schemas.placement import Forked, Gang, Member, Mode, Proportional, Relaxed
from schemas.plans import Layer, PlanKind, Waiting
from services.planner.policies.classical.fifo import FifoSkipping
from services.planner.policies.contract.configurations import Configurations, listed
from services.planner.policies.contract.decision import ROUNDS, Choice, Decision, Left, Trigger
from services.planner.policies.contract.estimates import Estimated
from services.planner.policies.contract.view import View, ViewJob, ViewNode
from services.planner.solver.problem import Solve
from shared.domain import gangs


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
