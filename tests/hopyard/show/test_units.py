import math

import pytest

from hopyard.show.units import (
    clock,
    duration,
    in_a_line,
    memory,
    number,
    on_one_line,
    precise,
    share,
    whole_share,
)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0s"),
        (1e-9, "0s"),
        (1.2e-7, "0.0001ms"),
        (0.0342, "34.2ms"),
        (0.9994, "999ms"),
        (0.9996, "1s"),
        (8.14, "8.14s"),
        (59.97, "1m 00s"),
        (250, "4m 10s"),
        (3599.7, "1h 00m"),
        (7385, "2h 03m"),
        (273_600, "3d 04h"),
        (-90, "-1m 30s"),
        (None, ""),
        (math.nan, ""),
    ],
)
def test_a_duration_reads_in_the_two_largest_units(seconds: float | None, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("value", "text"), [(0.3712, "0.371"), (12_345.6, "12,346"), (None, ""), (math.inf, "")]
)
def test_a_number_has_three_digits_or_is_whole(value: float | None, text: str) -> None:
    assert number(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (3.0, "3"),
        (0.1234567, "0.123457"),
        (999_999.4, "999,999"),
        (999_999.5, "1,000,000"),
        (-2.5e9, "-2,500,000,000"),
    ],
)
def test_a_precise_number_has_six_digits_or_all_before_the_point(value: float, text: str) -> None:
    assert precise(value) == text


def test_a_share_is_per_cent() -> None:
    assert share(0.0123) == "1.2%"
    assert share(None) == ""


def test_only_the_whole_is_100_per_cent() -> None:
    assert share(0.99996) == "99.9%"
    assert [whole_share(part) for part in (0.0, 0.001, 0.5, 0.999, 1.0)] == ["0%", "1%", "50%", "99%", "100%"]
    assert [share(whole) for whole in (1.0, 1.0 - 1e-12)] == ["100.0%"] * 2


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0, "00:00:00.0"), (59.96, "00:01:00.0"), (3725.25, "01:02:05.2"), (90061.0, "1d 01:01:01.0")],
)
def test_an_instant_is_days_hours_minutes_and_seconds(seconds: float, text: str) -> None:
    assert clock(seconds) == text


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", ""),
        ("one", "one"),
        ("exit code 1\n\n  Traceback\nValueError: no\n", "exit code 1 … ValueError: no"),
        ("failed: ValueError: no\nTraceback\nValueError: no", "failed: ValueError: no"),
        ("\x1b[31mred\x07", "[31mred"),
    ],
)
def test_a_text_of_many_lines_is_its_first_and_its_last(text: str, line: str) -> None:
    assert in_a_line(text) == line


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        (8 * 2.0**30, "8 GiB"),
        (5e8, "477 MiB"),
        (1.0, "1 B"),
        (1010 * 1024.0, "1,010 KiB"),
        (3e15, "2,728 TiB"),
    ],
)
def test_memory_is_in_the_largest_unit_of_which_there_is_one(amount: float, text: str) -> None:
    assert memory(amount) == text


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("one\n\n two\r\n", "one   two"),
        ("a\tb\x9b1A\u202ec\u2028d", "a b1Acd"),
        ("Modell 2\u00a0GB, 模型\u3000一", "Modell 2\u00a0GB, 模型\u3000一"),
    ],
)
def test_a_text_on_one_line_has_no_breaks_and_no_control_characters(text: str, line: str) -> None:
    assert on_one_line(text) == line
