"""Turns an assignment of nodes into choices, reasons and standings. Pure."""

from collections.abc import Iterator, Mapping, Sequence

import msgspec
import numpy as np

from schemas.ids import JobId
from schemas.placement import LOCKSTEP, Forked, Gang
from schemas.plans import Layer, Standing, Waiting
from schemas.questions import LAYERS
from services.planner.policies.contract.decision import Choice, Left
from services.planner.policies.contract.view import View, ViewJob
from services.planner.policies.hadare.dividing import Division, shares
from services.planner.policies.hadare.forking import Forking
from services.planner.policies.hadare.from_view import CopySpeeds
from shared.domain.arrays import Flags, Ints


class Opening(msgspec.Struct, frozen=True, kw_only=True):
    """The input of a round's plan: the jobs that may have copies, and their speeds."""

    view: View
    jobs: Sequence[ViewJob]
    table: CopySpeeds
    forking: Forking
    division: Division
    unforked: bool
    """whether a job on one node runs in lockstep; else as a single copy"""


def choices(opening: Opening, on: Flags) -> Iterator[Choice]:
    for index, job in enumerate(opening.jobs):
        nodes = np.flatnonzero(on[index])
        if len(nodes):
            yield _choice(opening, index, job, nodes.astype(np.int32))


def _choice(opening: Opening, index: int, job: ViewJob, nodes: Ints) -> Choice:
    speeds, view = opening.forking.speed[index], opening.view
    nodes = np.array(sorted(nodes.tolist(), key=lambda node: view.nodes[node].node_id), dtype=np.int32)
    place = {view.nodes[node].node_id: job.demand[0] for node in nodes.tolist()}
    sync: Forked | None = None
    forks = opening.forking.forks
    if forks[nodes].all() and (len(nodes) > 1 or not opening.unforked):
        waits = opening.division == "all" and job.preemptible  # else it would lose its nodes with work left
        others = speeds[forks].sum() - speeds[nodes].sum() if waits else 0.0
        steps = -int(-opening.forking.left[index] // job.batch_size)
        sync = Forked(shares=shares(speeds[nodes], float(others), steps))
    fastest = nodes[int(np.argmax(speeds[nodes]))]
    return Choice(
        job_id=job.job_id,
        gang=Gang.of(place, sync or LOCKSTEP),
        throughput=float(speeds[nodes].sum()),
        layer=Layer(LAYERS[opening.table.layer[index, fastest]]),
    )


def left(view: View, queue: Sequence[ViewJob], known: Sequence[JobId], placed: set[JobId]) -> Iterator[Left]:
    """Why jobs get no copy. `queue`: the jobs that fit a node; `known`: those with an estimate."""
    reasons = {job.job_id: Waiting.NO_ESTIMATE for job in queue} | dict.fromkeys(known, Waiting.OUTWEIGHED)
    for job in view.jobs:
        if job.job_id not in placed:
            yield Left(job_id=job.job_id, reason=reasons.get(job.job_id, Waiting.NO_CONFIGURATION))


def standings(opening: Opening, on: Flags) -> Mapping[JobId, Standing]:
    """By job: its utility with the nodes it was given; if none, with its fastest node."""
    forking = opening.forking
    alone = np.zeros_like(on)
    alone[np.arange(len(on)), np.where(forking.able(), forking.speed, 0.0).argmax(axis=1)] = True
    gained = np.where(on.any(axis=1), forking.values(on), forking.values(alone))
    return {job.job_id: Standing(gain=gain) for job, gain in zip(opening.jobs, gained.tolist(), strict=True)}
