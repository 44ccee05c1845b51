"""Turns the places of jobs into choices, reasons, standings and the plan's quality. Pure."""

from collections.abc import Collection, Mapping, Sequence

from schemas.ids import JobId
from schemas.placement import Gang
from schemas.plans import Measures, Stage, Standing, Waiting
from services.planner.policies.contract.decision import Choice, Left
from services.planner.policies.contract.estimates import Estimated
from services.planner.policies.contract.view import Present, View
from services.planner.policies.hadar.auction import Auction, Inquired
from services.planner.policies.hadar.jobs import HadarJob
from services.planner.policies.hadar.offers import PricedPlace
from services.planner.policies.hadar.program import Chosen
from services.planner.solver.problem import NOTHING

MEASURES = Measures(
    priority="payoff a GPU on the GPUs that are free",
    gain="payoff, utility less the price of the GPUs",
)


def choices(
    view: View, seen: Inquired, auction: Auction, given: Mapping[JobId, PricedPlace], estimates: Estimated
) -> tuple[Choice, ...]:
    """The choices of the jobs that are kept, then of those that are `given` a place."""
    present = {job.job_id: job.present for job in view.jobs}
    return (
        *(_staying(job_id, place) for job_id, place in auction.kept.items()),
        *(
            _choice(seen, auction.jobs[job_id], offer, present[job_id], estimates)
            for job_id, offer in given.items()
        ),
    )


def _staying(job_id: JobId, present: Present) -> Choice:
    return Choice(job_id=job_id, gang=present.gang, throughput=present.throughput, layer=present.layer)


def _choice(
    seen: Inquired, job: HadarJob, offer: PricedPlace, present: Present | None, estimates: Estimated
) -> Choice:
    """The choice of a place. Its throughput is that of its own row if it stays, else of its slowest type."""
    own = seen.asked.present.get(job.job_id, NOTHING) if offer.stays else NOTHING
    known = own != NOTHING and estimates.throughput[own] > 0
    row = own if known else seen.asked.row_of(job, offer.place, seen.levels)
    if offer.stays and present is not None and (row == NOTHING or not estimates.throughput[row] > 0):
        return _staying(job.job_id, present)
    names = seen.levels.names
    return Choice(
        job_id=job.job_id,
        gang=Gang.of({names[node]: gpus for node, gpus in offer.place}),
        throughput=float(estimates.throughput[row]) if known else offer.rate,
        layer=estimates.layer_at(row),
    )


def left(view: View, seen: Inquired, auction: Auction, running: Collection[JobId]) -> tuple[Left, ...]:
    """Why jobs get no GPUs: those of the queue in its order, then those that were not in it."""
    waiting = [job.job_id for job in auction.queue if job.job_id not in running]
    reasons = [_outbid(job_id, auction.offers[job_id]) for job_id in waiting]
    fitting = {asker.job.job_id for asker in seen.askers}
    others = [job.job_id for job in view.jobs if job.job_id not in running and job.job_id not in auction.jobs]
    return (*reasons, *(_unfit(job_id, known=job_id in fitting) for job_id in others))


def _outbid(job_id: JobId, offers: Sequence[PricedPlace]) -> Left:
    if not offers:
        return Left(job_id=job_id, reason=Waiting.NO_CONFIGURATION)
    worth = "" if offers[0].payoff > 0 else "GPUs cost more than it is worth to finish sooner"
    return Left(job_id=job_id, reason=Waiting.OUTWEIGHED, detail=worth)


def _unfit(job_id: JobId, *, known: bool) -> Left:
    return Left(job_id=job_id, reason=Waiting.NO_ESTIMATE if known else Waiting.NO_CONFIGURATION)


def gap(answer: Chosen) -> float:
    return (answer.bound - answer.value) / answer.bound if answer.bound > 0 else 0.0


def stage(answer: Chosen, view: View) -> Stage:
    """The stage of the answer: `optimal` if the bound proves that its gap is tolerated."""
    proven = answer.stage is Stage.INCUMBENT and gap(answer) <= view.effort.gap
    return Stage.OPTIMAL if proven else answer.stage


def standings(
    auction: Auction, taken: Mapping[JobId, PricedPlace], *, ordered: bool
) -> dict[JobId, Standing]:
    """The standings of the queue's jobs. `ordered`: the queue is by payoff, so payoff is the priority."""
    found = {}
    for job in auction.queue:
        offers = auction.offers[job.job_id]
        best = offers[0].payoff if offers else None
        found[job.job_id] = Standing(
            priority=best / job.gpus if best is not None and ordered else None,
            gain=taken[job.job_id].payoff if job.job_id in taken else best,
            stay=next((offer.payoff for offer in offers if offer.stays), None),
        )
    return found
