"""Sia (SOSP '23): goodput by GPU type and count, one integer program a round, and only then places.

Rounds only: nothing is planned between them, as in the paper. `Sia` may give a job every GPU count of its
demand; `SiaPowers` the authors' own counts, powers of two within a node and whole nodes; `SiaFaithful`
has the quirks of the authors' code besides. docs/policies/sia.md says what they are.

Beyond the paper: between equals the order of the queue decides, and see `sia_outcome` for who stays.
"""

from collections.abc import Mapping, Sequence
from typing import ClassVar

import msgspec
import numpy as np

from schemas.ids import JobId
from schemas.plans import PlanKind, Waiting
from schemas.settings import Settings
from services.planner.configurations import Configurations
from services.planner.estimates import Estimated
from services.planner.policies.contract import Choice, Decision, Left, Trigger
from services.planner.policies.sia_outcome import Round, choices, reasons
from services.planner.policies.sia_table import (
    Table,
    by_type,
    columns,
    counts,
    options_of,
    present_options,
    stocks,
    table_of,
)
from services.planner.priority import ranked
from services.planner.problem import NOTHING, Floats, Solve
from services.planner.programs.sia_ilp import Allocation, Goal, Market, allocate, gains
from services.planner.programs.sia_utilities import (
    begun,
    discounted,
    normalised,
    projected,
    restart_factor,
    utilities,
)
from services.planner.view import View, ViewJob

GAP = 1e-4
"""tolerated at most, as by the authors: a hundredth of the whole is dozens of small jobs left out"""
TIE = 1e-6
"""by how much the first of the queue outweighs the last: it decides between equals only"""
VERSION = 1
"""of the memory"""


class Memory(msgspec.Struct, frozen=True, kw_only=True):
    """What the next decision has to know and no view tells."""

    version: int = VERSION
    largest: dict[JobId, int] = {}
    """the most GPUs each job was given, if more than one"""


class Sia:
    calls: ClassVar[Mapping[Trigger, PlanKind]] = {Trigger.ROUND: PlanKind.FIRST}
    powers: ClassVar[bool] = False
    """the authors' counts, instead of all that the user allows"""
    quirks: ClassVar[bool] = False
    """utilities in hundredths; a rigid job's smallest goodput is its GPU count; places go round the nodes"""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._goal = Goal(power=settings.sia_power, penalty=settings.sia_penalty)

    def wants(self, view: View) -> Configurations:
        queue = self._queue(view)
        stock, largest, factor = stocks(view.nodes), _largest(view), self._settings.sia_scale_up
        options = [
            options_of(counts(job, stock, powers=self.powers), largest[job.job_id], factor, now)
            for job, now in zip(queue, present_options(queue, view.nodes), strict=True)
        ]
        return columns([job.job_id for job in queue], options, view.nodes)

    def decide(self, view: View, wanted: Configurations, estimates: Estimated, solve: Solve) -> Decision:
        if not len(wanted):
            nothing = (Left(job_id=job_id, reason=Waiting.NO_CONFIGURATION) for job_id in wanted.jobs)
            return Decision(choices=(), left=tuple(nothing), memory=_memory(view, ()))
        seen = self._round(view, wanted, estimates)
        given = self._allocation(seen, solve)
        chosen = choices(seen, given.cell, estimates, rotate=self.quirks)
        return Decision(
            choices=chosen,
            left=reasons(seen, given.cell, chosen),
            stage=given.solution.stage,
            objective=given.solution.objective,
            bound=given.solution.bound,
            gap=given.solution.gap,
            solve_s=given.solution.seconds,
            configurations=len(wanted),
            memory=_memory(view, chosen),
        )

    def _queue(self, view: View) -> list[ViewJob]:
        """All jobs, the most urgent first."""
        return [job for job, _ in ranked(view, self._settings.priority_rule)]

    def _round(self, view: View, wanted: Configurations, estimates: Estimated) -> Round:
        queue = self._queue(view)
        table = table_of(wanted, view.nodes)
        return Round(
            view=view,
            queue=queue,
            table=table,
            goodput=_goodput(queue, table, estimates),
            present=table.cells(present_options(queue, view.nodes)),
        )

    def _allocation(self, seen: Round, solve: Solve) -> Allocation:
        starting = [job.present is not None and job.present.starting for job in seen.queue]
        effort = seen.view.effort
        return allocate(
            self._gains(seen),
            _market(seen),
            weight=_weights(seen.queue),
            pinned=np.where(starting, seen.present, NOTHING).astype(np.int32),
            solve=solve,
            effort=msgspec.structs.replace(effort, gap=min(effort.gap, GAP)),
        )

    def _gains(self, seen: Round) -> Floats:
        """What each configuration is worth more than none: [J, T, K]."""
        rigid = [len(job.demand) == 1 and self.quirks for job in seen.queue]
        least = np.where(rigid, [job.demand[0] for job in seen.queue], 1.0)
        gain = begun(normalised(seen.goodput, least), seen.table.row != NOTHING)
        number = np.arange(gain[0].size).reshape(gain[0].shape)
        gain = discounted(
            gain,
            self._restart_factor(seen),
            np.array([job.present is not None for job in seen.queue]),
            number == seen.present[:, None, None],
        )
        return gains(utilities(gain, self._goal.power, rounded=self.quirks), self._goal)

    def _restart_factor(self, seen: Round) -> Floats:
        return restart_factor(
            np.array([seen.view.at - job.submitted_at for job in seen.queue]),
            np.array([job.restarts for job in seen.queue], dtype=np.float64),
            self._settings.startup_s + self._settings.checkpoint_s,
        )


class SiaPowers(Sia):
    powers = True


class SiaFaithful(SiaPowers):
    quirks = True


def _goodput(queue: Sequence[ViewJob], table: Table, estimates: Estimated) -> Floats:
    """What is estimated, and projected for types of which nothing is known."""
    single = [[job.single_gpu.get(gpu_type, np.nan) for gpu_type in table.types] for job in queue]
    every = projected(table.spread(estimates.throughput), np.array(single))
    return np.where(table.row == NOTHING, np.nan, every)


def _market(seen: Round) -> Market:
    idle = [sum(node.idle for node in nodes) for nodes in by_type(seen.view.nodes).values()]
    return Market(capacity=np.array(idle, dtype=np.int32), sizes=seen.table.sizes)


def _weights(queue: Sequence[ViewJob]) -> Floats:
    """The users' factors, all 1 in the paper; and the order of the queue."""
    rank = np.arange(len(queue)) / max(len(queue), 1)
    weights: Floats = np.array([job.priority for job in queue]) * (1.0 - TIE * rank)
    return weights


# ---- memory


def _largest(view: View) -> dict[JobId, int]:
    """The most GPUs each job has run with: profiling was on one.

    Without a memory of it, what the job has now, or else the mean so far.
    """
    known = _remembered(view.memory)
    return {
        job.job_id: max(
            known.get(job.job_id, 1),
            sum(job.present.configuration.values()) if job.present is not None else 1,
            int(job.attained_gpu_s / max(sum(job.received_s.values()), 1.0)),
        )
        for job in view.jobs
    }


def _memory(view: View, chosen: Sequence[Choice]) -> bytes:
    """Of the jobs in the view; a fragment plan does not show those that run, and forgets none."""
    largest = _largest(view)
    if view.kind == PlanKind.FRAGMENT:
        largest = _remembered(view.memory) | largest
    for choice in chosen:
        largest[choice.job_id] = max(largest[choice.job_id], sum(choice.configuration.values()))
    kept = {job_id: gpus for job_id, gpus in sorted(largest.items()) if gpus > 1}
    return msgspec.json.encode(Memory(largest=kept))


def _remembered(memory: bytes) -> dict[JobId, int]:
    """What was written, if this version wrote it; nothing otherwise."""
    try:
        found = msgspec.json.decode(memory, type=Memory)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return {}
    return found.largest if found.version == VERSION else {}
