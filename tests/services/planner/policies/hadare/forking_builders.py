"""Assignments that tests of HadarE build from, and what looking at every one of them finds."""

import math
from collections.abc import Iterator, Sequence
from itertools import product

import numpy as np
from hypothesis import strategies as st

from services.planner.policies.hadare.forking import NOWHERE, Forking, no_copies
from services.planner.policies.kit.completion import scales
from shared.domain.arrays import Flags


def forking(
    speed: Sequence[Sequence[float]],
    left: Sequence[float],
    *,
    gpus: Sequence[int] | None = None,
    idle: Sequence[int] | None = None,
    most: int | None = None,
    elapsed_s: float = 0.0,
    start_s: float = 0.0,
    copy_s: float = 0.0,
    period_s: float = 360.0,
    home: Sequence[int] | None = None,
    here: Flags | None = None,
    forks: Sequence[bool] | None = None,
) -> Forking:
    """Jobs that came together, with utilities normalised by the mean speed over the nodes."""
    table = np.array(speed, dtype=np.float64)
    jobs, nodes = table.shape
    mean = table.sum(axis=1) / (table > 0).sum(axis=1)
    return Forking(
        speed=table,
        gpus=np.array(gpus or [1] * jobs, dtype=np.int32),
        idle=np.array(idle or [1] * nodes, dtype=np.int32),
        most=np.full(jobs, most or nodes, dtype=np.int32),
        scale=scales("normalised", np.array(left), mean),
        elapsed=np.full(jobs, elapsed_s),
        left=np.array(left, dtype=np.float64),
        start_s=np.full(jobs, start_s),
        copy_s=np.full(jobs, copy_s),
        period_s=np.full(jobs, period_s),
        home=np.array(home or [NOWHERE] * jobs, dtype=np.int32),
        here=np.zeros(table.shape, dtype=np.bool_) if here is None else here,
        forks=np.array(forks or [True] * nodes, dtype=np.bool_),
    )


def shared(forking: Forking, owners: Sequence[int]) -> Flags:
    """The assignment that gives each node to one job."""
    on = no_copies(forking)
    on[list(owners), range(len(owners))] = True
    return on


def everything(forking: Forking) -> Iterator[Flags]:
    """Every assignment, by looking at each subset of all copies."""
    cells = np.argwhere(forking.able()).tolist()
    for chosen in product((False, True), repeat=len(cells)):
        on = no_copies(forking)
        for (job, node), taken in zip(cells, chosen, strict=True):
            on[job, node] = taken
        if allowed(forking, on):
            yield on


def allowed(forking: Forking, on: Flags) -> bool:
    return bool(
        (forking.free(on) >= 0).all()
        and (on.sum(axis=1) <= forking.most).all()
        and (~on | forking.able()).all()
        and (~forking.alone(on) | (on.sum(axis=1) <= 1)).all()
    )


def extensible(forking: Forking, on: Flags) -> bool:
    """Whether some job would gain by one more copy that it could have."""
    room = forking.gpus[:, None] <= forking.free(on)[None, :]
    possible = room & ~on & forking.able() & (on.sum(axis=1) < forking.most)[:, None]
    possible &= (forking.forks & ~forking.alone(on)[:, None]) | (on.sum(axis=1) == 0)[:, None]
    return any(_gain(forking, on, job, node) > 0.0 for job, node in np.argwhere(possible).tolist())


def _gain(forking: Forking, on: Flags, job: int, node: int) -> float:
    more = on.copy()
    more[job, node] = True
    return float(forking.values(more)[job] - forking.values(on)[job])


def unlike(seed: int) -> Forking:
    """Three to seven jobs on as many nodes, of which some run no copies; no two figures are equal."""
    draw = np.random.default_rng(seed)
    jobs, nodes = draw.integers(3, 8, 2).tolist()
    speed = draw.uniform(0.5, 10.0, (jobs, nodes)) * (draw.random((jobs, nodes)) < 0.85)
    speed[:, 0] = np.maximum(speed[:, 0], 0.5 + np.arange(jobs) / 7)
    home = np.where(draw.random(jobs) < 0.5, draw.permutation(max(jobs, nodes))[:jobs] % nodes, NOWHERE)
    return forking(
        speed.tolist(),
        draw.uniform(300.0, 5_000.0, jobs).tolist(),
        gpus=draw.integers(1, 3, jobs).tolist(),
        idle=draw.integers(1, 4, nodes).tolist(),
        most=int(draw.integers(1, nodes + 1)),
        elapsed_s=float(draw.choice([0.0, 200.0])),
        start_s=float(draw.choice([0.0, 15.0, 60.0])),
        copy_s=float(draw.choice([0.0, 5.0])),
        period_s=float(draw.choice([90.0, 360.0, math.inf])),
        home=home.tolist(),
        forks=(draw.random(nodes) < draw.choice([0.5, 1.0])).tolist(),
    )


def by_gain(forking: Forking) -> Flags:
    """Copies to the job that gains most by each, one after another; every possible step is looked at."""
    on = no_copies(forking)
    while True:
        steps = {
            (job, nodes): float((forking.values(_with(on, job, nodes)) - forking.values(on))[job])
            / len(nodes)
            for job in range(len(on))
            for nodes in _steps(forking, on, job)
        }
        if max(steps.values(), default=0.0) <= 0.0:
            return on
        on = _with(on, *max(steps, key=steps.__getitem__))


def _steps(forking: Forking, on: Flags, job: int) -> Iterator[tuple[int, ...]]:
    """The next nodes that a job might get together."""
    fits = (forking.speed[job] > 0) & ~on[job] & (forking.free(on) >= forking.gpus[job])
    fastest = sorted(np.flatnonzero(fits).tolist(), key=lambda node: -forking.speed[job, node])
    copies, lone = ([node for node in fastest if forking.forks[node] == runs] for runs in (True, False))
    has = int(on[job].sum())
    if any(on[job] & ~forking.forks):
        return
    for count in range(1, min(len(copies), int(forking.most[job]) - has) + 1):
        yield tuple(copies[:count])
    if not has:
        yield from ((node,) for node in lone if node in (lone[0], forking.home[job]))


def _with(on: Flags, job: int, nodes: Sequence[int]) -> Flags:
    more = on.copy()
    more[job, list(nodes)] = True
    return more


def scattered(forking: Forking, seed: int) -> Flags:
    """Copies put anywhere, one after another, as long as there is room."""
    on = no_copies(forking)
    cells = np.argwhere(forking.able())
    for job, node in np.random.default_rng(seed).permutation(cells).tolist():
        more = _with(on, job, [node])
        on = more if allowed(forking, more) else on
    return on


def after_one_exchange(forking: Forking, on: Flags, job: int, node: int) -> Iterator[Flags]:
    """What may become of a copy: it is another job's, or has swapped nodes with another copy."""
    speed = forking.speed
    found = [
        _moved(on, {(job, node)}, {(other, node)})
        for other in range(len(on))
        if not on[other, node] and speed[other, node] > 0
    ]
    found += [
        _moved(on, {(job, node), (other, place)}, {(job, place), (other, node)})
        for other, place in np.argwhere(on).tolist()
        if not on[job, place] and not on[other, node] and speed[job, place] > 0 and speed[other, node] > 0
    ]
    return (one for one in found if allowed(forking, one))


def _moved(on: Flags, gone: set[tuple[int, int]], new: set[tuple[int, int]]) -> Flags:
    moved = on.copy()
    for cells, value in ((gone, False), (new, True)):
        for cell in cells:
            moved[cell] = value
    return moved


def brute_force(forking: Forking) -> float:
    return max(float(forking.values(on).sum()) for on in everything(forking))


@st.composite
def forkings(draw: st.DrawFn, *, alike: bool = False) -> Forking:
    """At most nine copies in all. `alike`: gangs of one GPU each."""
    nodes = draw(st.integers(1, 3))
    jobs = draw(st.integers(1, 9 // nodes if nodes > 1 else 4))
    row = st.lists(st.sampled_from([0.0, 0.5, 1.0, 2.5, 3.0, 9.0, 10.0]), min_size=nodes, max_size=nodes)
    speed = draw(st.lists(row.filter(any), min_size=jobs, max_size=jobs))
    most = draw(st.integers(1, nodes))
    sizes = st.just(1) if alike else st.integers(1, 2)
    return forking(
        speed,
        draw(st.lists(st.floats(1.0, 1e5), min_size=jobs, max_size=jobs)),
        gpus=draw(st.lists(sizes, min_size=jobs, max_size=jobs)),
        idle=draw(st.lists(st.integers(1, 2), min_size=nodes, max_size=nodes)),
        most=most,
        elapsed_s=draw(st.sampled_from([0.0, 100.0, 5000.0])),
        start_s=draw(st.sampled_from([0.0, 15.0])),
        copy_s=draw(st.sampled_from([0.0, 2.0])) if most == nodes else 0.0,
        period_s=draw(st.sampled_from([10.0, 60.0, 360.0, math.inf])),
        home=draw(st.lists(st.integers(NOWHERE, nodes - 1), min_size=jobs, max_size=jobs)),
        here=np.array(
            draw(
                st.lists(
                    st.lists(st.booleans(), min_size=nodes, max_size=nodes), min_size=jobs, max_size=jobs
                )
            )
        ),
        forks=draw(st.lists(st.booleans(), min_size=nodes, max_size=nodes)),
    )
