"""What holds of every reset."""

from collections.abc import Sequence

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as limits
from hypothesis import strategies as st

from schemas.placement import Gang, Proportional
from services.planner.policies.contract.decision import fault
from services.planner.policies.contract.view import View
from services.planner.policies.jps.shares import shared_by_speed
from services.planner.policies.jps.splits.dealing import dealt, dealt_by_type, grown, shuffled
from services.planner.policies.jps.splits.exact import optimum, vectors
from services.planner.policies.jps.splits.market import WorkerMarket
from services.planner.policies.jps.taking_part import placeable_gpus, taking_part
from services.planner.policies.kit.exchange import exchange_s
from shared.domain import gangs
from shared.domain.arrays import Floats, Ints
from tests.services.planner.planner_builders import decide, node, view
from tests.services.planner.policies.jps.jps_builders import faithful, trains, unlike

TYPES = ("p100", "t4", "v100")
ALL = ("has", "jps", "optimus", "optimus-lb", "optimus-aware", "exhaustive")
speed = st.integers(10, 1000).map(float)


@st.composite
def resets(draw: st.DrawFn, *, alike: bool = False) -> View:
    """Up to three jobs on up to two nodes of three types; exchanges take no time."""
    sizes = {name: draw(st.integers(0 if name == "p100" else 1, 3)) for name in TYPES}
    nodes = [unlike(f"{name}-0", gpus, name, unconnected=True) for name, gpus in sizes.items() if gpus]
    jobs = []
    for index in range(draw(st.integers(1, min(3, sum(sizes.values()))))):
        one = draw(speed)
        rates = {name: one if alike else draw(speed) for name in TYPES}
        jobs.append(trains(f"j{index}", rates, draw(st.floats(1e3, 1e7)), 9, submitted_at=float(index)))
    return view(jobs, nodes)


# ---- which is better


@given(resets())
@limits(deadline=None, max_examples=40)
def test_the_exact_optimum_is_never_worse_than_has_nor_that_than_jps(seen: View) -> None:
    exact, every, sampled = (faithful(one, seen).objective for one in ("exhaustive", "has", "jps"))
    assert exact <= every * (1 + 1e-9)
    assert every <= sampled * (1 + 1e-9)


@given(resets())
@limits(deadline=None, max_examples=40)
def test_jps_that_looks_at_all_is_has(seen: View) -> None:
    assert faithful("jps", seen, alpha=0, samples=100_000).choices == faithful("has", seen).choices


@given(resets(alike=True))
@limits(deadline=None, max_examples=40)
def test_on_equal_gpus_shares_by_speed_are_equal(seen: View) -> None:
    equal, by_speed = (faithful(one, seen) for one in ("optimus", "optimus-lb"))
    assert equal == msgspec.structs.replace(by_speed, solve_s=equal.solve_s)
    assert all(one.gang.mode == "lockstep" for one in by_speed.choices)


@given(resets(), st.permutations(range(3)))
@limits(deadline=None, max_examples=30)
def test_names_of_nodes_change_no_completion_time(seen: View, order: list[int]) -> None:
    names = [f"n{number}" for number in order]
    renamed = sorted(
        (
            msgspec.structs.replace(one, node_id=name)
            for one, name in zip(seen.nodes, names[: len(seen.nodes)], strict=True)
        ),
        key=lambda one: one.node_id,
    )
    other = msgspec.structs.replace(seen, nodes=tuple(renamed))
    for policy in ("has", "exhaustive"):
        assert faithful(policy, other).objective == pytest.approx(faithful(policy, seen).objective)


@pytest.mark.parametrize("policy", ALL)
@given(seen=resets())
@limits(deadline=None, max_examples=20)
def test_every_job_is_served_and_in_the_paper_s_terms_every_gpu_used(policy: str, seen: View) -> None:
    decision = faithful(policy, seen)
    assert fault(seen, decision) is None
    assert len(decision.choices) == len(seen.jobs)
    if not policy.startswith("optimus"):
        assert sum(one.gang.gpus for one in decision.choices) == seen.idle_gpus


@pytest.mark.parametrize("policy", ALL)
@given(seen=resets())
@limits(deadline=None, max_examples=20)
def test_the_same_reset_has_the_same_plan(policy: str, seen: View) -> None:
    assert decide(policy, seen) == decide(policy, seen)


# ---- exchanges


def test_an_exchange_takes_as_long_as_in_the_paper_s_formula() -> None:
    """E6: VGG-19 on 5 GPUs of a node with 300 Gb/s, on one of each of two nodes with 10 Gb/s between."""
    vgg19 = 558.44e6
    assert exchange_s(vgg19, 5, 300e9 / 8 / 2) == pytest.approx(0.0238, abs=5e-5)
    assert exchange_s(vgg19, 2, 10e9 / 8 / 2) == pytest.approx(0.4468, abs=5e-5)
    assert exchange_s(vgg19, 1, 1.0) == 0.0
    assert exchange_s(vgg19, 0.75, 1.0) == 0.0


# ---- shares


@given(
    gpus=st.lists(st.integers(1, 4), min_size=1, max_size=4),
    rates=st.lists(st.floats(1, 1000), min_size=4, max_size=4),
    batch_size=st.integers(1, 256),
    most=st.sampled_from([1.0, 1.5, 2.0, 100.0]),
)
def test_shares_are_the_global_batch_by_speed(
    gpus: list[int], rates: list[float], batch_size: int, most: float
) -> None:
    place = {node(f"n{index}").node_id: count for index, count in enumerate(gpus)}
    rate_of = dict(zip(place, rates, strict=False))
    gang = shared_by_speed(place, rate_of, batch_size, most=dict.fromkeys(place, most))
    taken = [sum(each) for each in gangs.batches(gang, batch_size)]
    assert sum(taken) == sum(gpus) * batch_size
    assert all(samples >= count for samples, count in zip(taken, gpus, strict=True))
    summed = sum(count * rate_of[name] for name, count in place.items())
    exact = [sum(taken) * count * rate_of[name] / summed for name, count in place.items()]
    limits_of = [(count, count * batch_size * most) for count in gpus]
    if all(low <= share <= high for (low, high), share in zip(limits_of, exact, strict=True)):
        assert all(abs(own - share) < 1 + 1e-6 for own, share in zip(taken, exact, strict=True))
    assert all(own < high + 1 for own, (_, high) in zip(taken, limits_of, strict=True))


@given(gpus=st.lists(st.integers(1, 4), min_size=1, max_size=4), batch_size=st.integers(1, 256))
def test_like_gpus_are_in_lockstep(gpus: list[int], batch_size: int) -> None:
    place = {node(f"n{index}").node_id: count for index, count in enumerate(gpus)}
    gang = shared_by_speed(place, dict.fromkeys(place, 7.0), batch_size, most=dict.fromkeys(place, 2.0))
    assert gang == Gang.of(place)
    assert not isinstance(gang.sync, Proportional)


# ---- taking part, dealing

needs = st.lists(
    st.tuples(st.frozensets(st.integers(0, 2), min_size=1), st.integers(1, 4)), min_size=1, max_size=5
)
supplies = st.lists(st.integers(0, 4), min_size=3, max_size=3)


def fits(jobs: list[tuple[frozenset[int], int]], supply: list[int]) -> bool:
    """By Hall's condition: no set of types is asked for more than it has, by jobs that need it."""
    groups = [set(np.flatnonzero([number >> bit & 1 for bit in range(3)]).tolist()) for number in range(8)]
    return all(
        sum(gpus for kinds, gpus in jobs if kinds <= own) <= sum(supply[kind] for kind in own)
        for own in groups
    )


@given(needs, supplies)
def test_a_job_takes_part_if_it_has_room_beside_those_before_it(
    jobs: list[tuple[frozenset[int], int]], supply: list[int]
) -> None:
    expected: list[int] = []
    for position, one in enumerate(jobs):
        if fits([jobs[other] for other in expected] + [one], supply):
            expected.append(position)
    assert taking_part(jobs, supply) == expected


def test_gpus_that_jobs_can_have_together_are_no_more_than_their_types() -> None:
    assert placeable_gpus({frozenset({0}): 5, frozenset({0, 1}): 5}, [3, 4]) == 7
    assert placeable_gpus({frozenset({0}): 5, frozenset({0, 1}): 2}, [3, 4]) == 5


@given(resets())
@limits(deadline=None, max_examples=30)
def test_no_more_gpus_are_dealt_than_there_are(seen: View) -> None:
    jobs, supply = seen.jobs, np.array([one.idle for one in seen.nodes], dtype=np.int32)
    rate = np.array([[one.single_gpu[kind.gpu_type] for kind in seen.nodes] for one in jobs])
    held = np.zeros(rate.shape, dtype=np.int32)
    left = np.array([one.samples for one in jobs])
    market = WorkerMarket(rate=rate, supply=supply, left=left, held=held)
    demands = [range(1, int(supply.sum()) + 1)] * len(jobs)
    counts = dealt(lambda job, gpus: left[job] / gpus, demands, int(supply.sum()))
    assert counts.sum() == supply.sum()

    def jct(job: int, gpus: Ints) -> float:
        return float(left[job] / (rate[job] @ gpus))

    for split in (
        dealt_by_type(jct, market, demands),
        grown(market, demands),
        shuffled(counts, rate, supply, "s"),
    ):
        assert split is not None
        assert (split.sum(axis=0) == supply).all()
        assert (split.sum(axis=1) >= 1).all()


# ---- the exact optimum


@pytest.mark.parametrize("idle", [False, True])
@given(supply=st.lists(st.integers(0, 2), min_size=1, max_size=2), jobs=st.integers(1, 3), data=st.data())
@limits(deadline=None, max_examples=40)
def test_the_dynamic_program_finds_the_least_sum(
    *, idle: bool, supply: list[int], jobs: int, data: st.DataObject
) -> None:
    every = vectors(supply)
    seconds = st.sampled_from([1.0, 2.0, 3.5, 7.0, float("inf")])
    jct = [
        np.array(data.draw(st.lists(seconds, min_size=len(every), max_size=len(every)))) for _ in range(jobs)
    ]
    rows = optimum(jct, supply, idle=idle)
    best = _least(jct, every, supply, idle=idle)
    if rows is None:
        assert best is None
        return
    assert (every[rows].sum(axis=0) <= supply).all()
    total = sum(float(one[row]) for one, row in zip(jct, rows, strict=True))
    assert best is not None
    assert best[0] == (0 if idle else int(every[rows].sum()))
    assert best[1] == pytest.approx(total)


def _least(jct: Sequence[Floats], every: Ints, supply: list[int], *, idle: bool) -> tuple[int, float] | None:
    """By looking at all: the most GPUs, unless they may be idle, and of those the least sum."""
    found = []
    for rows in np.ndindex(*([len(every)] * len(jct))):
        used = every[list(rows)].sum(axis=0)
        total = sum(float(one[row]) for one, row in zip(jct, rows, strict=True))
        if (used <= supply).all() and np.isfinite(total):
            found.append((0 if idle else int(used.sum()), total))
    return min(found, key=lambda one: (-one[0], one[1]), default=None)
