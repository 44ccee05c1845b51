"""The progress of `hopyard demo`: a picture that is redrawn on a terminal, plain lines elsewhere."""

import contextlib
import sys
import time
from collections.abc import Callable, Iterator

import msgspec
from rich.console import Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table

from hopyard.show.tables import facts_table, status_facts
from hopyard.show.terminal import console, say
from hopyard.show.units import duration
from schemas.views import StatusView

LINE_EVERY_S = 5.0
BAR_WIDTH = 32
REFRESH_PER_S = 4


class RunStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The state of the run at one moment."""

    status: StatusView
    submitted: int
    total: int
    round_s: float
    elapsed_s: float
    """real seconds since jobs began to be submitted"""
    left_s: float | None = None
    """estimated real seconds until the end"""


Show = Callable[[RunStatus], None]


@contextlib.contextmanager
def progress() -> Iterator[Show]:
    """Yields a function that shows progress on stderr: stdout is for the result."""
    if not sys.stderr.isatty():
        yield _lines()
        return
    with Live(console=console(stderr=True), refresh_per_second=REFRESH_PER_S, transient=True) as live:
        yield lambda status: live.update(picture(status))


def _lines() -> Show:
    last = -LINE_EVERY_S

    def show(status: RunStatus) -> None:
        nonlocal last
        if time.monotonic() - last >= LINE_EVERY_S:
            last = time.monotonic()
            say(line(status))

    return show


def line(status: RunStatus) -> str:
    """The status in one line."""
    facts = status_facts(status.status)
    jobs = f"jobs {status.submitted}/{status.total} submitted"
    if status.status.jobs:
        jobs += f": {facts['jobs']}"
    parts = [_clock(status), jobs, f"GPUs {facts['GPUs']}", facts["last plan"]]
    return " | ".join(filter(None, parts))


def picture(status: RunStatus) -> RenderableType:
    facts = status_facts(status.status)
    del facts["GPUs"]
    submitted = {"submitted": f"{status.submitted} of {status.total}"}
    body = Group(facts_table(submitted | facts), "", _bars(status.status))
    return Panel(body, title="hopyard", subtitle=_clock(status), title_align="left", subtitle_align="left")


def _bars(status: StatusView) -> Table:
    table = Table(box=None, show_header=False, pad_edge=False)
    for name, (busy, total) in status.gpus.items():
        table.add_row(
            name, ProgressBar(total=max(total, 1), completed=busy, width=BAR_WIDTH), f"{busy}/{total}"
        )
    return table


def _clock(status: RunStatus) -> str:
    at = status.status.at
    left = f", about {duration(status.left_s)} left" if status.left_s and status.left_s >= 1 else ""
    rounds, elapsed = int(at // status.round_s), duration(status.elapsed_s)
    return f"{duration(at)} simulated, round {rounds}, {elapsed} elapsed{left}"
