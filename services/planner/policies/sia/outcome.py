"""Turns the GPU types and counts that Sia grants into choices, reasons and standings."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec
import numpy as np

from schemas.ids import JobId, NodeId
from schemas.placement import Configuration, Gang
from schemas.plans import Standing, Waiting
from services.planner.policies.contract.decision import Choice, Left
from services.planner.policies.contract.estimates import Estimated
from services.planner.policies.contract.view import View, ViewJob
from services.planner.policies.sia.placement import Grant, Place, in_turns, placed
from services.planner.policies.sia.table import Table, by_type, node_gpus
from services.planner.solver.problem import NOTHING
from shared.domain.arrays import Floats, Ints

Places = dict[JobId, Configuration]
Placer = Callable[[Sequence[Grant], Sequence[int], int], list[Place]]
"""see `placed`"""


class Round(msgspec.Struct, frozen=True, kw_only=True):
    """The input of one decision."""

    view: View
    queue: Sequence[ViewJob]
    table: Table
    goodput: Floats
    """[J, T, K]: samples/s; NaN where a job has no such configuration, or nothing is known"""
    present: Ints
    """[J]: the cell of the type and count that each job has now, or NOTHING"""


def choices(seen: Round, cell: Ints, estimates: Estimated, *, authors: bool) -> tuple[Choice, ...]:
    """Choices of the jobs that find a place for their `cell` [J], by the queue; then of those that stay.

    A running job that was given no cell, or finds no place for it, stays if no other job got its GPUs.
    `authors`: no such job stays, and every job is placed from scratch in every round.
    """
    places = _places(seen, cell, in_turns if authors else placed)
    given = tuple(
        _choice(seen, index, int(cell[index]), places[job.job_id], estimates)
        for index, job in enumerate(seen.queue)
        if job.job_id in places
    )
    return given if authors else given + tuple(_staying(seen, places))


def reasons(seen: Round, cell: Ints, chosen: Sequence[Choice]) -> tuple[Left, ...]:
    """The reason for every job that gets no GPUs."""
    running = {choice.job_id for choice in chosen}
    return tuple(
        _reason(seen, index, int(cell[index]))
        for index, job in enumerate(seen.queue)
        if job.job_id not in running
    )


def standings(seen: Round, cell: Ints, worth: Floats) -> dict[JobId, Standing]:
    """By job: the worth of the cell it was given, else of its best one; and of its present cell.

    `worth` [J, T, K]: what each cell adds to the objective.
    """
    cells = worth.reshape(len(worth), -1)
    jobs = np.arange(len(cells))
    best = np.fmax.reduce(cells, axis=1, initial=np.nan)
    gain = np.where(cell == NOTHING, best, cells[jobs, cell])
    stay = np.where(seen.present == NOTHING, np.nan, cells[jobs, seen.present])
    return {
        job.job_id: Standing(gain=_known(own), stay=_known(now))
        for job, own, now in zip(seen.queue, gain.tolist(), stay.tolist(), strict=True)
    }


def _known(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _choice(seen: Round, index: int, cell: int, place: Configuration, estimates: Estimated) -> Choice:
    at = seen.table.at(index, cell)
    return Choice(
        job_id=seen.queue[index].job_id,
        gang=Gang.of(place),
        throughput=float(np.nan_to_num(seen.goodput[at])),
        layer=estimates.layer_at(int(seen.table.row[at])),
    )


def _reason(seen: Round, index: int, cell: int) -> Left:
    job_id = seen.queue[index].job_id
    if cell != NOTHING:
        gpu_type, gpus = seen.table.option(cell)
        detail = f"no room for {gpus} GPUs together on {gpu_type}"
        return Left(job_id=job_id, reason=Waiting.NO_CONFIGURATION, detail=detail)
    nowhere = (seen.table.row[index] == NOTHING).all()
    return Left(job_id=job_id, reason=Waiting.NO_CONFIGURATION if nowhere else Waiting.OUTWEIGHED)


def _places(seen: Round, cell: Ints, placer: Placer) -> Places:
    kinds = cell // len(seen.table.sizes)
    places: Places = {}
    for gpu_type, nodes in by_type(seen.view.nodes).items():
        kind = seen.table.types.index(gpu_type)
        jobs = np.flatnonzero((cell != NOTHING) & (kinds == kind)).tolist()
        position = {node.node_id: index for index, node in enumerate(nodes)}
        grants = [_grant(seen, index, int(cell[index]), position) for index in jobs]
        found = placer(grants, [node.idle for node in nodes], node_gpus(nodes))
        for index, place in zip(jobs, found, strict=True):
            if place:
                places[seen.queue[index].job_id] = {nodes[at].node_id: gpus for at, gpus in place.items()}
    return places


def _grant(seen: Round, index: int, cell: int, position: Mapping[NodeId, int]) -> Grant:
    present = seen.queue[index].present
    same = present is not None and seen.present[index] == cell
    place = present.gang.configuration if present is not None and same else {}
    return Grant(
        gpus=seen.table.option(cell)[1],
        present={position[node_id]: gpus for node_id, gpus in place.items()},
        pinned=present is not None and present.starting,
    )


def _staying(seen: Round, places: Places) -> Iterator[Choice]:
    free = {node.node_id: node.idle for node in seen.view.nodes}
    for place in places.values():
        _take(free, place)
    for job in seen.queue:
        now = job.present
        if now is None or job.job_id in places:
            continue
        if all(free.get(one.node, 0) >= one.gpus for one in now.gang.members):
            _take(free, now.gang.configuration)
            yield Choice(
                job_id=job.job_id,
                gang=now.gang,
                throughput=now.throughput,
                layer=now.layer,
            )


def _take(free: dict[NodeId, int], place: Configuration) -> None:
    for node_id, gpus in place.items():
        free[node_id] -= gpus
