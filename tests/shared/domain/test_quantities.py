"""Lengths of time and amounts of memory as people write them."""

import pytest

from shared.domain.quantities import bytes_in, seconds_in, seconds_of_clock


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90.0), ("90s", 90.0), ("1.5m", 90.0), ("2h", 7200.0), (" 1d ", 86400.0)]
    + [(text, None) for text in ("", "h", "-1h", "1e9", "2 h", "yesterday", "1w", "٣h")],
)
def test_a_length_of_time_is_a_number_and_a_unit(text: str, seconds: float | None) -> None:
    assert seconds_in(text) == seconds


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("02:30:00", 9000.0), ("1:30:00", 5400.0), ("5:00", 300.0), ("100:00:01", 360_001.0)]
    + [(text, None) for text in ("", "5", "5:0", "1:2:3", "-1:00", "1:00:00:00", "1h:00")],
)
def test_a_length_of_time_may_be_hours_minutes_and_seconds(text: str, seconds: float | None) -> None:
    assert seconds_of_clock(text) == seconds


@pytest.mark.parametrize(
    ("text", "amount"),
    [("500MB", 5e8), ("8GiB", 8 * 2**30), ("1.5 GB", 1.5e9), ("64kB", 64e3), ("64KB", 64e3), ("9B", 9.0)]
    + [(text, None) for text in ("", "8", "8G", "8Gi", "8gb", "-1GB", "GB", "1e9B")],
)
def test_an_amount_of_memory_is_a_number_and_a_unit(text: str, amount: float | None) -> None:
    assert bytes_in(text) == amount
