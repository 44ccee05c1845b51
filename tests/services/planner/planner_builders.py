"""What planner tests build from: every field has a default, a test names only what it is about."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from schemas.base import Event
from schemas.events import PlanPublished
from schemas.ids import GpuType, JobId, NodeId, PlacementId
from schemas.placement import Configuration, Gang
from schemas.plans import Layer, PlanKind
from schemas.settings import Settings
from services.planner.core.planner import Planner
from services.planner.core.state import State
from services.planner.core.tasks import Leadership, Look, Prepare, Prepared, Resolve, Resolved
from services.planner.policies.contract.checks import misfit
from services.planner.policies.contract.configurations import Configurations
from services.planner.policies.contract.decision import Decision
from services.planner.policies.contract.estimates import Estimated, unknown
from services.planner.policies.contract.view import Present, View, ViewJob, ViewNode
from services.planner.policies.registry import Registry
from services.planner.solver import solve
from services.planner.solver.effort import Effort
from services.planner.work.steps import Decide, PolicyFailed, Want, decided_by, looked_at, wanted_by
from shared.domain.core import Effect, Effects, Input, Publish, Work, WorkFailed
from shared.domain.policy_names import written
from shared.runtime.shell.snapshots import packed, unpacked

MODELLED = Effort(modelled=True, node_limit=200)
FAST = GpuType("a")
SLOW = GpuType("b")

Estimator = Callable[[Configurations], Estimated]


def node(name: str, idle: int = 8, *, gpus: int = 8, gpu_type: str = FAST) -> ViewNode:
    return ViewNode(node_id=NodeId(name), gpu_type=GpuType(gpu_type), gpus=gpus, idle=idle)


def nodes(*idle: int, gpu_type: str = FAST) -> tuple[ViewNode, ...]:
    """Nodes `a0`, `a1`, … of 8 GPUs, with so many idle."""
    return tuple(node(f"{gpu_type}{index}", free, gpu_type=gpu_type) for index, free in enumerate(idle))


def job(name: str = "job", demand: Sequence[int] = (1,), **fields: Any) -> ViewJob:  # noqa: ANN401 - fields of ViewJob
    defaults: dict[str, Any] = {
        "submitted_at": 0.0,
        "gpu_types": (FAST,),
        "single_gpu": dict.fromkeys(fields.get("gpu_types", (FAST,)), 10.0),
        "sensitivity": 1.0,
        "age_s": 100.0,
        "wait_s": 10.0,
        "attained_gpu_s": 0.0,
        "received_s": {},
        "restarts": 0,
        "samples": 1000.0,
        "samples_done": 0.0,
        "batch_most": dict.fromkeys(fields.get("gpu_types", (FAST,)), 64 * int(fields.get("batch_size", 1))),
    }
    return ViewJob(**{**defaults, **fields, "job_id": JobId(name), "demand": tuple(demand)})


def present(**place: int) -> Present:
    return Present(
        placement_id=PlacementId("there"),
        gang=Gang.of(place_on(**place)),
        throughput=10.0,
        layer=Layer.THEORY,
    )


def place_on(**gpus: int) -> Configuration:
    return {NodeId(name): count for name, count in gpus.items()}


def view(
    jobs: Iterable[ViewJob] = (),
    cluster: Iterable[ViewNode] = (),
    *,
    kind: PlanKind = PlanKind.FIRST,
    at: float = 100.0,
    effort: Effort = MODELLED,
) -> View:
    members = tuple(jobs)
    return View(
        at=at,
        round=0,
        round_s=360.0,
        kind=kind,
        nodes=tuple(cluster),
        jobs=members,
        jobs_present=len(members),
        effort=effort,
        restart_s=15.0,
    )


def linear(wanted: Configurations) -> Estimated:
    """An estimator: 10 samples/s a GPU, a fifth less where a gang is spread."""
    total = np.add.reduceat(wanted.gpus, wanted.start[:-1]) if len(wanted) else np.empty(0)
    spread = np.where(np.diff(wanted.start) > 1, 0.8, 1.0)
    return Estimated(throughput=10.0 * total * spread, layer=np.full(len(wanted), 2, dtype=np.uint8))


def silent(wanted: Configurations) -> Estimated:
    """An estimator that does not answer, where no earlier plan is remembered."""
    return unknown(len(wanted))


def decide(
    policy: str,
    seen: View,
    estimator: Estimator = linear,
    registry: Registry | None = None,
    **options: object,
) -> Decision:
    """One decision of a policy, from the view to the end; without a registry, of one built for it."""
    registry, policy = registry or Registry(), written(policy, options)
    wanted = wanted_by(registry, Want(policy=policy, view=seen))
    assert isinstance(wanted, Configurations), wanted
    assert misfit(seen, wanted) is None
    step = Decide(policy=policy, view=seen, wanted=wanted, estimates=estimator(wanted))
    decision = decided_by(registry, step, solve)
    assert isinstance(decision, Decision), decision
    return decision


def chosen(decision: Decision) -> dict[str, Configuration]:
    return {choice.job_id: choice.gang.configuration for choice in decision.choices}


class Stage:
    """A planner's core, with a stream that brings its facts back and work that is done at once."""

    def __init__(self, settings: Settings | None = None, *, leads: bool = True, grace_s: float = 2.0) -> None:
        self.settings = settings or Settings()
        self.registry = Registry()
        self.core = Planner(self.settings, effort=MODELLED, grace_s=grace_s)
        self.now = 0.0
        self.facts: list[Event] = []
        self.estimator: Estimator = linear
        self.work_s = 0.0
        """how long a policy's decision takes"""
        self.fails = 0
        """so many pieces of work fail as a whole"""
        self.at_work: list[tuple[float, Resolved]] = []
        self.looks = True
        """whether a look at a policy is answered"""
        self._do(self.core.resume(0.0))
        if leads:
            self.lead(1)

    @property
    def plans(self) -> list[PlanPublished]:
        return [fact for fact in self.facts if isinstance(fact, PlanPublished)]

    @property
    def plan(self) -> PlanPublished:
        return self.plans[-1]

    def lead(self, token: int | None, *, announce: bool = False) -> None:
        self._do(self.core.handle(Leadership(token=token, announce=announce), self.now))

    def tell(self, *facts: Event) -> None:
        for fact in facts:
            self.now = max(self.now, fact.at)
            self.facts.append(fact)
            self.core.state.seq = len(self.facts)
            self._do(self.core.handle(fact, self.now))

    def replay(self, *facts: Event) -> None:
        """A new life with a past: what its facts had as effects is out already."""
        self.core = Planner(self.settings, effort=MODELLED, grace_s=2.0)
        for fact in facts:
            self.now = max(self.now, fact.at)
            self.facts.append(fact)
            self.core.state.seq = len(self.facts)
            self.core.handle(fact, fact.at)
        self._do(self.core.resume(self.now))

    def restart(self, settings: Settings) -> None:
        """A new life from a snapshot, with other settings."""
        _, state, _ = unpacked(packed(0, self.core.state, []), State)
        self.settings = settings
        self.core = Planner(settings, effort=MODELLED, grace_s=2.0)
        self.core.state = state
        self._do(self.core.resume(self.now))
        self.lead(2)

    def hear_of(self, policy: str) -> None:
        """A look at a policy is answered late."""
        self._do(self.core.handle(looked_at(self.registry, Look(policy=policy)), self.now))

    def hear(self, message: Input) -> Effects:
        return self.core.handle(message, self.now)

    def until(self, at: float) -> None:
        """Let time pass, timers and answers included."""
        while (due := self._next()) is not None and due <= at:
            self.now = max(self.now, due)
            if self.at_work and self.at_work[0][0] <= self.now:
                self._do(self.core.handle(self.at_work.pop(0)[1], self.now))
            else:
                self._do(self.core.wake(self.now))
                after = self.core.next_wakeup()
                assert after is None or after > due
        self.now = at

    def _next(self) -> float | None:
        times = [self.core.next_wakeup(), *(at for at, _ in self.at_work)]
        return min((time for time in times if time is not None), default=None)

    def _do(self, effects: Effects) -> None:
        for effect in effects:
            self._perform(effect)

    def _perform(self, effect: Effect) -> None:
        match effect:
            case Publish(event):
                self.tell(event)
            case Work(Prepare() | Resolve() as task) if self.fails:
                self.fails -= 1
                self._do(self.core.handle(WorkFailed(task, "TimeoutError: too long"), self.now))
            case Work(Look() as task):
                if self.looks:
                    self._do(self.core.handle(looked_at(self.registry, task), self.now))
            case Work(Prepare() as task):
                self._do(self.core.handle(self._prepared(task), self.now))
            case Work(Resolve() as task):
                self._resolve(task)
            case _:
                raise AssertionError(effect)

    def _prepared(self, task: Prepare) -> Prepared:
        want = Want(policy=task.policy, view=task.view, stands_in=task.stands_in)
        wanted = wanted_by(self.registry, want)
        assert isinstance(wanted, Configurations), wanted
        assert misfit(task.view, wanted) is None
        return Prepared(
            number=task.number,
            policy=task.policy,
            wanted=wanted,
            estimates=self.estimator(wanted),
            unanswered=self.estimator is silent,
        )

    def _resolve(self, task: Resolve) -> None:
        step = Decide(
            policy=task.policy,
            view=task.view,
            wanted=task.wanted,
            estimates=task.estimates,
            stands_in=task.stands_in,
        )
        decision = decided_by(self.registry, step, solve)
        assert not isinstance(decision, PolicyFailed), decision
        answer = Resolved(number=task.number, decision=decision)
        if self.work_s:
            self.at_work.append((self.now + self.work_s, answer))
        else:
            self._do(self.core.handle(answer, self.now))
