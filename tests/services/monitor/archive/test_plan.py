"""Names of files, what they cover, and how much of a stream has to go."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.questions import ArchiveKind
from services.monitor.archive.plan import Segment, coverage, droppable, lacking, segment_of

FACTS = ArchiveKind.FACTS


def named(*segments: tuple[int, int]) -> list[str]:
    return [Segment(FACTS, first, last).name for first, last in segments]


def test_the_name_of_a_file_says_its_kind_and_range() -> None:
    segment = Segment(ArchiveKind.OBSERVATIONS, 51, 100)
    assert segment.name == "observations-000000000051-000000000100.parquet"
    assert segment_of(segment.name) == segment


@pytest.mark.parametrize(
    "name",
    [
        "facts-1-2.parquet",
        "facts-000000000002-000000000001.parquet",
        "jobs-000000000001-000000000002.parquet",
        ".draft-facts-000000000001-000000000002.parquet.1a2b",
        "../facts-000000000001-000000000002.parquet",
    ],
)
def test_other_files_do_not_belong_to_an_archive(name: str) -> None:
    assert segment_of(name) is None


def test_files_that_follow_one_another_have_no_gap() -> None:
    there = coverage(named((51, 100), (1, 50), (101, 150)), FACTS)
    assert (there.begins, there.ends, there.gaps) == (1, 150, ())
    assert coverage(named((1, 50)), ArchiveKind.OBSERVATIONS).files == ()


def test_a_file_that_is_gone_leaves_a_gap() -> None:
    assert coverage(named((1, 50), (101, 150)), FACTS).gaps == (range(51, 101),)


def test_a_file_within_another_is_passed_over() -> None:
    there = coverage(named((1, 50), (1, 20), (40, 90)), FACTS)
    assert [(one.first, one.last) for one in there.files] == [(1, 50), (40, 90)]
    assert there.gaps == ()


def test_sequences_in_no_range_are_lacking() -> None:
    assert lacking([range(1, 3), range(5, 6)], 1, 8) == [range(3, 5), range(6, 9)]
    assert lacking([], 4, 5) == [range(4, 6)]
    assert lacking([range(1, 10)], 2, 8) == []


def test_a_stream_in_its_room_is_left_alone() -> None:
    assert droppable(10, 20, 1_000, 1_000) == 9
    assert droppable(21, 20, 0, 1_000) == 20


@given(st.integers(1, 10**6), st.integers(1, 10**5), st.integers(1, 10**4), st.integers(1, 10**9))
def test_dropping_brings_a_stream_below_its_limit(first: int, count: int, size_each: int, room: int) -> None:
    last = first + count - 1
    upto = droppable(first, last, count * size_each, room)
    assert first - 1 <= upto <= last
    assert (last - upto) * size_each <= room
