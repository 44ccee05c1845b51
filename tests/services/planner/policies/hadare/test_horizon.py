"""M*: no schedule of copies ends a batch sooner."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import settings as limits
from hypothesis import strategies as st

from services.planner.policies.hadare import horizon
from services.planner.policies.hadare.forking import Forking, no_copies
from services.planner.policies.hadare.growing import grown
from services.planner.policies.hadare.horizon import Batch, earliest_end_s
from services.planner.solver.budget import Budget
from shared.domain.arrays import Floats, Ints
from tests.services.planner.policies.hadare.forking_builders import forking, forkings


def batch(of: Forking) -> Batch:
    return Batch(
        speed=np.where(of.able(), of.speed, 0.0),
        left=of.left,
        gpus=of.gpus,
        capacity=of.idle,
        most=of.most,
        most_on=of.able().astype(np.int32),
    )


def m_star(of: Forking) -> float:
    found = earliest_end_s(batch(of), Budget())
    assert found is not None
    return found


def test_e7() -> None:
    assert m_star(forking([[10, 4, 2], [3, 3, 3]], [600, 360])) == pytest.approx(60.0)


def test_one_job_gains_at_most_the_sum_of_its_speeds() -> None:
    assert m_star(forking([[10, 4, 2]], [600])) == pytest.approx(600 / 16)
    assert m_star(forking([[10, 4, 2]], [600], most=1)) == pytest.approx(60.0)


def test_a_job_has_one_copy_on_a_node_however_many_gpus_it_has() -> None:
    assert m_star(forking([[10.0]], [600], idle=[4])) == pytest.approx(60.0)
    assert m_star(forking([[10.0]] * 4, [600] * 4, idle=[4])) == pytest.approx(60.0)
    assert m_star(forking([[10.0]] * 5, [600] * 5, idle=[4])) == pytest.approx(75.0)


def test_without_a_budget_there_is_no_bound() -> None:
    assert earliest_end_s(batch(forking([[10, 4, 2]], [600])), Budget(seconds=0.0)) is None


@given(of=forkings(), part=st.sampled_from([0.07, 0.4, 2.0]))
@limits(max_examples=60, deadline=None)
def test_no_schedule_of_rounds_ends_sooner(of: Forking, part: float) -> None:
    """Planned again in each round, of a part of M*, and whenever a job ends."""
    kept = np.flatnonzero(of.able().any(axis=1)).astype(np.int32)
    assume(len(kept))
    least = m_star(cut(of, kept))
    at = ends_s(cut(of, kept), part * least)
    assert least * (1 - 1e-6) <= at
    assert at < least * 20, "a job is served at a time, at worst"


def ends_s(of: Forking, slot_s: float) -> float:
    left, at = of.left, 0.0
    while len(going := np.flatnonzero(left > 0).astype(np.int32)):
        part = cut(of, going, left)
        on = grown(part, no_copies(part), Budget())
        rate = (part.speed * on).sum(axis=1)
        took = float(np.min(np.append(part.left[rate > 0] / rate[rate > 0], slot_s)))
        at += took
        rest = left[going] - took * rate
        left = left.copy()
        left[going] = np.where(rest <= 1e-9 * of.left[going], 0.0, rest)
    return at


def cut(of: Forking, jobs: Ints, left: Floats | None = None) -> Forking:
    """Some jobs alone."""
    lefts = (of.left if left is None else left)[jobs]
    return forking(
        of.speed[jobs].tolist(),
        lefts.tolist(),
        gpus=of.gpus[jobs].tolist(),
        idle=of.idle.tolist(),
        most=int(of.most[0]),
    )


@given(of=forkings())
@limits(max_examples=40, deadline=None)
def test_for_many_jobs_the_bound_is_weaker_and_still_holds(of: Forking) -> None:
    kept = np.flatnonzero(of.able().any(axis=1)).astype(np.int32)
    assume(len(kept))
    strict = m_star(cut(of, kept))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(horizon, "CELLS", 0)
        loose = m_star(cut(of, kept))
    assert strict / 3 <= loose <= strict * (1 + 1e-9)
