"""Memories in few bytes: what is packed can be read again, and never becomes too large."""

from copy import copy
from functools import partial
from random import Random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.ids import JobId
from services.planner.policies.kit.packing import (
    PACKED_BYTES_MAX,
    PLAIN_BYTES_MAX,
    NumberType,
    column,
    digests,
    named,
    numbers,
    opened,
    packed,
)

IDS = st.lists(st.text("abc-0", min_size=1, max_size=6).map(JobId), unique=True)
JUST_LARGE = bytes(PLAIN_BYTES_MAX + 1)


class Form(msgspec.Struct):
    data: bytes


def noise(count: int) -> Form:
    return Form(Random(1).randbytes(count))


@given(st.lists(st.floats(allow_nan=False)))
def test_a_column_gives_its_numbers_back(values: list[float]) -> None:
    assert numbers(column(values, "<f8"), "<f8") == values


@pytest.mark.parametrize(("kind", "most"), [("<i4", 2**31 - 1), ("<i8", 2**63 - 1), ("<u8", 2**64 - 1)])
def test_a_column_of_whole_numbers_too(kind: NumberType, most: int) -> None:
    assert numbers(column([0, 1, most], kind), kind) == [0, 1, most]


def test_single_precision_rounds_and_makes_nothing_infinite() -> None:
    least, large = numbers(column([0.1, -1e300], "<f4"), "<f4")
    assert (least, large) == (pytest.approx(0.1), pytest.approx(-3.4e38, rel=0.01))


def test_bytes_that_are_no_column_are_a_value_error() -> None:
    with pytest.raises(ValueError, match="reshape"):
        numbers(b"123", "<f8")


@given(IDS, IDS)
def test_jobs_are_known_by_their_digests_and_others_keep_theirs(
    there: list[JobId], gone: list[JobId]
) -> None:
    """A job that is gone for one plan is itself again when it comes back."""
    every = list(dict.fromkeys([*there, *gone]))
    seen = list(named(digests(every), there))
    assert [one for one in seen if one in there] == there
    assert list(named(digests(seen), every)) == every


def test_a_small_memory_is_stored_as_it_is() -> None:
    small = bytes(PLAIN_BYTES_MAX)
    assert packed(small, []) == small
    assert opened(small, Form) is None


def test_of_a_large_memory_the_first_form_that_is_small_enough_is_stored() -> None:
    forms = [noise(PACKED_BYTES_MAX), noise(PACKED_BYTES_MAX // 2), noise(1)]
    memory = packed(JUST_LARGE, [partial(copy, form) for form in forms])
    assert opened(memory, Form) == forms[1]


def test_what_is_too_large_in_every_form_is_forgotten() -> None:
    assert packed(JUST_LARGE, [lambda: noise(PACKED_BYTES_MAX)]) == b""


@pytest.mark.parametrize("cut", [3, 20, -1])
def test_a_damaged_memory_is_none(cut: int) -> None:
    memory = packed(JUST_LARGE, [lambda: noise(1000)])
    assert opened(memory[:cut], Form) is None


def test_the_memory_of_another_policy_is_none() -> None:
    class Other(msgspec.Struct):
        name: str

    assert opened(packed(JUST_LARGE, [lambda: noise(9)]), Other) is None
