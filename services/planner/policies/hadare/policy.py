"""HadarE (arXiv 2503.10918, sections V and VI): a job trains as copies on several nodes at once.

When a round begins, jobs are given nodes so that the sum of their utilities is largest, each job as many
nodes as it gains by. Each copy trains a share of the rest of its job, alone on its node; when the round ends,
the copies are merged, and all go on from the mean of their weights. The speed of a copy on a node is the
estimate of a gang on that node.

HadarE plans only when a round begins, as Hadar does: a node whose copy has done its share idles until the
next round. A job that is given a single node runs there in lockstep. That is the same training without a
merge, so the job need not restart in every round; `hadare-literal` merges it nevertheless.

`docs/policies/hadare.md` says where this differs from the paper's text.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, ClassVar, Literal

import msgspec
import numpy as np
from msgspec import Meta

from schemas.placement import Forked, Lockstep, Mode
from schemas.plans import Measures, PlanKind, Stage
from services.planner.policies.contract.configurations import Configurations, configurations_for
from services.planner.policies.contract.decision import Decision, Trigger
from services.planner.policies.contract.estimates import Estimated
from services.planner.policies.contract.variants import variant
from services.planner.policies.contract.view import View, ViewJob
from services.planner.policies.hadare.dividing import Division, trimmed
from services.planner.policies.hadare.exact import exact
from services.planner.policies.hadare.forking import Forking, bound, no_copies
from services.planner.policies.hadare.from_view import (
    CopySpeeds,
    batch_of,
    copies_of,
    forking_of,
    runs_forked,
    table_of,
)
from services.planner.policies.hadare.growing import exchanged, grown
from services.planner.policies.hadare.horizon import earliest_end_s
from services.planner.policies.hadare.outcome import Opening, choices, left, standings
from services.planner.policies.hadare.prior import guessed
from services.planner.policies.kit.completion import Utility
from services.planner.policies.kit.ordered import walk_s
from services.planner.policies.kit.rigid import RigidOptions
from services.planner.solver.budget import Budget
from services.planner.solver.problem import Solve
from shared.domain.arrays import Flags

MEASURES = Measures(gain="utility, a function of the time from submission to the end that follows")


class HadareOptions(RigidOptions, frozen=True, kw_only=True):
    copies: Annotated[int, Meta(ge=0, le=100_000)] = 0
    """f: nodes that a job may have at once; 0: all"""
    fork_from_s: Annotated[float, Meta(ge=0, le=1e9)] = 0.0
    """seconds: a job whose expected running time that is left is shorter gets one node"""
    utility: Utility = "normalised"
    """what a job's end is worth: 1 / completion time (`inverse`), times its time alone (`normalised`) or
    times its samples (`raw`)"""
    division: Division = "given"
    """among which nodes a job's rest is divided: those that it was `given`, or `all`, as printed"""
    prior: Literal["estimator", "pmi"] = "estimator"
    """speeds where nothing was measured; `pmi`: the types of a job compared by HadarE's eq. 10"""
    lone: Literal["lockstep", "forked"] = "lockstep"
    """how a job runs on one node; `forked`: merged, and restarted, in every round"""


class Hadare:
    Options = HadareOptions
    calls: ClassVar[Mapping[Trigger, PlanKind]] = {Trigger.ROUND: PlanKind.FIRST}
    modes: ClassVar[frozenset[type[Mode]]] = frozenset({Forked, Lockstep})

    def __init__(self, options: HadareOptions) -> None:
        self._options = options

    def wants(self, view: View) -> Configurations:
        empty = [msgspec.structs.replace(node, idle=node.gpus) for node in view.nodes]
        jobs = copies_of(view, self._options.rigid_demand)
        return configurations_for(jobs, empty, -math.inf)  # σ = −∞: no job is spread that fits a node

    def decide(
        self,
        view: View,
        wanted: Configurations,
        estimates: Estimated,
        solve: Solve,  # noqa: ARG002 - it is no integer program
    ) -> Decision:
        budget = Budget(seconds=view.effort.budget_s, modelled=view.effort.modelled)
        queue = copies_of(view, self._options.rigid_demand)
        opening = self._opening(view, queue, table_of(wanted, estimates, queue, view.nodes))
        found = _planned(opening, budget) if opening.jobs else Decision(choices=())
        placed = {choice.job_id for choice in found.choices}
        known = [job.job_id for job in opening.jobs]
        return msgspec.structs.replace(
            found,
            left=tuple(left(view, queue, known, placed)),
            measures=MEASURES,
            solve_s=budget.spent_s + walk_s(view),
            configurations=len(wanted),
        )

    def _opening(self, view: View, queue: Sequence[ViewJob], table: CopySpeeds) -> Opening:
        """The input of the plan, for the jobs that have an estimate."""
        known = np.flatnonzero((table.speed > 0).any(axis=1))
        jobs = [queue[index] for index in known.tolist()]
        table = CopySpeeds(table.speed[known], table.layer[known])
        speed = table.speed
        if self._options.prior == "pmi":
            speed = guessed(speed, table.guessed, [node.gpu_type for node in view.nodes])
        nodes = int(runs_forked(view.nodes).sum())
        unforked = self._options.lone == "lockstep"
        most = [self._copies(job, nodes) for job in jobs]
        forking = forking_of(view, jobs, speed, most, self._options.utility, rests=unforked)
        return Opening(
            view=view,
            jobs=jobs,
            table=table,
            forking=forking,
            division=self._options.division,
            unforked=unforked,
        )

    def _copies(self, job: ViewJob, nodes: int) -> int:
        """The limit f of a job, where `nodes` nodes run copies; 1 if it ends before `fork_from_s`."""
        left_s = job.age_s * max(1.0 - job.samples_done / job.samples, 0.0)
        most = min(self._options.copies or nodes, nodes) if left_s >= self._options.fork_from_s else 1
        return max(most, 1)


def _planned(opening: Opening, budget: Budget) -> Decision:
    """The plan: an assignment; then fewer copies for jobs that end sooner so, and more for the others."""
    view, forking = opening.view, opening.forking
    on, solved = _assigned(forking, greedy=view.effort.greedy, budget=budget)
    kept, satisfied = trimmed(forking, on, view.round_s)
    most = np.where(satisfied, kept.sum(axis=1), forking.most).astype(np.int32)
    placed = grown(msgspec.structs.replace(forking, most=most), kept, budget)
    return msgspec.structs.replace(
        solved,
        choices=tuple(choices(opening, placed)),
        horizon_s=_horizon_s(opening, budget),
        standings=standings(opening, placed),
    )


def _assigned(forking: Forking, *, greedy: bool, budget: Budget) -> tuple[Flags, Decision]:
    """An assignment, and a decision with its stage, objective, bound and gap."""
    found = None if greedy else exact(forking, budget)
    on = grown(forking, no_copies(forking) if found is None else found, budget)
    if found is None and not greedy:
        on = grown(forking, exchanged(forking, on, budget), budget)
    value = float(forking.values(on).sum())
    most = value if found is not None else max(bound(forking), value)
    stage = Stage.GREEDY if greedy else Stage.OPTIMAL if most == value else Stage.INCUMBENT
    gap = (most - value) / most if most > 0 else 0.0
    return on, Decision(choices=(), stage=stage, objective=value, bound=most, gap=gap)


def _horizon_s(opening: Opening, budget: Budget) -> float | None:
    """M* (see `horizon`); None: there is no time left to compute it."""
    view = opening.view
    if view.effort.greedy or budget.left_s <= 0:
        return None
    return earliest_end_s(batch_of(opening.forking, view.nodes), budget)


hadare = Hadare
hadare_literal = variant(
    Hadare,
    "HadarE as its paper prints it: a job on a single node is forked and merged, too.",
    utility="raw",
    division="all",
    lone="forked",
)
