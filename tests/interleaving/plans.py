"""Random plans, which keep to what the planner's state knows of nodes, claims and rotas.

A first plan keeps some placements, and places other jobs on what is left. A fragment places jobs that wait.
"""

from collections.abc import Iterator
from random import Random

from msgspec.structs import replace

from schemas.events import PlanPublished
from schemas.ids import JobId, NodeId, PlanId, RotaId
from schemas.placement import Forked, Gang, Member, Members, Mode, Relaxed
from schemas.plans import Placement, PlanKind, Waiting
from services.planner.core.state import State, TrackedJob
from shared.domain import gangs
from tests.fact_builders import left_out, placement, plan

OPEN = ("queued", "running", "preempted")
TOGETHER = 3
"""jobs in a rota, at most"""
NOT_LOCKSTEP = 0.4
"""how likely a gang is of another mode, where it can be"""

Free = dict[NodeId, int]


class Planning:
    """One plan in the making."""

    def __init__(self, state: State, random: Random, number: int, mode: type[Mode], keep: float) -> None:
        """`mode`: of some gangs. `keep`: how likely a placement stays in a first plan."""
        self._state, self._random = state, random
        self._number, self._mode, self._keep = number, mode, keep
        self._free: Free = {}
        self._rotas: dict[RotaId, list[Placement]] = {}

    def made(self, kind: PlanKind, at: float) -> PlanPublished | None:
        """None: there is nothing to say."""
        state, first = self._state, kind is PlanKind.FIRST
        taken = state.claims.reserved() if first else state.claims.claimed
        self._free = {
            name: known.node.gpus - taken.get(name, 0) for name, known in state.nodes.items() if known.usable
        }
        kept = list(self._kept()) if first else []
        placed = {one.job_id for one in kept}
        jobs = [name for name, job in state.jobs.items() if job.status in OPEN and name not in placed]
        if not first:
            jobs = [name for name in jobs if name in state.waiting and name not in state.claims.of_job]
        self._random.shuffle(jobs)
        drawn = {job_id: self._drawn(job_id) for job_id in jobs}
        new = [one for one in drawn.values() if one]
        rotas = [one for together in self._rotas.values() for one in self._timed(together)]
        placements = [one for one in kept + new if not gangs.rota(one.gang)] + rotas
        if not (placements or first):
            return None
        missing = [left_out(name, Waiting.NO_CONFIGURATION) for name, one in drawn.items() if not one]
        return plan(
            *placements,
            at=at,
            plan_id=PlanId(f"plan-{self._number}"),
            kind=kind,
            round=self._number,
            made_from=state.seq,
            left_out=tuple(missing) if first else (),
        )

    # ---- what stays

    def _kept(self) -> Iterator[Placement]:
        claims = self._state.claims
        for job_id, job in self._state.jobs.items():
            one = claims.placement_of(job_id) if job.status in OPEN else None
            if one is None or one.placement_id in claims.broken or self._random.random() >= self._keep:
                continue
            if not gangs.merges(one.gang) and self._take(one):
                yield one

    def _take(self, one: Placement) -> bool:
        """Take its GPUs, if they are free, or its rota has them."""
        members, name = one.gang.members, gangs.rota(one.gang)
        together = self._rotas.get(name, [])
        if together and together[0].gang.members != members:
            return False
        if not together:
            if any(self._free.get(member.node, 0) < member.gpus for member in members):
                return False
            for member in members:
                self._free[member.node] -= member.gpus
        if name:
            self._rotas.setdefault(name, []).append(one)
        return True

    def _timed(self, together: list[Placement]) -> Iterator[Placement]:
        """The placements of a rota, with turns and places drawn anew."""
        self._random.shuffle(together)
        for place, one in enumerate(together):
            assert isinstance(one.gang.sync, Relaxed)
            sync = replace(one.gang.sync, turns=self._random.choice((1, 2)), place=place)
            yield replace(one, gang=Gang(one.gang.members, sync))

    # ---- what is new

    def _drawn(self, job_id: JobId) -> Placement | None:
        """A placement for a job, on free GPUs or in a rota; None: there is no room."""
        gang = self._gang(self._state.jobs[job_id])
        if gang is None:
            return None
        one = replace(placement(job_id, place=f"{job_id}-{self._number}"), gang=gang)
        return one if self._take(one) else None

    def _gang(self, job: TrackedJob) -> Gang | None:
        nodes, wanted = self._state.nodes, self._random.choice(job.demand)
        names = [
            name
            for name, free in self._free.items()
            if free > 0 and nodes[name].node.gpu_type in job.gpu_types
        ]
        self._random.shuffle(names)
        if self._random.random() < NOT_LOCKSTEP:
            if self._mode is Forked:
                wide = sorted([name for name in names if self._free[name] >= wanted][:2])
                if len(wide) > 1:
                    return Gang(tuple(Member(name, wanted) for name in wide), Forked(shares=(0.5, 0.5)))
            elif self._mode is Relaxed and (members := self._of_a_rota(job) or self._members(names, wanted)):
                return _relaxed(members[1], members[0], wanted)
        found = self._members(names, wanted)
        return Gang(found[1]) if found else None

    def _of_a_rota(self, job: TrackedJob) -> tuple[RotaId, Members] | None:
        """A rota of this plan that has a place for the job, and its GPUs."""
        nodes = self._state.nodes
        for name, together in self._rotas.items():
            members = together[0].gang.members
            types = {nodes[one.node].node.gpu_type for one in members}
            if len(together) < TOGETHER and types <= set(job.gpu_types):
                return name, members
        return None

    def _members(self, names: list[NodeId], wanted: int) -> tuple[RotaId, Members] | None:
        """GPUs on some of the nodes, and the name of a rota that may begin there; None: too few are free."""
        gpus: dict[NodeId, int] = {}
        for name in names:
            left = wanted - sum(gpus.values())
            if taken := min(self._free[name], left, self._random.choice((1, 2, 4))):
                gpus[name] = taken
        if sum(gpus.values()) < wanted:
            return None
        return RotaId(f"rota-{self._number}-{len(self._rotas)}"), Gang.of(gpus).members


def _relaxed(members: Members, name: RotaId, wanted: int) -> Gang | None:
    """A gang of a rota that does `wanted` tasks a round; None: it has more GPUs than tasks."""
    gpus = sum(one.gpus for one in members)
    if gpus > wanted:
        return None
    tasks = [wanted // gpus + (index < wanted % gpus) for index in range(gpus)]
    by_member = tuple(tuple(tasks.pop() for _ in range(one.gpus)) for one in members)
    return Gang(members, Relaxed(tasks=by_member, rota=name))
