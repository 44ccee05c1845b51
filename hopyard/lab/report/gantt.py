"""Which job has which GPU when, as SVG: names where they fit, and more of a job under the pointer. Pure.

A job is one shape of as many rectangles as it had stays; GPUs side by side in one stay are one rectangle.
"""

import html
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, groupby, pairwise

import msgspec

from hopyard.lab.report.pictures import HOUR_S, TEAMS, spread_out
from hopyard.lab.runs.trials import Hold, Simulated
from hopyard.show.units import duration, number
from schemas.results import JobResult

WIDTH, LEFT, RIGHT = 1000.0, 96.0, 8.0
TITLE, AXIS = 24.0, 30.0
"""heights above and below the rows of an arm"""
TALL = (140.0, 3.0, 400.0)
"""height of an arm's rows: at least, per GPU, at most"""
LETTER, LINE = 5.6, 10.0
"""width and height of what a name is written with"""
TICKS = 8
STEPS = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500)
"""hours between two ticks of the axis"""


class Box(msgspec.Struct, frozen=True):
    """A stay of a job on GPUs side by side."""

    first: int
    last: int
    since: float
    until: float


def gantt_svg(outcomes: Mapping[str, Simulated]) -> str:
    """An arm below the other, all on one scale of time."""
    span_s = max(
        (hold.ended_at - one.began_at for one in outcomes.values() for hold in one.holds), default=0.0
    )
    if span_s == 0:
        return ""
    parts, top = [], 0.0
    for arm, outcome in outcomes.items():
        drawn = _Arm(outcome, span_s, top)
        parts += [
            f'<text class="arm" x="{LEFT:g}" y="{top + 15:g}">{html.escape(arm)}</text>',
            *drawn.parts(),
        ]
        top = drawn.bottom + AXIS
    label = "Which job has which GPU when; the list of jobs says the same in words"
    size = f'viewBox="0 0 {WIDTH:g} {top:.0f}"'
    return f'<svg class="gantt" role="img" aria-label="{label}" {size}>{"".join(parts)}</svg>'


def boxes(holds: Iterable[Hold]) -> dict[int, list[Box]]:
    """The rectangles of a Gantt picture, by position of the job."""
    found: dict[int, list[Box]] = {}
    ordered = sorted(holds, key=lambda hold: (hold.job, hold.started_at, hold.ended_at, hold.gpu))
    for (job, since, until), alike in groupby(
        ordered, key=lambda one: (one.job, one.started_at, one.ended_at)
    ):
        gpus = [hold.gpu for hold in alike]
        breaks = [index for index, (low, high) in enumerate(pairwise(gpus), 1) if high != low + 1]
        for start, end in pairwise([0, *breaks, len(gpus)]):
            found.setdefault(job, []).append(Box(gpus[start], gpus[end - 1], since, until))
    return found


class _Arm:
    """One policy's rows, from `top` on."""

    def __init__(self, outcome: Simulated, span_s: float, top: float) -> None:
        least, each, most = TALL
        self._outcome = outcome
        self._span_s = span_s
        self._top = top + TITLE
        gpus, names = len(outcome.gpu_types), len(list(groupby(outcome.gpu_types)))
        self._row = max(min(max(each * gpus, least), most), names * LINE) / max(gpus, 1)
        self.bottom = self._top + self._row * gpus

    def parts(self) -> Iterator[str]:
        yield from self._axis()
        names = []
        for job, found in boxes(self._outcome.holds).items():
            record = self._outcome.jobs[job]
            yield self._shape(found, record, TEAMS[job % len(TEAMS)])
            names.append(self._name(found, record))
        yield from self._types()
        yield from names

    def _x(self, at: float) -> float:
        return LEFT + (at - self._outcome.began_at) / self._span_s * (WIDTH - LEFT - RIGHT)

    def _sides(self, box: Box) -> tuple[float, float, float, float]:
        left, right = self._x(box.since), self._x(box.until)
        return left, self._top + box.first * self._row, right - left, (box.last - box.first + 1) * self._row

    def _shape(self, found: Sequence[Box], job: JobResult, fill: str) -> str:
        sides = (self._sides(box) for box in found)
        path = "".join(
            f"M{x:.1f} {y:.1f}h{max(w, 0.4):.1f}v{h:.1f}h-{max(w, 0.4):.1f}z" for x, y, w, h in sides
        )
        return f'<path d="{path}" fill="{fill}"><title>{html.escape(described(job))}</title></path>'

    def _name(self, found: Sequence[Box], job: JobResult) -> str:
        """The longest name that fits, in the largest rectangle that it fits into; or none."""
        sides = sorted(map(self._sides, found), key=lambda side: side[2] * side[3], reverse=True)
        for name in (job.job_id, job.model, job.job_id.rpartition("-")[2]):
            for x, y, w, h in sides:
                if w >= len(name) * LETTER + 4 and h >= LINE:
                    middle = f'x="{x + w / 2:.1f}" y="{y + h / 2 + 3.4:.1f}"'
                    return f'<text class="job" {middle}>{html.escape(name)}</text>'
        return ""

    def _types(self) -> Iterator[str]:
        """Each type's name beside its rows, and a line between types."""
        kinds = [(kind, len(list(alike))) for kind, alike in groupby(self._outcome.gpu_types)]
        edges = [self._top + self._row * rows for rows in accumulate((n for _, n in kinds), initial=0)]
        middles = [(high + low) / 2 + 4 for high, low in pairwise(edges)]
        for (kind, _), y in zip(kinds, spread_out(middles, self.bottom, LINE), strict=True):
            yield f'<text class="type" x="{LEFT - 8:g}" y="{y:.1f}">{html.escape(kind)}</text>'
        for y in edges[1:-1]:
            yield f'<path class="line" d="M{LEFT:g} {y:.1f}H{WIDTH - RIGHT:g}"/>'

    def _axis(self) -> Iterator[str]:
        hours = self._span_s / HOUR_S
        step = next((step for step in STEPS if hours / step <= TICKS), hours / TICKS)
        for index in range(int(hours / step) + 1):
            x = LEFT + index * step / hours * (WIDTH - LEFT - RIGHT)
            yield f'<path class="grid" d="M{x:.1f} {self._top:.1f}V{self.bottom:.1f}"/>'
            yield f'<text class="tick" x="{x:.1f}" y="{self.bottom + 13:.1f}">{index * step:g} h</text>'


def described(job: JobResult) -> str:
    """A job in a few lines."""
    times = f"waited {duration(job.wait_s)}"
    if job.jct_s is not None:
        times += f", JCT {duration(job.jct_s)}"
    if job.latency_ratio is not None:
        times += f", LR {number(job.latency_ratio)}"
    places = f"{job.placements} placements on {', '.join(job.nodes)}" if job.nodes else "never placed"
    return f"{job.job_id}: {job.model} on {job.dataset}, {job.state}\n{times}\n{places}"
