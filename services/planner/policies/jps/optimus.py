"""Optimus as in JPS' comparison: one GPU after the other goes to the job whose completion time falls most.

| name | gains are | shares of the global batch |
|---|---|---|
| `optimus` | those of a mean GPU; GPUs are dealt at random | equal |
| `optimus-lb` | the same | in proportion to speed |
| `optimus-aware` | those of the best free GPU type | in proportion to speed |
"""

import numpy as np

from services.planner.policies.contract.variants import variant
from services.planner.policies.jps.options import OptimusOptions
from services.planner.policies.jps.packing import packing
from services.planner.policies.jps.resets import AtResets, Draft, Picked, fastest
from services.planner.policies.jps.scene import Scene
from services.planner.policies.jps.speeds import Answers, GangSpeeds
from services.planner.policies.jps.splits.dealing import dealt, dealt_by_type, grown, shuffled
from services.planner.policies.jps.splits.market import transported
from services.planner.policies.jps.splits.sampling import seeded
from shared.domain.arrays import Ints
from shared.domain.sums import plain_sum

SQUEEZED = "the jobs' types leave no other way: GPUs are given as there is room"


class Optimus(AtResets):
    Options = OptimusOptions

    def __init__(self, options: OptimusOptions) -> None:
        super().__init__(options)
        self._options = options
        self.equal = options.shares == "equal"

    def draft(self, scene: Scene, speeds: GangSpeeds) -> Draft:
        demands = [scene.demand(job) for job in range(len(scene.jobs))]
        split = (self._aware if self._options.aware else self._blind)(scene, speeds, demands)
        notes = () if split is not None else (SQUEEZED,)
        split = grown(scene.market(), demands) if split is None else split
        places = packing(scene.nodes).places(split, scene.held)
        gangs = tuple((speeds.gang(job, place),) for job, place in enumerate(places))
        return Draft(plans=(gangs,), looked_at=1, notes=notes)

    def pick(self, scene: Scene, speeds: GangSpeeds, draft: Draft, answered: Answers) -> Picked:
        [plan] = draft.plans
        found = [fastest(speeds, job, gangs, answered) for job, gangs in enumerate(plan)]
        mean_s = plain_sum(jct for jct, _ in found) / len(scene.jobs)
        return Picked(gangs=tuple(gang for _, gang in found), mean_s=mean_s)

    def _blind(self, scene: Scene, speeds: GangSpeeds, demands: list[tuple[int, ...]]) -> Ints | None:
        seen = np.where(scene.rate > 0, scene.supply, 0)
        mean = ((scene.rate * seen).sum(axis=1) / seen.sum(axis=1)).tolist()
        counts = dealt(lambda job, gpus: speeds.spread_s(job, gpus, gpus * mean[job]), demands, scene.usable)
        seed = seeded(scene.view, scene.jobs, self._options.seed)
        split = shuffled(counts, scene.rate, scene.supply, seed)
        return transported(scene.market(), counts) if split is None else split

    def _aware(self, scene: Scene, speeds: GangSpeeds, demands: list[tuple[int, ...]]) -> Ints | None:
        def jct(job: int, gpus: Ints) -> float:
            rates, count = scene.rate[job], int(gpus.sum())
            speed = count * float(rates[gpus > 0].min()) if self.equal else float(rates @ gpus)
            return speeds.spread_s(job, count, speed)

        return dealt_by_type(jct, scene.market(), demands)


# ---- the policies by name

optimus = Optimus
optimus_lb = variant(
    Optimus,
    "Optimus whose gangs divide their batches by the speed of each GPU.",
    shares="proportional",
)
optimus_aware = variant(
    Optimus,
    "Optimus that sees GPU types, and whose gangs divide their batches by speed.",
    aware=True,
    shares="proportional",
)
