"""Theorem 3, corrected: how busy the nodes are on which a job is alone (E6)."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.services.planner.policies.hadare.alone import alone, printed_rounds

WORK, SLOT_S = 3600.0, 120.0


def test_e6_one_copy() -> None:
    found = alone(WORK, [10.0], 2, SLOT_S)
    assert (found.rounds, found.cru_slots) == (3, 0.5)


@pytest.mark.parametrize(
    ("second", "ends_s", "rounds", "cru"),
    [(10.0, 180.0, 2, 0.75), (5.0, 240.0, 2, 1.0), (1.0, 327.27, 3, 0.9091)],
)
def test_e6_two_copies(second: float, ends_s: float, rounds: int, cru: float) -> None:
    found = alone(WORK, [10.0, second], 2, SLOT_S)
    assert found.ends_s == pytest.approx(ends_s, abs=0.005)
    assert found.rounds == rounds
    assert found.cru_slots == pytest.approx(cru, abs=5e-5)
    assert printed_rounds(WORK, [10.0, second], SLOT_S) == 2


@given(
    left=st.floats(1.0, 1e6),
    speeds=st.lists(st.floats(0.1, 100.0), min_size=1, max_size=6),
    slot_s=st.sampled_from([90.0, 360.0]),
)
def test_more_copies_never_take_longer_nor_leave_more_rounds(
    left: float, speeds: list[float], slot_s: float
) -> None:
    found = [alone(left, speeds[:count], len(speeds), slot_s) for count in range(1, len(speeds) + 1)]
    for fewer, more in pairwise(found):
        assert more.ends_s <= fewer.ends_s
        assert more.rounds <= fewer.rounds
    assert all(0.0 < one.cru_slots <= 1.0 + 1e-9 for one in found)
    assert found[-1].ends_s * sum(speeds) == pytest.approx(left)
