"""Hadar (IPDPS '24): payoff = utility − price of the GPUs, chosen by a dynamic program every round.

A job of W GPUs may have them of several types on several nodes; all its workers go at the pace of the
slowest. Hadar plans only when a round begins: GPUs that come free within a round stay idle until the next.

| name | |
|---|---|
| `hadar` | a job's whole utility is at stake; all jobs are placed from scratch |
| `hadar-literal` | as printed: raw utilities, one place a job, in order of arrival; running jobs stay |
| `hadar-delay` | the utility lost by a delay of one round is at stake; no GPU idles that a job could use |

A job's demand is rigid (`rigid_demand`). `docs/policies/hadar.md` says what the paper leaves open and what we
decided.
"""

from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np

from schemas.ids import JobId
from schemas.plans import PlanKind
from services.planner.policies.contract.configurations import Configurations
from services.planner.policies.contract.decision import Decision, Trigger
from services.planner.policies.contract.estimates import Estimated
from services.planner.policies.contract.variants import variant
from services.planner.policies.contract.view import Present, View, ViewJob
from services.planner.policies.hadar.auction import Auction, Inquired
from services.planner.policies.hadar.bounds import Knapsack
from services.planner.policies.hadar.jobs import HadarJob, delay_at_stake, mean_speed
from services.planner.policies.hadar.offers import Finder, PricedPlace, Terms
from services.planner.policies.hadar.options import HadarOptions
from services.planner.policies.hadar.outcome import MEASURES, choices, gap, left, stage, standings
from services.planner.policies.hadar.paces import Asker, asked, with_present
from services.planner.policies.hadar.prices import dual_prices
from services.planner.policies.hadar.program import Branch, Chosen, Width, by_payoff, chosen
from services.planner.policies.hadar.room import FreeGpus, Levels, Occupants
from services.planner.policies.kit.completion import scales
from services.planner.policies.kit.known_jobs import held
from services.planner.policies.kit.rigid import rigid
from services.planner.solver.budget import Budget
from services.planner.solver.problem import Solve


class Hadar:
    Options = HadarOptions
    calls: ClassVar[Mapping[Trigger, PlanKind]] = {Trigger.ROUND: PlanKind.FIRST}
    sees_staying: ClassVar[bool] = True

    def __init__(self, options: HadarOptions) -> None:
        self._options = options
        self._last: tuple[View, Inquired] | None = None

    # ---- the contract of a policy

    def wants(self, view: View) -> Configurations:
        return self._inquired(view).asked.configurations

    def decide(
        self,
        view: View,
        wanted: Configurations,
        estimates: Estimated,
        solve: Solve,  # noqa: ARG002 - the program here is dynamic
    ) -> Decision:
        budget = Budget(seconds=view.effort.budget_s, modelled=view.effort.modelled)
        seen = self._inquired(view)
        auction = self._auction(view, seen, estimates)
        answer = self._solved(view, auction, budget)
        taken = {auction.queue[turn].job_id: offer for turn, offer in answer.offers.items()}
        given = taken | self._filled(auction, answer)
        made = choices(view, seen, auction, given, estimates)
        return Decision(
            choices=made,
            left=left(view, seen, auction, {choice.job_id for choice in made}),
            stage=stage(answer, view),
            objective=answer.value,
            bound=answer.bound,
            gap=gap(answer),
            solve_s=budget.spent_s,
            configurations=len(wanted),
            measures=MEASURES,
            standings=standings(auction, given, ordered=self._options.order == "payoff"),
        )

    # ---- the jobs and nodes of a view

    def _inquired(self, view: View) -> Inquired:
        """What the estimator is asked for the view; computed once for each view."""
        if self._last is None or self._last[0] is not view:
            levels = Levels(view.nodes)
            askers = tuple(one for job in view.jobs if (one := self._asker(job, levels)) is not None)
            self._last = view, Inquired(levels, askers, asked(askers, levels))
        return self._last[1]

    def _asker(self, job: ViewJob, levels: Levels) -> Asker | None:
        """The job with one GPU count, of those for which its types together have enough GPUs; None: none."""
        usable = sum(
            gpus for name, gpus in zip(levels.types, levels.gpus, strict=True) if name in job.gpu_types
        )
        possible = [gpus for gpus in job.demand if gpus <= usable]
        if not possible:
            return None
        gpus, place = rigid(possible, self._options.rigid_demand), held(job)
        may_stay = sum(place.values()) == gpus and levels.can_hold(place, job.gpu_types)
        return Asker(job, gpus, levels.place(place) if may_stay else ())

    def _job(self, view: View, seen: Inquired, asker: Asker, estimates: Estimated) -> HadarJob | None:
        """The job with its paces; None: no pace is known."""
        levels, job = seen.levels, asker.job
        paces = seen.asked.paces(asker, estimates, len(levels.types))
        if asker.present and job.present is not None:
            paces = with_present(paces, asker, job.present.throughput, levels)
        speeds = [max(row, default=0.0) for row in paces]
        if not any(speeds):
            return None
        alone = asker.gpus * mean_speed(speeds, levels.gpus)
        [worth] = scales(self._options.utility, np.array([job.samples]), np.array([alone])).tolist()
        return HadarJob(
            job_id=job.job_id,
            submitted_at=job.submitted_at,
            gpus=asker.gpus,
            elapsed_s=max(view.at - job.submitted_at, 0.0),
            left=max(job.samples - job.samples_done, 0.0),
            worth=job.priority * worth,
            paces=paces,
            present=asker.present,
        )

    # ---- the round

    def _auction(self, view: View, seen: Inquired, estimates: Estimated) -> Auction:
        found = (self._job(view, seen, asker, estimates) for asker in seen.askers)
        jobs = {job.job_id: job for job in found if job is not None}
        free, kept = self._kept(view, seen)
        finder = self._finder(view, seen.levels, list(jobs.values()))
        rest = [job for job in jobs.values() if job.job_id not in kept]
        room, nobody = FreeGpus(seen.levels, free), Occupants(len(free))
        offers = {job.job_id: finder.offers(job, finder.routes(job), room, nobody) for job in rest}
        queue = sorted(rest, key=lambda job: (self._turn(job, offers), job.submitted_at, job.job_id))
        return Auction(
            jobs=jobs,
            queue=queue,
            offers=offers,
            room=room,
            finder=finder,
            knapsack=Knapsack(queue, room, finder),
            kept=kept,
        )

    def _kept(self, view: View, seen: Inquired) -> tuple[list[int], dict[JobId, Present]]:
        """Free GPUs by node, and the jobs that keep their place.

        These are the jobs that may not be moved; with the option `requeue=waiting`, all that run.
        """
        free, kept = [node.idle for node in view.nodes], dict[JobId, Present]()
        for job in sorted(view.jobs, key=lambda job: not job.stays):
            stays = job.stays or self._options.requeue == "waiting"
            if job.present is None or not stays or not seen.levels.can_hold(held(job), job.gpu_types):
                continue
            place = seen.levels.place(held(job))
            if all(free[node] >= gpus for node, gpus in place):
                kept[job.job_id] = job.present
                for node, gpus in place:
                    free[node] -= gpus
        return free, kept

    def _finder(self, view: View, levels: Levels, jobs: Sequence[HadarJob]) -> Finder:
        options = self._options
        delay_s = delay_at_stake(options.stake, view.round_s)
        prices = dual_prices(jobs, levels.gpus, round_s=view.round_s, delay_s=delay_s, top=options.price_top)
        rows = zip(levels.kind_of, levels.free_of, levels.size_of, strict=True)
        terms = Terms(
            round_s=view.round_s,
            delay_s=delay_s,
            restart_s=options.restart_s,
            network_price=options.network_price,
            to_finish=options.cost_over == "finish",
            walk=options.walk,
            every_occupied=not options.beam,
        )
        return Finder(levels, [prices.at(kind, size - free, size) for kind, free, size in rows], terms)

    def _turn(self, job: HadarJob, offers: Mapping[JobId, Sequence[PricedPlace]]) -> float:
        """What the queue is sorted by, ascending."""
        own = offers[job.job_id]
        return -own[0].payoff / job.gpus if own and self._options.order == "payoff" else 0.0

    def _solved(self, view: View, auction: Auction, budget: Budget) -> Chosen:
        options = self._options
        return chosen(
            auction.queue,
            auction.room,
            auction.finder,
            auction.knapsack,
            width=Width(beam=options.beam, branches=options.branches),
            budget=Budget(seconds=0.0) if view.effort.greedy else budget,
        )

    def _filled(self, auction: Auction, answer: Chosen) -> dict[JobId, PricedPlace]:
        """With the option `fill`: places for further jobs on the GPUs that the program left idle.

        Jobs come by payoff, the largest first, even if it is not above 0.
        """
        if not self._options.fill:
            return {}
        finder, nobody = auction.finder, Occupants(len(answer.room.by_node))
        rest = [job for turn, job in enumerate(auction.queue) if turn not in answer.offers]
        offers = [(job, finder.offers(job, finder.routes(job), answer.room, nobody)) for job in rest]
        able = sorted(((job, own[0]) for job, own in offers if own), key=lambda item: -item[1].payoff)
        queue = [job for job, _ in able]
        branch = by_payoff(queue, Branch(answer.room), finder, at_any_price=True)
        return {queue[turn].job_id: offer for turn, offer in branch.offers().items()}


# ---- the policies by name

hadar = Hadar
hadar_literal = variant(
    Hadar,
    "Hadar as its paper prints it: running jobs stay, and the others are served as they came.",
    utility="raw",
    branches=1,
    order="arrival",
    requeue="waiting",
)
hadar_delay = variant(
    Hadar,
    "Hadar by what one more round of waiting would cost each job.",
    stake="delay",
    walk="bottleneck",
    fill=True,
)
