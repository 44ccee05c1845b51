"""Hops (SoCC '24): service window, sensitivity adjustment, location-specific configurations, one ILP.

Among plans of equal worth the one that leaves running jobs where they are is better: the gain of a
running job's other configurations is multiplied by 1 − `TIE`.

Beyond the paper: a running job that a first plan moves loses the time of a restart. So the gain of its other
configurations is multiplied by 1 − restart / round_s, and its present configuration is always among the
candidates. A restart takes as long as was measured for the workload on the GPU type, or the option
`moving_cost_s`; with that at 0 moving is free, and the present configuration is no candidate of its own.
Where moving costs something, a running job that the program does not choose keeps GPUs that nobody else would
get before the round ends (`leftover`).

Where we depart from the paper's text, a word in the option `as_printed` brings its rule back (`DEPARTURES`);
`hops-literal` has all of these words.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Annotated

import msgspec
import numpy as np
from msgspec import Meta

from schemas.ids import Fingerprint, GpuType, JobId
from schemas.placement import Gang
from schemas.plans import Measures, PlanKind, Standing, Waiting
from services.planner.policies.contract.configurations import (
    Configurations,
    configurations_for,
    held,
    placeable,
)
from services.planner.policies.contract.decision import ROUNDS, SOONEST_S, Choice, Decision, Left, Trigger
from services.planner.policies.contract.estimates import Estimated
from services.planner.policies.contract.pools import PlaceRules
from services.planner.policies.contract.variants import variant
from services.planner.policies.contract.view import Present, View, ViewJob, ViewNode
from services.planner.policies.hops.leftover import Leftover, left_in_place
from services.planner.policies.kit.priority import NAMES, PriorityRule, power_of, ranked, weights
from services.planner.policies.kit.program import problem_of
from services.planner.policies.kit.window import adjusted, service_window
from services.planner.solver.problem import NOTHING, Solve
from shared.domain.arrays import Floats, Ints
from shared.domain.word_lists import pattern_of, words_of

TIE = 1e-3
"""far below the tolerated gap, above the solver's rounding"""


GAIN = "gain, weight × throughput over the job's smallest"


DEPARTURES: Mapping[str, str] = {
    "fit": "a job gets GPUs of one node only where that leaves the node one: R < S_t",
    "spread": "a sensitive job may be spread if R_1 is less than the largest node of the type, for every R",
    "window": "the service window counts every job that waits, also those without a configuration",
    "total": "and adds up least demands to all GPUs of the cluster, whatever the plan may use",
    "admit": "behind the window's edge a job is admitted if R_1 is less than the idle GPUs",
    "ties": "a plan that leaves jobs in place is worth no more than its equals",
}
"""the paper's rules that `as_printed` brings back"""
AMONG = f"words between spaces, of {', '.join((*DEPARTURES, 'all'))}"


class Bids(msgspec.Struct, frozen=True, kw_only=True):
    """The configurations that the program chose among, and the result."""

    wanted: Configurations
    worth: Floats
    """by configuration: what it adds to the objective; NaN where there is no estimate"""
    chosen: Sequence[int]
    """the configurations that the program chose"""
    stays: Ints
    """the configurations that jobs hold now"""


class ProgramOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of every policy that uses this program, whatever its queue."""

    priority_power: Annotated[float, Meta(ge=0, le=10)] = 1.0
    """λ"""
    sensitivity_threshold: Annotated[float, Meta(gt=0)] = 1.4
    """σ: ρ above which a job is spread only where no node has room for it"""
    window_factor: Annotated[float, Meta(gt=0, le=100)] = 1.0
    """service window, in multiples of the GPUs the plan may use"""
    moving_cost_s: Annotated[float, Meta(ge=0, le=1e6)] | None = None
    """seconds that a running job loses when a first plan moves it; not given: as restarts were measured; 0:
    moving is free, as in the paper"""
    queue_refresh_s: Annotated[float, Meta(gt=0, le=1e8)] = 30.0
    """seconds after which a fragment plan is tried again, if jobs outside the window could fit"""
    as_printed: Annotated[str, Meta(pattern=pattern_of(DEPARTURES), description=AMONG)] = ""
    """the rules for which the paper's text is followed to the letter, separated by spaces: `fit`, `spread`,
    `window`, `total`, `admit`, `ties`, or `all`"""


class HopsOptions(ProgramOptions, frozen=True, kw_only=True):
    priority_rule: PriorityRule = "lr"
    """what a job's priority is: latency ratio, finish-time fairness, attained service, …"""


class Outlook(msgspec.Struct, frozen=True):
    """The queue of a view, and its window."""

    view: View
    ranks: list[tuple[ViewJob, float]]
    """all jobs with their priorities, the most urgent first"""
    queue: list[ViewJob]
    """the jobs that this plan could serve, in the same order"""
    window: list[ViewJob]
    """the jobs that this plan considers"""


class ProgramPolicy(ABC):
    """The window, configurations and program of Hops; a subclass gives jobs their priorities."""

    calls: Mapping[Trigger, PlanKind] = ROUNDS

    priority_in_words = ""
    gain_in_words = GAIN

    def __init__(self, options: ProgramOptions) -> None:
        self._options = options
        self._power = options.priority_power
        """λ"""
        self._printed = words_of(options.as_printed, DEPARTURES)
        self._rules = PlaceRules(fills="fit" not in self._printed, wider="spread" not in self._printed)
        self._tie = 0.0 if "ties" in self._printed else TIE
        self._seen: Outlook | None = None
        """outlook of the last view: `decide` mostly gets the view that `wants` got before"""

    def wants(self, view: View) -> Configurations:
        return configurations_for(
            self._outlook(view).window,
            view.nodes,
            self._options.sensitivity_threshold,
            stay=self._options.moving_cost_s != 0,
            rules=self._rules,
        )

    def decide(self, view: View, wanted: Configurations, estimates: Estimated, solve: Solve) -> Decision:
        outlook = self._outlook(view)
        present = _present(view)
        weight = self._weights(outlook, wanted, estimates.throughput)
        gain = self._gains(view, wanted, estimates.throughput, weight)
        stays = held(wanted, {job_id: gang.configuration for job_id, gang in present.items()})
        self._discount_moves(gain, view, wanted, present, stays)
        capacity = np.array([node.idle for node in view.nodes], dtype=np.int32)
        problem, rows = problem_of(wanted, capacity, weight, gain, stays)
        solution = solve(problem, view.effort)
        chosen = rows[solution.choice[solution.choice != NOTHING]].tolist()
        kept = {row: present[wanted.jobs[wanted.job[row]]] for row in stays.tolist()}
        choices = [_choice(wanted, estimates, row, kept.get(row)) for row in chosen]
        if view.kind == PlanKind.FIRST and self._options.moving_cost_s != 0:
            choices += self._left_in_place(outlook, tuple(choices))
        bids = Bids(wanted=wanted, worth=weight.take(wanted.job) * gain, chosen=chosen, stays=stays)
        return Decision(
            choices=tuple(choices),
            left=_left(outlook, wanted, problem.job, placed={choice.job_id for choice in choices}),
            measures=Measures(priority=self.priority_in_words, gain=self.gain_in_words),
            standings=standings(outlook.ranks, bids),
            stage=solution.stage,
            objective=solution.objective,
            bound=solution.bound,
            gap=solution.gap,
            solve_s=solution.seconds,
            configurations=len(wanted),
            again_at=self._again_at(outlook, choices),
        )

    def _outlook(self, view: View) -> Outlook:
        if self._seen is None or self._seen.view is not view:
            ranks = self._ranks(view)
            queue = self._queue(view, ranks)
            self._seen = Outlook(view, ranks, queue, self._window(view, queue))
        return self._seen

    @abstractmethod
    def _ranks(self, view: View) -> list[tuple[ViewJob, float]]:
        """All jobs with their priorities, the most urgent first."""

    def _queue(self, view: View, ranks: Sequence[tuple[ViewJob, float]]) -> list[ViewJob]:
        """The jobs that this plan could serve, the most urgent first.

        Jobs without any configuration are left out: a few of them at the head would fill the window and
        keep the GPUs from all others (docs/adr/0007). In a fragment plan these are the jobs for which too
        few GPUs are idle; in a first plan, those for which no single type has enough GPUs.
        """
        queue = [job for job, _ in ranks]
        if "window" in self._printed:
            return queue
        threshold = self._options.sensitivity_threshold
        if view.kind == PlanKind.FRAGMENT:
            return placeable(queue, view.nodes, threshold, self._rules)
        empty = [*map(_emptied, view.nodes)]
        fitting = {job.job_id for job in placeable(queue, empty, threshold, self._rules)}
        return [job for job in queue if job.job_id in fitting or job.present is not None]

    def _window(self, view: View, queue: Sequence[ViewJob]) -> list[ViewJob]:
        """The jobs of this plan, in the order of the queue."""
        gpus = sum(node.gpus for node in view.nodes) if "total" in self._printed else view.idle_gpus
        length = service_window(queue, gpus * self._options.window_factor)
        if view.kind == PlanKind.FRAGMENT:
            return adjusted(queue, length, view.idle_gpus, last_gpu="admit" not in self._printed)
        return list(queue[:length])

    def _weights(self, outlook: Outlook, _: Configurations, __: Floats) -> Floats:
        """The weights (eq. 11) by job of the window."""
        window = outlook.window
        priorities = {job.job_id: value for job, value in outlook.ranks}
        factor = np.array([job.priority for job in window])
        result: Floats = weights([priorities[job.job_id] for job in window], self._power) * factor
        return result

    def _gains(self, _: View, wanted: Configurations, throughput: Floats, __: Floats) -> Floats:
        """Gains by configuration, before restarts are charged; NaN where there is no estimate."""
        return gains(wanted, throughput)

    def _discount_moves(
        self,
        gain: Floats,
        view: View,
        wanted: Configurations,
        present: Collection[JobId],
        stays: Ints,
    ) -> None:
        """Multiply the gain of every configuration that would move its job by 1 − restart / round_s.

        `present`: the jobs that run; `stays`: the rows of their present configurations, which are unchanged.
        """
        if not present:
            return
        types = _columns(view)
        share = np.ones((len(wanted.jobs), len(types)))
        workload = {job.job_id: job.workload for job in view.jobs if job.job_id in present}
        losses: dict[Fingerprint, Floats] = {}
        for row, job_id in enumerate(wanted.jobs):
            if job_id in present:
                own = workload[job_id]
                if own not in losses:
                    costs_s = [self._moving_s(view, own, gpu_type) for gpu_type in types]
                    losses[own] = np.clip(np.array(costs_s) / view.round_s, self._tie, 1.0)
                share[row] -= losses[own]
        kept = gain[stays]
        gain *= share[wanted.job, _types(view, wanted, types)]
        gain[stays] = kept

    def _moving_s(self, view: View, workload: Fingerprint, gpu_type: GpuType) -> float:
        fixed_s = self._options.moving_cost_s
        return view.restart_of(workload, gpu_type) if fixed_s is None else fixed_s

    def _left_in_place(self, outlook: Outlook, choices: Sequence[Choice]) -> Iterator[Choice]:
        """The choices of running jobs that stay on GPUs which these choices leave (`leftover`)."""
        view, placed = outlook.view, {choice.job_id for choice in choices}
        left = Leftover(
            view.nodes,
            [choice.gang.configuration for choice in choices],
            self._options.sensitivity_threshold,
            self._rules,
        )

        def loss_of(job: ViewJob, gpu_type: GpuType) -> float:
            return min(self._moving_s(view, job.workload, gpu_type) / view.round_s, 1.0)

        queue = [job for job in outlook.queue if job.job_id not in placed]
        behind = {job.job_id for job in queue} - {job.job_id for job in outlook.window}
        for job in left_in_place(queue, behind, left, loss_of):
            assert job.present is not None, "it runs"
            yield _stay(job.job_id, job.present)

    def _again_at(self, outlook: Outlook, choices: Sequence[Choice]) -> float | None:
        """When to plan again, if a job outside the window could use GPUs that this plan leaves idle.

        Jobs that are not in the queue do not count: they have no configuration on these nodes until the
        nodes change, and that calls for a plan by itself.
        """
        view = outlook.view
        inside = {job.job_id for job in outlook.window} | {choice.job_id for choice in choices}
        idle = view.idle_gpus - sum(choice.gang.gpus for choice in choices)
        outside = (job for job in outlook.queue if job.job_id not in inside)
        if any(job.demand[0] <= idle for job in outside):
            return view.at + max(self._options.queue_refresh_s, SOONEST_S)
        return None


class Hops(ProgramPolicy):
    Options = HopsOptions

    def __init__(self, options: HopsOptions) -> None:
        super().__init__(options)
        self._rule = options.priority_rule
        self._power = power_of(self._rule, options.priority_power)
        self.priority_in_words = NAMES[self._rule]

    def _ranks(self, view: View) -> list[tuple[ViewJob, float]]:
        return ranked(view, self._rule)


def _stay(job_id: JobId, present: Present) -> Choice:
    return Choice(
        job_id=job_id,
        gang=present.gang,
        throughput=present.throughput,
        layer=present.layer,
        share=present.share,
    )


def _present(view: View) -> dict[JobId, Gang]:
    return {job.job_id: job.present.gang for job in view.jobs if job.present is not None}


def _columns(view: View) -> dict[GpuType, int]:
    """The GPU types of the view, numbered from 0."""
    types = dict.fromkeys(node.gpu_type for node in view.nodes)
    return {gpu_type: column for column, gpu_type in enumerate(types)}


def _types(view: View, wanted: Configurations, columns: Mapping[GpuType, int]) -> Ints:
    """By configuration: the column of the GPU type of its first node."""
    of_node = {node.node_id: columns[node.gpu_type] for node in view.nodes}
    found: Ints = np.array([of_node[node_id] for node_id in wanted.nodes], dtype=np.int32)
    return found[wanted.node[wanted.start[:-1]]]


def gains(wanted: Configurations, throughput: Floats) -> Floats:
    """G_ij: throughput / the job's smallest in this plan; NaN where there is no estimate."""
    smallest = wanted.of_each_job(np.fmin, throughput)
    result: Floats = throughput / smallest.take(wanted.job)
    return result


def _choice(wanted: Configurations, estimates: Estimated, row: int, present: Gang | None) -> Choice:
    """`present`: the gang that holds these GPUs now."""
    return Choice(
        job_id=wanted.jobs[wanted.job[row]],
        gang=present or Gang.of(wanted.at(row)),
        throughput=float(estimates.throughput[row]),
        layer=estimates.layer_at(row),
    )


def standings(ranks: Sequence[tuple[ViewJob, float]], bids: Bids) -> dict[JobId, Standing]:
    """Each job's priority, and what its configurations are worth to the plan.

    `gain` is the worth of the chosen one, or else of the best; `stay` that of the present one.
    """
    wanted, worth = bids.wanted, bids.worth
    gain, stay = wanted.of_each_job(np.fmax, worth), np.full(len(wanted.jobs), np.nan)
    gain[wanted.job[bids.chosen]] = worth[bids.chosen]
    stay[wanted.job[bids.stays]] = worth[bids.stays]
    places = dict(zip(wanted.jobs, zip(gain.tolist(), stay.tolist(), strict=True), strict=True))
    return {
        job.job_id: _standing(priority, *places[job.job_id])
        if job.job_id in places
        else Standing(priority=priority)
        for job, priority in ranks
    }


def _standing(priority: float, gain: float, stay: float) -> Standing:
    """A standing in which NaN is None."""
    known = [None if math.isnan(one) else one for one in (gain, stay)]
    return Standing(priority=priority, gain=known[0], stay=known[1])


def _emptied(node: ViewNode) -> ViewNode:
    return node if node.idle == node.gpus else msgspec.structs.replace(node, idle=node.gpus)


def _left(
    outlook: Outlook, wanted: Configurations, estimated: Ints, *, placed: Collection[JobId]
) -> tuple[Left, ...]:
    """Why each job that is not placed is left out. `estimated`: the job of each row that has an estimate."""
    reasons = dict.fromkeys([job.job_id for job in outlook.queue], Waiting.OUTSIDE_WINDOW)
    reasons |= dict.fromkeys(wanted.jobs, Waiting.NO_CONFIGURATION)
    for rows, reason in ((wanted.job, Waiting.NO_ESTIMATE), (estimated, Waiting.OUTWEIGHED)):
        has = np.zeros(len(wanted.jobs), dtype=bool)
        has[rows] = True
        reasons |= {wanted.jobs[index]: reason for index in np.flatnonzero(has).tolist()}
    waiting = [job.job_id for job, _ in outlook.ranks if job.job_id not in placed]
    return tuple(
        [Left(job_id=job_id, reason=reasons.get(job_id, Waiting.NO_CONFIGURATION)) for job_id in waiting]
    )


hops_literal = variant(
    Hops,
    "Hops as its paper prints it: every equation and rule, without our departures.",
    as_printed="all",
    moving_cost_s=0.0,
)
