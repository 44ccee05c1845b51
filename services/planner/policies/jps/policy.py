"""HAS and JPS (TPDS '24): the split of all GPUs among jobs that makes their mean completion time least.

A *category* is the number of GPUs of each job. Inside a category, GPUs are assigned so that all jobs together
train most samples a second (P3). Of the categories that are looked at, the one with the best score of mean
completion time and fairness (34) is taken. `has` looks at all categories, `jps` at N of the last ⌊(1 − α)
|Ψ|⌋, in which long jobs get most GPUs. GPUs of unlike speed take samples of a batch in proportion to their
speed.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from schemas.placement import Configuration, Gang
from services.planner.policies.contract.variants import variant
from services.planner.policies.jps.completion import jain
from services.planner.policies.jps.idling import without_slow_nodes
from services.planner.policies.jps.options import JpsOptions
from services.planner.policies.jps.packing import packing
from services.planner.policies.jps.resets import Alternatives, AtResets, Draft, Picked, fastest
from services.planner.policies.jps.scene import Scene
from services.planner.policies.jps.speeds import Answers, GangSpeeds
from services.planner.policies.jps.splits.auction import auctioned
from services.planner.policies.jps.splits.categories import Categories
from services.planner.policies.jps.splits.dealing import grown
from services.planner.policies.jps.splits.market import transported
from services.planner.policies.jps.splits.sampling import best, drawn, seeded
from shared.domain.arrays import Ints

GANGS_AT_MOST = 20_000
"""places that one plan looks at, jobs times categories"""
TOO_MANY = 10_000_000
"""categories above which a note says that a sample of them says little"""
MARKETS = {"flow": transported, "auction": auctioned}


class Jps(AtResets):
    Options = JpsOptions

    def __init__(self, options: JpsOptions) -> None:
        super().__init__(options)
        self._options = options

    def draft(self, scene: Scene, speeds: GangSpeeds) -> Draft:
        demands = [scene.demand(job) for job in range(len(scene.jobs))]
        categories = Categories(demands, scene.usable)
        numbers, notes = self._numbers(categories.count, scene)
        market, solved = scene.market(weighted=self._options.weighted), MARKETS[self._options.market]
        splits = [solved(market, np.array(categories.at(one), dtype=np.int32)) for one in numbers]
        found = [split for split in splits if split is not None]
        if not found:
            notes = (*notes, "no category that was looked at has room on its jobs' types")
            found = [grown(market, demands)]
        plans = tuple(self._plan(scene, speeds, places) for places in _placed(scene, found))
        return Draft(plans=plans, looked_at=len(numbers), notes=notes)

    def pick(self, scene: Scene, speeds: GangSpeeds, draft: Draft, answered: Answers) -> Picked:
        known: dict[tuple[int, Alternatives], tuple[float, Gang]] = {}
        for plan in draft.plans:
            for job, gangs in enumerate(plan):
                if (job, gangs) not in known:
                    known[job, gangs] = fastest(speeds, job, gangs, answered)
        alone = np.array([speeds.isolated_s(job) for job in range(len(scene.jobs))])
        jct = np.array([[known[job, gangs][0] for job, gangs in enumerate(plan)] for plan in draft.plans])
        mean, fairness = jct.mean(axis=1), [jain(row) for row in jct / alone]
        number = best(mean, fairness, 1.0 if self._options.every else self._options.beta)
        taken = draft.plans[number]
        return Picked(
            gangs=tuple(known[job, gangs][1] for job, gangs in enumerate(taken)), mean_s=float(mean[number])
        )

    # ---- which categories

    def _numbers(self, count: int, scene: Scene) -> tuple[Sequence[int], tuple[str, ...]]:
        """The numbers of the categories to look at, of `count`; and notes."""
        options, jobs = self._options, len(scene.jobs)
        most = max(GANGS_AT_MOST // jobs, 1)
        if options.every and count <= min(options.has_categories_max, most):
            return range(count), ()
        samples = min(options.samples, most)
        numbers = drawn(
            count, alpha=options.alpha, samples=samples, seed=seeded(scene.view, scene.jobs, options.seed)
        )
        return numbers, tuple(self._notes(count, len(numbers), scene))

    def _notes(self, count: int, looked_at: int, scene: Scene) -> Iterator[str]:
        of = f"{count:,}" if count < TOO_MANY else f"10^{len(str(count)) - 1}"
        if self._options.every:
            yield f"{of} categories, too many for HAS: {looked_at:,} are looked at, as JPS does"
        if count > TOO_MANY:
            gpus = int(scene.supply.sum())
            jobs = f"{len(scene.jobs)} jobs on {gpus} GPUs"
            yield f"{jobs} have {of} categories: {looked_at:,} of them are chance"

    # ---- from counts to gangs

    def _plan(
        self, scene: Scene, speeds: GangSpeeds, places: Sequence[Configuration]
    ) -> tuple[Alternatives, ...]:
        return tuple(self._alternatives(scene, speeds, job, place) for job, place in enumerate(places))

    def _alternatives(self, scene: Scene, speeds: GangSpeeds, job: int, place: Configuration) -> Alternatives:
        gang = speeds.gang(job, place)
        if not self._options.idle or len(place) == 1:
            return (gang,)
        fewer = without_slow_nodes(speeds, job, place, scene.jobs[job].demand)
        return (gang,) if fewer is None else (gang, fewer)


def _placed(scene: Scene, splits: Sequence[Ints]) -> Iterator[list[Configuration]]:
    """By split of GPUs [S, C]: the places of all jobs."""
    room, held = packing(scene.nodes), scene.held
    return (room.places(split, held) for split in splits)


# ---- the policies by name

jps = Jps
has = variant(
    Jps,
    "HAS (TPDS '24): as `jps`, over all splits of the GPUs and not a sample of them.",
    every=True,
)
jps_weighted = variant(
    Jps,
    "As `jps`; inside a split, long jobs weigh more.",
    weighted=True,
)
has_weighted = variant(
    Jps,
    "As `has`; inside a split, long jobs weigh more.",
    every=True,
    weighted=True,
)
