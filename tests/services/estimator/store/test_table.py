"""The columns beneath the store: rows found by number, sums that fade."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.estimator.store import distinct
from services.estimator.store.table import (
    COUNT,
    SECONDS,
    SEEN_AT,
    WEIGHT,
    Codes,
    Observations,
    Table,
    keys_of,
)

HALF_LIFE_S = 100.0
Row = tuple[int, ...]


def key(workload: int = 0, place: int = 0, *, distributed: bool = False, size: int = 1) -> int:
    columns = np.array([workload]), np.array([place]), np.array([distributed]), np.array([size])
    return int(keys_of(*columns)[0])


def seen(*rows: tuple[int, float, float, float]) -> Observations:
    """Key, time, seconds, samples/s."""
    keys, at, seconds, throughput = zip(*rows, strict=True)
    return Observations(np.array(keys), at, seconds, throughput)


def test_every_row_has_a_number_of_its_own() -> None:
    rows = [key(1), key(0, 1), key(0, 0, distributed=True), key(0, 0, size=2), key(), key(2**18 - 1)]
    assert len(set(rows)) == len(rows)
    assert min(rows) > 0


def test_sums_fade_to_the_time_of_the_newest() -> None:
    """30 s seen 100 s, one half-life, before 10 s: they weigh 15."""
    table = Table()
    table.add(seen((7, 0.0, 30.0, 2.0)), HALF_LIFE_S)
    table.add(seen((7, 100.0, 10.0, 2.0)), HALF_LIFE_S)
    [sums] = table.find(np.array([7]))
    assert (sums[COUNT], sums[WEIGHT], sums[SEEN_AT]) == (2.0, 25.0, 100.0)


def test_what_is_later_than_now_is_new_and_fades_from_then_on() -> None:
    table = Table()
    table.add(seen((7, 1e9, 30.0, 2.0)), HALF_LIFE_S, now=0.0)
    table.add(seen((7, 100.0, 10.0, 2.0)), HALF_LIFE_S, now=100.0)
    [sums] = table.find(np.array([7]))
    assert (sums[COUNT], sums[WEIGHT], sums[SEEN_AT]) == (2.0, 25.0, 100.0)


def test_a_row_that_is_ahead_of_the_clock_fades_from_the_next_observation_on() -> None:
    table = Table()
    table.add(seen((7, 1e9, 30.0, 2.0)), HALF_LIFE_S)
    for now in (0.0, 100.0):
        table.add(seen((7, now, 10.0, 2.0)), HALF_LIFE_S, now)
    [sums] = table.find(np.array([7]))
    assert (sums[WEIGHT], sums[SEEN_AT]) == (30.0, 100.0)


def test_the_order_in_which_they_come_changes_nothing() -> None:
    rows = [(k % 3, 10.0 * k, 5.0 + k, 1.0 + k) for k in range(12)]
    at_once, one_by_one = Table(), Table()
    at_once.add(seen(*rows), HALF_LIFE_S)
    for row in reversed(rows):
        one_by_one.add(seen(row), HALF_LIFE_S)
    keys = np.arange(3)
    assert at_once.find(keys)[:, COUNT].tolist() == [4.0, 4.0, 4.0]
    assert at_once.find(keys) == pytest.approx(one_by_one.find(keys))


def test_a_workload_that_is_dropped_leaves_the_others() -> None:
    table = Table()
    table.add(seen((key(0), 0.0, 1.0, 1.0), (key(1), 0.0, 1.0, 1.0)), HALF_LIFE_S)
    table.drop(np.array([0]))
    table.add(seen((key(2), 0.0, 1.0, 1.0)), HALF_LIFE_S)
    assert table.find(np.array([key(0), key(1), key(2)]))[:, COUNT].tolist() == [0.0, 1.0, 1.0]


def test_the_number_of_a_name_that_is_dropped_is_used_again() -> None:
    codes = Codes()
    codes.of(["a", "b", "c"])
    codes.drop(["b", "unknown"])
    assert codes.of(["d", "a", "c", "e"]).tolist() == [1, 0, 2, 3]


def test_there_is_room_for_any_number_of_rows() -> None:
    table, keys = Table(), np.arange(1, 200)
    table.put(keys, np.repeat(keys.astype(np.float64)[:, None], 6, axis=1))
    assert table.find(keys)[:, COUNT].tolist() == keys.tolist()


@given(st.lists(st.integers(1, 2**60), unique=True, max_size=100), st.lists(st.integers(1, 2**60)))
def test_rows_are_found_among_keys_that_are_not_there(there: list[int], others: list[int]) -> None:
    table = Table()
    for number, one in enumerate(there, start=1):
        table.add(seen((one, 0.0, float(number), 1.0)), HALF_LIFE_S)
    asked = [*others, *there]
    sums = table.find(np.array(asked, dtype=np.int64))
    known = {one: number for number, one in enumerate(there, start=1)}
    assert sums[:, SECONDS].tolist() == [known.get(one, 0) for one in asked]


WAYS = {"few": {}, "dense": {"SMALL": 0}, "sorted": {"SMALL": 0, "DENSE": -(10**7)}}
"""limits under which rows are compared one by one, laid out, or sorted"""


narrow = st.tuples(st.integers(0, 5), st.integers(0, 999))
wide = st.tuples(*[st.integers(0, most) for most in (5, 999, 3, 7, 2)])
some_rows = st.one_of(st.lists(narrow, min_size=1, max_size=64), st.lists(wide, min_size=1, max_size=64))


@given(some_rows, st.sampled_from(sorted(WAYS)))
def test_rows_that_say_the_same_are_one(rows: list[Row], way: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        for limit, value in WAYS[way].items():
            patch.setattr(distinct, limit, value)
        first, which = distinct.distinct([np.array(column) for column in zip(*rows, strict=True)])
    assert [rows[one] for one in first] == sorted(set(rows))
    assert [rows[first[one]] for one in which] == rows
