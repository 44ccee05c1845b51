"""Moments, by the calendar and in cluster time."""

import time
from collections.abc import Iterator
from datetime import datetime

import pytest

from hopyard.show.times import Times, dated
from hopyard.show.units import brief
from schemas.views import ClockView, JobPage, ServiceState, ServiceView
from tests.hopyard.cli_builders import job_view, status_view

NOON = 1_795_345_200.0
"""2026-11-22 12:00:00 in Berlin, where it is winter: UTC+1"""


@pytest.fixture(autouse=True)
def berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def wall(*, origin: float = 0.0, now: float = NOON) -> Times:
    return Times(ClockView(now=now, origin=origin, speed=1.0))


FAST = Times(ClockView(now=7400.0, origin=NOON, speed=60.0))


def test_where_the_clock_is_the_wall_s_a_moment_is_a_local_date_with_its_zone() -> None:
    assert wall().moment(NOON - 180) == "2026-11-22 11:57:00 CET (3m 00s ago)"
    assert wall().short(NOON - 180) == "3m ago"
    assert wall().note() == ""


def test_a_clock_that_began_with_the_stack_is_the_wall_s_as_well() -> None:
    assert wall(origin=NOON, now=60.0).moment(0.0) == "2026-11-22 12:00:00 CET (1m 00s ago)"


def test_at_another_speed_a_moment_is_cluster_time_and_a_note_says_so() -> None:
    assert FAST.moment(7220.0) == "02:00:20.0 (3m 00s ago)"
    assert FAST.note() == "times are cluster time: 60 cluster seconds a second"


def test_without_a_clock_only_cluster_time_is_shown() -> None:
    assert (Times(None).moment(7220.0), Times(None).short(7220.0)) == ("02:00:20.0", "02:00:20.0")
    assert Times(None).note() == "times are cluster time"


@pytest.mark.parametrize("times", [wall(), FAST, Times(None)])
def test_a_missing_time_is_an_empty_text(times: Times) -> None:
    assert (times.moment(None), times.short(None)) == ("", "")


def test_a_moment_that_comes_before_the_answer_reaches_us_is_now() -> None:
    assert wall().short(NOON + 1) == "0s ago"


def test_json_keeps_the_numbers_and_has_dates_beside_them() -> None:
    [job] = dated(JobPage(jobs=(job_view(submitted_at=NOON),)), wall())["jobs"]  # type: ignore[index]
    assert job["submitted_at"] == NOON
    assert job["submitted_at_iso"] == "2026-11-22T12:00:00.000+01:00"
    assert datetime.fromisoformat(job["submitted_at_iso"]).timestamp() == NOON
    assert "started_at_iso" not in job


def test_cluster_time_of_another_speed_has_no_date_but_the_services_unix_time_has() -> None:
    service = ServiceView(name="planner", state=ServiceState.UP, since=NOON, at=NOON)
    found = dated(status_view(services=(service,)), FAST)
    assert isinstance(found, dict)
    assert "at_iso" not in found
    assert found["services"][0]["since_iso"] == "2026-11-22T12:00:00.000+01:00"


@pytest.mark.parametrize("at", [1e12, -1e12, 1e30])
def test_a_time_beyond_the_calendar_is_cluster_time(at: float) -> None:
    """An agent whose clock is wrong states any; `hopyard events` ended with a traceback."""
    assert wall().date(at) == wall().column(at).strip() == FAST.date(at)
    assert wall().iso(at) is None


def test_in_a_zone_that_is_a_day_off_dates_are_of_utc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "XYZ-25")
    time.tzset()
    assert wall().date(NOON) == "2026-11-22 11:00:00 UTC"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.4, "0s"),
        (99.4, "99s"),
        (100, "2m"),
        (5940, "99m"),
        (5999, "2h"),
        (7140, "2h"),
        (169_000, "47h"),
        (172_800, "2d"),
        (1e7, "116d"),
        (None, ""),
    ],
)
def test_a_brief_duration_has_one_unit(seconds: float | None, text: str) -> None:
    assert brief(seconds) == text


def test_a_column_of_moments_is_of_one_width() -> None:
    assert wall().column(NOON - 180) == "2026-11-22 11:57:00+0100"
    assert FAST.column(60.0) == Times(None).column(60.0) == "  00:01:00.0"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30m", NOON - 1800.0),
        ("2026-11-22T11:30", NOON - 1800.0),
        ("2026-11-22 11:30:00+01:00", NOON - 1800.0),
        ("2026-11-22", NOON - 12 * 3600.0),
        ("yesterday", None),
        ("0001-01-01", None),
        ("0001-01-01T12:00", None),
    ],
)
def test_an_instant_is_given_as_how_long_ago_or_as_a_date(text: str, seconds: float | None) -> None:
    assert wall().instant(text) == seconds


def test_a_date_is_no_instant_of_a_faster_clock() -> None:
    assert FAST.instant("2026-11-22") is None
    assert FAST.instant("100s") == 7300.0
    assert Times(None).instant("100s") is None
