"""Listings at any width: an id is always whole."""

import pytest
from rich.console import Console

from hopyard.show.columns import Column, Listing
from hopyard.show.jobs import DEFAULT, job_columns
from hopyard.show.times import Times
from schemas.ids import NodeId
from schemas.placement import Gang
from schemas.views import ClockView, JobView
from tests.hopyard.cli_builders import job_view

LONG = "resnet152-imagenet-large-batch-with-mixup-and-a-very-long-name-12"
NOW = 10_000.0
GANG = Gang.of({NodeId(f"titan-xp-{number}"): 4 for number in range(6)})


def lines(*jobs: JobView, width: int) -> list[str]:
    columns = job_columns(Times(ClockView(now=NOW, origin=0.0, speed=1.0)))
    listing = Listing([columns[name] for name in DEFAULT], jobs)
    console = Console(width=width, no_color=True)
    with console.capture() as captured:
        console.print(listing, crop=False)
    return captured.get().splitlines()


def running(job_id: str) -> JobView:
    return job_view(
        job_id, state="running", gang=GANG, started_at=NOW - 300, samples_done=250.0, wait_s=700.0
    )


def rejected(job_id: str) -> JobView:
    return job_view(
        job_id, state="rejected", ended_at=NOW - 60, reason="out of memory on every GPU type it may use"
    )


@pytest.mark.parametrize("width", [40, 80, 120, 200])
def test_an_id_is_whole_at_any_width(width: int) -> None:
    shown = lines(running("job-1"), rejected(LONG), width=width)
    assert [line.split()[0] for line in shown] == ["job", "job-1", LONG]


@pytest.mark.parametrize("width", [70, 80, 120, 200])
def test_no_line_is_longer_than_the_terminal(width: int) -> None:
    assert max(map(len, lines(running("job-1"), rejected(LONG), width=width))) <= width


def test_at_80_columns_state_start_and_end_are_there() -> None:
    header, first, second = lines(running("resnet18-cifar10-12"), rejected("bert-base-squad-7"), width=80)
    assert header.split() == ["job", "state", "gpus", "done", "started", "ended", "note"]
    assert "running" in first
    assert "5m ago" in first
    assert "titan-xp-0:4" in first
    assert "60s ago" in second
    assert second.endswith("…")


def test_a_narrow_column_of_parts_shows_whole_ones_and_says_how_many_it_leaves_out() -> None:
    shown = lines(running("job-1"), width=80)[1]
    assert shown.endswith("titan-xp-0:4 titan-xp-1:4 +4")
    assert "titan-xp-5:4" in lines(running("job-1"), width=200)[1]


def test_without_room_for_any_part_their_number_is_shown() -> None:
    columns = [Column[str]("on", lambda _: ("titan-xp-0:4", "titan-xp-1:4"), cut=8, parts="nodes")]
    assert [line.plain for line in Listing(columns, [""]).lines(11)] == ["on", "2 nodes"]
    alone = [Column[str]("on", lambda _: ("titan-xp-0:4",), cut=8, parts="nodes")]
    assert [line.plain for line in Listing(alone, [""]).lines(8)] == ["on", "titan-x…"]


def test_an_empty_column_is_left_out() -> None:
    assert lines(job_view("job-1"), width=200)[0].split() == ["job", "state", "gpus", "done", "waited"]


def test_requested_columns_are_shown_at_any_width() -> None:
    columns = [Column[str](head, lambda text: text * 30, spare=1) for head in ("a", "b")]
    [header, row] = Listing(columns, ["xy"], whole=True).lines(10)
    assert header.plain.split() == ["a", "b"]
    assert row.plain == f"{'xy' * 30}  {'xy' * 30}"


def test_no_line_ends_in_blanks() -> None:
    assert all(line == line.rstrip() for line in lines(running("a"), job_view("b"), width=100))


def test_an_empty_list_is_its_header() -> None:
    assert lines(width=80) == ["job"]


def test_a_row_is_one_line_whatever_is_in_its_cells() -> None:
    columns = [Column[str](head, lambda text: text) for head in ("a", "b")]
    [_, row] = Listing(columns, ["x\ny\x1b[31m"], whole=True).lines(80)
    assert row.plain == "x y[31m  x y[31m"
