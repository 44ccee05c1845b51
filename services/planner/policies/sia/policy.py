"""Sia (SOSP '23): goodput by GPU type and count, one integer program a round, and only then places.

It plans when a round begins and at no other time, as in the paper. `Sia` may give a job every GPU count of
its demand; `SiaPowers` only the authors' counts, powers of two within a node and whole nodes; `SiaFaithful`
also has the quirks of the authors' code, which docs/policies/sia.md lists.

Beyond the paper: the order of the queue breaks ties; `outcome` says which jobs stay where they are.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Annotated, ClassVar, Literal

import msgspec
import numpy as np
from msgspec import Meta

from schemas.ids import JobId
from schemas.plans import Measures, PlanKind, Waiting
from services.planner.policies.contract.configurations import Configurations
from services.planner.policies.contract.decision import Choice, Decision, Left, Trigger
from services.planner.policies.contract.estimates import Estimated
from services.planner.policies.contract.variants import variant
from services.planner.policies.contract.view import View, ViewJob
from services.planner.policies.kit.packing import column, digests, named, numbers, opened, packed
from services.planner.policies.kit.priority import PriorityRule, ranked, urgencies
from services.planner.policies.kit.type_order import listed_first
from services.planner.policies.kit.window import service_window
from services.planner.policies.sia.ilp import Allocation, Goal, Market, allocate, gains
from services.planner.policies.sia.outcome import Round, choices, reasons, standings
from services.planner.policies.sia.table import (
    Offer,
    Table,
    answered,
    by_type,
    columns,
    counts,
    options_of,
    present_options,
    stocks,
    table_of,
)
from services.planner.policies.sia.utilities import (
    discounted,
    normalised,
    projected,
    restart_factor,
    single_precision,
    utilities,
    with_first_gains,
)
from services.planner.solver.problem import NOTHING, Solve
from shared.domain.arrays import Floats
from shared.domain.sums import plain_sum

GAP = 1e-4
"""the largest gap that is tolerated, as in the authors' code: with a gap of 0.01 dozens of small jobs may be
left out"""
TIE = 1e-6
"""by how much the first job of the queue outweighs the last, relatively: enough to break ties only"""
MEASURES = Measures(gain="gain, weight × utility above that of no GPUs")
VERSION = 1
"""version of the memory"""


Slowest = Literal["authors", "one", "count"]
SLOWEST: Mapping[Slowest, Callable[[Sequence[int]], float]] = {
    "authors": lambda demand: float(demand[0]) if len(demand) == 1 else 1.0,
    "one": lambda _: 1.0,
    "count": lambda demand: float(demand[0]),
}
"""the gain that a job's smallest goodput is given, from its demand"""


class SiaMemory(msgspec.Struct, frozen=True, kw_only=True):
    """What Sia remembers, since the view does not have it."""

    version: int = VERSION
    largest: dict[JobId, int] = {}
    """the largest GPU count that each job was given, if more than one"""


class PackedGpus(msgspec.Struct, frozen=True, kw_only=True):
    """The memory as it is stored if it is large (see `kit.packing`)."""

    jobs: bytes
    """digests"""
    gpus: bytes
    """a column"""


class SiaOptions(msgspec.Struct, frozen=True, kw_only=True):
    power: Annotated[float, Meta(ge=-10, le=10)] = -0.5
    """p: if below 0, a smaller p is fairer; if above 0, a larger p favours the jobs that gain most"""
    penalty: Annotated[float, Meta(ge=0, le=1e6)] = 1.1
    """|λ|: what a job without GPUs costs"""
    scale_up: Annotated[float, Meta(ge=1, le=1e6)] = 2.0
    """a job gets at most so many times the GPUs it has run with, or its next larger GPU count"""
    slowest: Slowest = "authors"
    """what a job's smallest goodput counts: by the `authors`' code the GPU count of a rigid job and 1 of any
    other; `one`, 1 of every job, as the Hops paper has it; `count`, every job's smallest GPU count"""
    queue: Literal["all", "window", "weights"] = "all"
    """`window`: only the service window by `priority_rule` takes part; `weights`: the rule weighs all"""
    priority_rule: PriorityRule = "lr"
    """the order of the queue, which with `queue=all` decides between equals only"""
    priority_power: Annotated[float, Meta(ge=0, le=10)] = 1.0
    """λ of the rule, with `queue=weights`"""
    window_factor: Annotated[float, Meta(gt=0, le=100)] = 1.0
    """service window, in multiples of the GPUs the plan may use"""
    types: str = ""
    """GPU types in the order in which their curves are used for a type of which nothing is known; types that
    are not named come last"""
    restart_s: Annotated[
        str, Meta(pattern=r"^([^\s=]+=\d+(\.\d+)?( +|$))*$", description="WORD=SECONDS, between spaces")
    ] = ""
    """seconds that a restart costs jobs whose name contains a word, as `bert=120 imagenet=250`; any other
    costs what restarts of its workload were measured to take"""


class Sia:
    Options = SiaOptions
    calls: ClassVar[Mapping[Trigger, PlanKind]] = {Trigger.ROUND: PlanKind.FIRST}
    powers: ClassVar[bool] = False
    """only the authors' GPU counts, instead of all of the job's demand"""
    quirks: ClassVar[bool] = False
    """utilities rounded to hundredths and to single precision; ties are not broken by the queue; all jobs are
    placed from scratch in every round"""

    def __init__(self, options: SiaOptions) -> None:
        self._options = options
        self._goal = Goal(power=options.power, penalty=options.penalty)
        self._costs = restart_costs(options.restart_s)
        self._last: tuple[View, tuple[list[ViewJob], list[Offer]]] | None = None

    def wants(self, view: View) -> Configurations:
        queue, offers = self._offered(view)
        return columns(queue, offers, view.nodes)

    def decide(self, view: View, wanted: Configurations, estimates: Estimated, solve: Solve) -> Decision:
        queue, offers = self._offered(view)
        if not len(wanted):
            nothing = (Left(job_id=job_id, reason=Waiting.NO_CONFIGURATION) for job_id in wanted.jobs)
            return Decision(choices=(), left=(*nothing, *_outside(view, queue)), memory=_memory(view, ()))
        table = table_of(wanted, queue, offers, view.nodes)
        known = answered(table, estimates)
        seen = Round(
            view=view,
            queue=queue,
            table=table,
            goodput=_goodput(queue, table, known, self._options.types.split()),
            present=table.cells(present_options(queue, view.nodes)),
        )
        gain, weight = self._gains(seen), self._weights(seen)
        given = self._allocation(seen, gain, weight, solve)
        chosen = choices(seen, given.cell, known, authors=self.quirks)
        return Decision(
            choices=chosen,
            left=(*reasons(seen, given.cell, chosen), *_outside(view, queue)),
            measures=MEASURES,
            standings=standings(seen, given.cell, gain * weight[:, None, None]),
            stage=given.solution.stage,
            objective=given.solution.objective,
            bound=given.solution.bound,
            gap=given.solution.gap,
            solve_s=given.solution.seconds,
            configurations=int((seen.table.row != NOTHING).sum()),
            memory=_memory(view, chosen),
        )

    def _offered(self, view: View) -> tuple[list[ViewJob], list[Offer]]:
        """The queue, and by job what it may be given; computed once for each view."""
        if self._last is None or self._last[0] is not view:
            queue = self._queue(view)
            self._last = view, (queue, self._choices(view, queue))
        return self._last[1]

    def _queue(self, view: View) -> list[ViewJob]:
        """The jobs that take part, the most urgent first; with `quirks`, rigid ones, then by submission.

        A job that is just being started keeps its place, so it takes part even from outside the window.
        """
        queue = [job for job, _ in ranked(view, self._options.priority_rule)]
        if self._options.queue == "window":
            length = service_window(queue, view.idle_gpus * self._options.window_factor)
            queue = queue[:length] + [job for job in queue[length:] if job.present and job.present.starting]
        if self.quirks:
            inside = {job.job_id for job in queue}
            came = [job for job in view.jobs if job.job_id in inside]
            return sorted(came, key=lambda job: len(job.demand) > 1)
        return queue

    def _choices(self, view: View, queue: Sequence[ViewJob]) -> list[Offer]:
        """By job: what it may be given."""
        stock, largest = stocks(view.nodes), _largest(view)
        known: dict[tuple[object, ...], Offer] = {}
        found = []
        for job, now in zip(queue, present_options(queue, view.nodes), strict=True):
            most = largest[job.job_id]
            alike = (job.demand, job.gpu_types, most, now)
            if alike not in known:
                sizes = counts(job, stock, powers=self.powers)
                known[alike] = options_of(sizes, most, self._options.scale_up, now)
            found.append(known[alike])
        return found

    def _allocation(self, seen: Round, gain: Floats, weight: Floats, solve: Solve) -> Allocation:
        starting = [job.present is not None and job.present.starting for job in seen.queue]
        effort = seen.view.effort
        return allocate(
            gain,
            _market(seen),
            weight=weight,
            pinned=np.where(starting, seen.present, NOTHING).astype(np.int32),
            solve=solve,
            effort=msgspec.structs.replace(effort, gap=min(effort.gap, GAP)),
        )

    def _gains(self, seen: Round) -> Floats:
        """By how much each configuration is worth more than no GPUs [J, T, K]."""
        slowest = np.array([SLOWEST[self._options.slowest](job.demand) for job in seen.queue])
        gain = with_first_gains(normalised(seen.goodput, slowest), seen.table.row != NOTHING, slowest)
        number = np.arange(gain[0].size).reshape(gain[0].shape)
        gain = discounted(
            gain,
            self._restart_factor(seen),
            np.array([job.present is not None for job in seen.queue]),
            number == seen.present[:, None, None],
        )
        utility = utilities(gain, self._goal.power, rounded=self.quirks)
        return gains(single_precision(utility) if self.quirks else utility, self._goal)

    def _weights(self, seen: Round) -> Floats:
        """By job: the user's factor (1 in the paper), times one that breaks ties by the queue (`TIE`).

        If the option `queue` is `weights`, also times the weight by `priority_rule`.
        """
        rank = np.arange(len(seen.queue)) / max(len(seen.queue), 1)
        tie = 0.0 if self.quirks else TIE
        own: Floats = np.array([job.priority for job in seen.queue]) * (1.0 - tie * rank)
        if self._options.queue != "weights":
            return own
        return own * urgencies(
            seen.view, seen.queue, self._options.priority_rule, self._options.priority_power
        )

    def _restart_factor(self, seen: Round) -> Floats:
        return restart_factor(
            np.array([seen.view.at - job.submitted_at for job in seen.queue]),
            np.array([job.restarts for job in seen.queue], dtype=np.float64),
            np.array([self._restart_s(job, seen.view) for job in seen.queue], dtype=np.float64),
        )

    def _restart_s(self, job: ViewJob, view: View) -> float:
        """Seconds of a restart of the job: by the first word of `restart_s` in its name, else as measured."""
        measured = view.restarts_s.get(job.workload, {}).values()
        usual_s = plain_sum(measured) / len(measured) if measured else view.restart_s
        return next((cost_s for word, cost_s in self._costs.items() if word in job.job_id), usual_s)


class SiaPowers(Sia):
    """As `sia`, on 1, 2, 4, … GPUs and then whole nodes, as its authors have it."""

    powers = True


class SiaFaithful(SiaPowers):
    """As `sia-powers`, and decides as its authors' simulator does, round for round."""

    quirks = True


def restart_costs(text: str) -> dict[str, float]:
    """Seconds by word, from `bert=120 imagenet=250`."""
    return {word: float(cost) for word, _, cost in (part.rpartition("=") for part in text.split())}


def _outside(view: View, queue: Sequence[ViewJob]) -> list[Left]:
    inside = {job.job_id for job in queue}
    return [
        Left(job_id=job.job_id, reason=Waiting.OUTSIDE_WINDOW)
        for job in view.jobs
        if job.job_id not in inside
    ]


def _goodput(queue: Sequence[ViewJob], table: Table, estimates: Estimated, listed: Sequence[str]) -> Floats:
    """Samples/s [J, T, K] as estimated; for types of which nothing is known, projected from another type.

    `listed`: the types from which to project, in order of preference; the others follow.
    """
    single = [[job.single_gpu.get(gpu_type, np.nan) for gpu_type in table.types] for job in queue]
    order = listed_first(table.types, listed)
    every = projected(table.spread(estimates.throughput), np.array(single), order)
    return np.where(table.row == NOTHING, np.nan, every)


def _market(seen: Round) -> Market:
    idle = [sum(node.idle for node in nodes) for nodes in by_type(seen.view.nodes).values()]
    return Market(capacity=np.array(idle, dtype=np.int32), sizes=seen.table.sizes)


# ---- memory


def _largest(view: View) -> dict[JobId, int]:
    """The largest GPU count that each job has run with, at least the one GPU of its profile.

    It is the largest of: the count remembered, the present one, and the mean count so far.
    """
    known = _remembered(view)
    return {
        job.job_id: max(
            known.get(job.job_id, 1),
            job.present.gang.gpus if job.present is not None else 1,
            int(job.attained_gpu_s / max(plain_sum(job.received_s.values()), 1.0)),
        )
        for job in view.jobs
    }


def _memory(view: View, chosen: Sequence[Choice]) -> bytes:
    """The memory for the jobs in the view, and for those that the view does not show although they run."""
    largest = _largest(view)
    if view.kind == PlanKind.FRAGMENT or view.apart:
        largest = _remembered(view) | largest
    for choice in chosen:
        largest[choice.job_id] = max(largest[choice.job_id], choice.gang.gpus)
    kept = {job_id: gpus for job_id, gpus in sorted(largest.items()) if gpus > 1}
    return packed(msgspec.json.encode(SiaMemory(largest=kept)), [partial(_packed, kept)])


def _packed(largest: Mapping[JobId, int]) -> PackedGpus:
    return PackedGpus(jobs=digests(largest), gpus=column(list(largest.values()), "<i4"))


def _remembered(view: View) -> dict[JobId, int]:
    """The GPU counts in the memory; none if another version, or another policy, wrote it."""
    large = opened(view.memory, PackedGpus)
    try:
        if large is not None:
            known = [*[job.job_id for job in view.jobs], *view.apart]
            return dict(zip(named(large.jobs, known), numbers(large.gpus, "<i4"), strict=True))
        found = msgspec.json.decode(view.memory, type=SiaMemory)
    except (msgspec.DecodeError, ValueError):
        return {}
    return found.largest if found.version == VERSION else {}


# ---- variants

sia_plain = variant(
    Sia,
    "Sia as the Hops paper normalises it: a job's smallest goodput counts 1.",
    slowest="one",
)
sia_min_count = variant(
    Sia,
    "Sia as its paper normalises it: a job's smallest goodput counts its smallest number of GPUs.",
    slowest="count",
)
