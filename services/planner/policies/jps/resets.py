"""Policies that decide at resets: when jobs come or go, and when nodes do (JPS, section IV).

At a reset all jobs are decided together, except those that may not be moved. While other jobs are still
measured, no job is started, for at most `gather_s`, so that jobs that came together are decided together.

A subclass lists the gangs that it considers (`draft`), and chooses among them once they are estimated
(`pick`).
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar

import msgspec

from schemas.placement import Gang, Lockstep, Mode, Proportional
from schemas.plans import Measures, PlanKind, Standing
from services.planner.policies.contract.configurations import Configurations
from services.planner.policies.contract.decision import Choice, Decision, Trigger
from services.planner.policies.contract.estimates import Estimated
from services.planner.policies.contract.view import View
from services.planner.policies.jps.options import ResetOptions
from services.planner.policies.jps.scene import Scene, scene
from services.planner.policies.jps.speeds import Answers, AskedGang, GangSpeeds, answers, question, speeds
from services.planner.solver.problem import Solve

RESETS: Mapping[Trigger, PlanKind] = {
    trigger: PlanKind.FIRST for trigger in Trigger if trigger is not Trigger.ROUND
}
ROW_S = 6e-5
"""modelled seconds for each gang that is looked at, as measured on a common server"""
GATHERING = "other jobs are still measured"
MEASURES = Measures(gain="samples/s")

Alternatives = tuple[Gang, ...]
"""gangs of one job, of which the fastest is taken"""


class Draft(msgspec.Struct, frozen=True, kw_only=True):
    """The plans that a policy considers."""

    plans: tuple[tuple[Alternatives, ...], ...] = ()
    """by plan, by job"""
    looked_at: int = 0
    """how many categories, or gangs, were considered"""
    notes: tuple[str, ...] = ()
    refusal: str = ""
    """why the policy considers no plan, and running jobs keep their places; empty: it does"""

    @property
    def gangs(self) -> Iterator[tuple[int, Gang]]:
        """Each gang of each plan, with the position of its job."""
        for plan in self.plans:
            for job, gangs in enumerate(plan):
                for gang in gangs:
                    yield job, gang


class Picked(msgspec.Struct, frozen=True, kw_only=True):
    """The plan that a policy takes."""

    gangs: tuple[Gang | None, ...]
    """gangs by job; None: the job gets no GPUs"""
    mean_s: float = 0.0
    """the mean Λ, as estimated"""
    answers: Answers | None = None
    """the estimates of the gangs, if they are not those that were asked about; None: they are"""


class Gathered(msgspec.Struct, frozen=True):
    """The policy's memory."""

    since: float
    """cluster time at which it began to wait for jobs that are measured"""


class Prospect(msgspec.Struct, frozen=True):
    """What a policy has computed from a view, before any estimate."""

    view: View
    scene: Scene
    speeds: GangSpeeds
    draft: Draft
    asked: tuple[AskedGang, ...]
    since: float | None
    """see `Gathered`; None: no job is waited for"""


class AtResets(ABC):
    """See the module."""

    calls: ClassVar[Mapping[Trigger, PlanKind]] = RESETS
    sees_staying: ClassVar[bool] = True
    modes: ClassVar[frozenset[type[Mode]]] = frozenset({Lockstep, Proportional})
    asks_modes: ClassVar[bool] = True
    equal: bool = False
    """whether GPUs have equal shares of the global batch, whatever their speeds"""

    def __init__(self, options: ResetOptions) -> None:
        self._common = options
        self._last: Prospect | None = None

    @abstractmethod
    def draft(self, scene: Scene, speeds: GangSpeeds) -> Draft:
        """The gangs that may be taken; their throughputs will be estimated."""

    @abstractmethod
    def pick(self, scene: Scene, speeds: GangSpeeds, draft: Draft, answered: Answers) -> Picked:
        """The plan that is taken, given the estimates of the draft's gangs."""

    # ---- the contract of a policy

    def wants(self, view: View) -> Configurations:
        seen = self._prospect(view)
        return question(seen.scene.jobs, seen.asked, view.nodes)

    def decide(
        self,
        view: View,
        wanted: Configurations,
        estimates: Estimated,
        solve: Solve,  # noqa: ARG002 - there is no integer program
    ) -> Decision:
        seen = self._prospect(view)
        answered = answers(seen.asked, wanted, estimates)
        picked = (
            self.pick(seen.scene, seen.speeds, seen.draft, answered) if seen.scene.jobs else Picked(gangs=())
        )
        chosen = _choices(seen, picked, answered if picked.answers is None else picked.answers)
        choices = (*seen.scene.kept, *chosen)
        return Decision(
            choices=choices,
            left=tuple(seen.scene.waiting([choice.job_id for choice in chosen])),
            measures=MEASURES,
            standings={one.job_id: Standing(gain=one.throughput) for one in chosen},
            objective=picked.mean_s,
            solve_s=ROW_S * (1 + len(view.jobs) + sum(1 for _ in seen.draft.gangs)),
            configurations=seen.draft.looked_at,
            memory=b"" if seen.since is None else msgspec.json.encode(Gathered(seen.since)),
            again_at=self._again_at(seen, sum(one.gang.gpus for one in choices)),
            notes=seen.draft.notes,
        )

    def _prospect(self, view: View) -> Prospect:
        """The prospect of a view; computed once for each view."""
        if self._last is None or self._last.view is not view:
            since = _since(view)
            waits = GATHERING if self._gathers(view, since) else ""
            shown = scene(view, static=self._common.static, held_back=waits)
            known = self._speeds(shown)
            draft = self.draft(shown, known) if shown.jobs else Draft()
            if draft.refusal:
                shown = scene(view, static=True, held_back=draft.refusal)
                known, draft = self._speeds(shown), Draft(notes=(draft.refusal,))
            asked = _asked(draft) if self._common.law == "iteration" else ()
            self._last = Prospect(view, shown, known, draft, asked, since)
        return self._last

    def _speeds(self, shown: Scene) -> GangSpeeds:
        common = self._common
        return speeds(shown, law=common.law, equal=self.equal, share_max=common.share_max)

    def _gathers(self, view: View, since: float | None) -> bool:
        return since is not None and view.at < since + self._common.gather_s

    def _again_at(self, seen: Prospect, gpus: int) -> float | None:
        """When the wait for measured jobs ends; or a round later, if GPUs idle as jobs may not move yet.

        `gpus`: how many GPUs the plan gives to jobs.
        """
        if seen.since is not None and seen.scene.held_back == GATHERING:
            return seen.since + self._common.gather_s
        pinned = not self._common.static and any(job.stays for job in seen.view.jobs)
        return seen.view.at + seen.view.round_s if pinned and gpus < seen.view.idle_gpus else None


def _asked(draft: Draft) -> tuple[AskedGang, ...]:
    """Each gang of the draft once, those of a job together."""
    found = dict.fromkeys(draft.gangs)
    return tuple(sorted(found, key=lambda each: each[0]))


def _choices(seen: Prospect, picked: Picked, answered: Answers) -> list[Choice]:
    found = []
    for job, gang in enumerate(picked.gangs):
        if gang is not None:
            speed, layer = seen.speeds.throughput(job, gang, answered)
            found.append(Choice(job_id=seen.scene.jobs[job].job_id, gang=gang, throughput=speed, layer=layer))
    return found


def _since(view: View) -> float | None:
    """Since when jobs that are still measured are waited for; None: there are none."""
    if view.kind == PlanKind.FRAGMENT or not view.jobs_coming:
        return None
    try:
        since = msgspec.json.decode(view.memory, type=Gathered).since
    except (msgspec.DecodeError, UnicodeDecodeError):
        return view.at
    return min(since, view.at)


def fastest(speeds: GangSpeeds, job: int, gangs: Sequence[Gang], answered: Answers) -> tuple[float, Gang]:
    """The least Λ of a job on any of these gangs, and that gang; ties: the first."""
    return min(((speeds.completion_s(job, gang, answered), gang) for gang in gangs), key=lambda pair: pair[0])
