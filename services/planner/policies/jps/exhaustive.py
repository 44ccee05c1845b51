"""The exact least mean completion time with proportional shares, where there are few GPUs and types.

The paper finds it by enumeration, we by a dynamic program (`exact`), which takes the GPUs of a type as alike
whatever their nodes. Where it would take too long it refuses, and running jobs keep their places.
"""

import numpy as np

from schemas.placement import Gang
from schemas.plans import Layer
from services.planner.policies.jps.options import ExhaustiveOptions
from services.planner.policies.jps.packing import packing
from services.planner.policies.jps.resets import AtResets, Draft, Picked
from services.planner.policies.jps.scene import Scene
from services.planner.policies.jps.speeds import Answers, AskedGang, GangSpeeds
from services.planner.policies.jps.splits.exact import optimum, vectors
from shared.domain.arrays import Floats
from shared.domain.sums import plain_sum

VECTORS_AT_MOST = 20_000
"""different GPU counts by type that one job may get; with more the policy refuses"""
GANGS_AT_MOST = 60_000
"""such GPU counts of all jobs together, at most"""
KEPT = "what runs was kept"


class Exhaustive(AtResets):
    Options = ExhaustiveOptions

    def __init__(self, options: ExhaustiveOptions) -> None:
        super().__init__(options)
        self._options = options

    def draft(self, scene: Scene, speeds: GangSpeeds) -> Draft:
        count = int(np.prod(scene.supply.astype(np.float64) + 1))
        if refusal := _refusal(scene, count):
            return Draft(refusal=refusal)
        room, every = packing(scene.nodes), vectors(scene.supply.tolist())
        gangs: list[tuple[Gang, ...]] = []
        for job in range(len(scene.jobs)):
            fits = np.isin(every.sum(axis=1), scene.jobs[job].demand)
            fits &= ~every[:, scene.rate[job] <= 0].any(axis=1)
            places = (room.places(every[row][None, :], [{}])[0] for row in np.flatnonzero(fits))
            gangs.append(tuple(speeds.gang(job, place) for place in places))
        return Draft(plans=(tuple(gangs),), looked_at=sum(map(len, gangs)))

    def pick(self, scene: Scene, speeds: GangSpeeds, draft: Draft, answered: Answers) -> Picked:
        every = vectors(scene.supply.tolist())
        row_of = {tuple(row): number for number, row in enumerate(every.tolist())}
        [plan] = draft.plans
        jct: list[Floats] = []
        for job, gangs in enumerate(plan):
            own = np.full(len(every), np.inf)
            for gang in gangs:
                own[row_of[scene.gpus_by_type(gang)]] = speeds.completion_s(job, gang, answered)
            jct.append(own)
        rows = optimum(jct, scene.supply.tolist(), idle=self._options.idle)
        if rows is None:
            return Picked(gangs=(None,) * len(plan))
        mean_s = plain_sum(float(own[row]) for own, row in zip(jct, rows, strict=True)) / len(plan)
        places = packing(scene.nodes).places(every[rows], scene.held)
        gangs = tuple(speeds.gang(job, place) for job, place in enumerate(places))
        return Picked(gangs=gangs, mean_s=mean_s, answers=_with_alike(scene, gangs, answered))


def _with_alike(scene: Scene, gangs: tuple[Gang, ...], answered: Answers) -> Answers:
    """Answers for the gangs taken: those of the gangs with as many GPUs by type that were asked about."""
    wanted = {(job, scene.gpus_by_type(gang)): gang for job, gang in enumerate(gangs)}
    found: dict[AskedGang, tuple[float, Layer]] = {}
    for (job, gang), answer in answered.items():
        taken = wanted.get((job, scene.gpus_by_type(gang)))
        if taken is not None:
            found[job, taken] = answer
    return found


def _refusal(scene: Scene, count: int) -> str:
    """Why the dynamic program would take too long, in words; empty: it would not."""
    jobs, gpus = (
        len(scene.jobs),
        ", ".join(f"{gpus} {name}" for name, gpus in zip(scene.types, scene.supply.tolist(), strict=True)),
    )
    if count > VECTORS_AT_MOST:
        return f"{gpus}: {count:,} counts by type for a job, at most {VECTORS_AT_MOST:,}; {KEPT}"
    if jobs * count > GANGS_AT_MOST:
        return f"{gpus}: {count:,} counts by type for each of {jobs} jobs, at most {GANGS_AT_MOST:,}; {KEPT}"
    return ""
