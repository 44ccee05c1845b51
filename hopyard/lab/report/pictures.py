"""Pictures: PNG bytes from numbers. A policy has one colour in all, chosen for every kind of colour vision.

Several seeds of an arm are one curve: distributions are pooled, curves over time are means, and a band
shows the smallest and the largest of the seeds.
"""

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.ticker import FuncFormatter, MaxNLocator

from hopyard.lab.report.drawing import colour, drawn, line, logarithmic, wrapped
from hopyard.lab.report.statistics import Summary
from hopyard.lab.runs.trials import Simulated
from shared.domain.arrays import Floats
from shared.domain.metrics.curves import cdf

Curve = Sequence[tuple[float, float]]
"""(hours, value) steps: a value holds until the next one"""
Arms = Mapping[str, Sequence[float]]
Groups = Mapping[str, Mapping[str, Mapping[str, float]]]
"""group → place → what → value"""

HOUR_S = 3600.0
HOURS = "hours since the first submission"
BESIDE_LETTERS = 32
"""letters in one line of a name beside its bar"""
TITLE_LETTERS = 90
"""letters in one line of a name above a panel"""
STEPS = 600
"""points of a curve over time"""
LINE, FRAME, NAMES_MOST = 0.16, 0.8, 120
"""of a Gantt picture: inches of a name's line and of what is above and below the rows, and names at most"""
PIXELS = 1300
"""columns of a Gantt picture"""
ASIDE = 0.015
"""share of the axis by which the intervals of two arms at one place stand apart"""
GAP = 0.7
"""between two groups of bars, in places"""
TEAMS = ("#4E79A7", "#A0CBE8", "#F28E2B", "#FFBE7D", "#59A14F", "#8CD17D", "#B6992D", "#F1CE63",
         "#499894", "#86BCB6", "#E15759", "#FF9D9A", "#79706E", "#BAB0AC", "#B07AA1", "#D4A6C8")  # fmt: skip
"""colours of jobs in a Gantt picture, which only have to differ from their neighbours"""
PARTS_INK = ("#009E73", "#E69F00", "#56B4E9", "#D55E00", "#CC79A7", "#5D6B7C", "#DDE3EA")
"""colours of a bar's parts, from useful time to time that no policy could use"""


def distributions(
    panels: Mapping[str, Arms], arms: Sequence[str], *, of: str, log: Sequence[str] = ()
) -> bytes:
    """Cumulative shares `of` something, a panel a quantity; `log`: panels with a logarithmic axis."""

    def draw(axes: Sequence[Axes]) -> None:
        for axis, (name, found) in zip(axes, panels.items(), strict=True):
            for arm, values in found.items():
                _cdf(axis, arm, values, arms)
            axis.set(xlabel=name, ylim=(0, 1.02))
            if name in log:
                logarithmic(axis, "x")
            axis.yaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{share:.0%}"))
        axes[0].set_ylabel(f"share of the {of}")

    return drawn(draw, columns=len(panels), height=3.4)


def over_time(
    curves: Mapping[str, Sequence[Curve]], arms: Sequence[str], label: str, *, ceiling: float | None = None
) -> bytes:
    """One axis; `ceiling`: a value that is a limit, drawn as one."""

    def draw(axes: Sequence[Axes]) -> None:
        (axis,) = axes
        for arm, found in curves.items():
            grid, values = sampled(found)
            axis.plot(grid, values.mean(axis=0), **line(arm, arms))
            if len(found) > 1:
                low, high = values.min(axis=0), values.max(axis=0)
                axis.fill_between(grid, low, high, color=colour(arm, arms), alpha=0.15, linewidth=0)
        if ceiling is not None:
            axis.axhline(ceiling, color="#8A94A0", linewidth=1, linestyle=(0, (1, 2)))
        axis.set(xlabel=HOURS, ylabel=label, ylim=(0, None))
        axis.margins(x=0.01)

    return drawn(draw)


def sweep(
    panels: Mapping[str, Mapping[str, Mapping[float, Summary]]], arms: Sequence[str], label: str
) -> bytes:
    """Mean and 95 % interval of several measures over a swept quantity: panel → arm → place → summary."""

    def draw(axes: Sequence[Axes]) -> None:
        for axis, (name, found) in zip(axes, panels.items(), strict=True):
            places = sorted({place for points in found.values() for place in points})
            for index, (arm, points) in enumerate(found.items()):
                means = [summary.mean for summary in points.values()]
                widths = [summary.half_width or 0.0 for summary in points.values()]
                aside = (places[-1] / places[0]) ** (ASIDE * (index - (len(found) - 1) / 2))
                axis.errorbar(
                    [place * aside for place in points],
                    means,
                    yerr=widths,
                    marker="o",
                    ms=4,
                    capsize=3,
                    elinewidth=1.0,
                    **line(arm, arms),
                )
            axis.set(xlabel=label, ylabel=name, ylim=(0, None))
            logarithmic(axis, "x", places)

    return drawn(draw, columns=len(panels), height=3.4)


def gantt(outcomes: Mapping[str, Simulated]) -> bytes:
    """Which job has which GPU when, an arm below the other; white: idle."""
    gpus = max(len(outcome.gpu_types) for outcome in outcomes.values())
    names = max(len(_edges(outcome.gpu_types)) - 1 for outcome in outcomes.values())
    height = max(min(1.9 + gpus / 190, 4.6), FRAME + LINE * min(names, NAMES_MOST))
    span_s = max(hold.ended_at - one.began_at for one in outcomes.values() for hold in one.holds)

    def draw(axes: Sequence[Axes]) -> None:
        for axis, (arm, outcome) in zip(axes, outcomes.items(), strict=True):
            _occupancy(axis, outcome, span_s, (height - FRAME) / LINE)
            axis.set_title(wrapped(arm, TITLE_LETTERS))
        axes[-1].set_xlabel(HOURS)

    return drawn(draw, rows=len(outcomes), height=height)


def spread_out(middles: Sequence[float], last: float, line: float) -> list[float]:
    """The heights of names, a `line` apart at least and none below `last`, each near its ascending middle."""
    down: list[float] = []
    for middle in middles:
        down.append(max(middle, down[-1] + line) if down else middle)
    up: list[float] = []
    for height in reversed(down):
        up.append(min(height, up[-1] - line if up else last))
    return up[::-1]


def points(
    panels: Mapping[str, Mapping[str, Sequence[tuple[float, float]]]],
    arms: Sequence[str],
    labels: tuple[str, str],
    *,
    log: str = "",
    level: tuple[float, str] | None = None,
) -> bytes:
    """Single values at whole places, and through the means at each a line. `log`: `x`, `y` or both.

    `level`: a value to compare with, and what it is.
    """

    def draw(axes: Sequence[Axes]) -> None:
        for axis, (name, found) in zip(axes, panels.items(), strict=True):
            for arm, values in found.items():
                _cloud(axis, arm, values, arms)
            if level is not None:
                axis.axhline(level[0], color="#8A94A0", linewidth=1, linestyle=(0, (4, 2)))
                axis.annotate(level[1], (0.99, level[0]), xycoords=("axes fraction", "data"), fontsize=8,
                              ha="right", va="bottom", color="#5D6B7C")  # fmt: skip
            axis.set(xlabel=labels[0], ylabel=labels[1], title=name)
            axis.xaxis.set_major_locator(MaxNLocator(integer=True))
            if "x" in log:
                logarithmic(axis, "x", sorted({place for values in found.values() for place, _ in values}))
            if "y" in log:
                logarithmic(axis, "y")

    return drawn(draw, columns=len(panels))


def bars(panels: Mapping[str, Groups], label: str) -> bytes:
    """Two or more bars beside each other at every place, the places in groups, a row a panel."""

    def draw(axes: Sequence[Axes]) -> None:
        for axis, (name, groups) in zip(axes, panels.items(), strict=True):
            _grouped(axis, groups)
            axis.set(ylabel=label, title=name)
            axis.grid(visible=False, axis="x")

    return drawn(draw, rows=len(panels), height=2.9)


def stacked(shares: Mapping[str, Mapping[str, float]]) -> bytes:
    """A bar an arm, its parts one after another: arm → part → share of the whole."""
    parts = list(dict.fromkeys(part for found in shares.values() for part in found))

    def draw(axes: Sequence[Axes]) -> None:
        (axis,) = axes
        names = [wrapped(arm, BESIDE_LETTERS) for arm in shares]
        ends = np.zeros(len(shares))
        for part, ink in zip(parts, PARTS_INK, strict=False):
            lengths = np.array([found.get(part, 0.0) for found in shares.values()])
            axis.barh(names, lengths, left=ends, height=0.62, label=part, color=ink)
            ends += lengths
        axis.invert_yaxis()
        axis.set(xlim=(0, max(ends.max(), 1.0)))
        axis.xaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{share:.0%}"))
        axis.grid(visible=False, axis="y")
        axis.tick_params(axis="y", length=0)

    lines = sum(wrapped(arm, BESIDE_LETTERS).count("\n") for arm in shares)
    return drawn(draw, height=1.1 + 0.38 * len(shares) + 0.17 * lines)


def histograms(panels: Mapping[str, Sequence[float]], label: str) -> bytes:
    """How often which value occurs, a panel a quantity."""

    def draw(axes: Sequence[Axes]) -> None:
        for axis, (name, values) in zip(axes, panels.items(), strict=True):
            axis.hist(values, bins=40, color="#0072B2", edgecolor="white", linewidth=0.4)
            axis.set(xlabel=label, ylabel="iterations", title=name)
            logarithmic(axis, "y")

    return drawn(draw, columns=len(panels))


def _grouped(axis: Axes, groups: Groups) -> None:
    """Every place is named below its bars, every group once below its places."""
    values = [found for places in groups.values() for found in places.values()]
    ends = np.cumsum([len(places) for places in groups.values()])
    starts = np.r_[0, ends[:-1]]
    centres = np.arange(len(values)) + np.repeat(np.arange(len(groups)), ends - starts) * GAP
    kinds = list(dict.fromkeys(kind for found in values for kind in found))
    width = 0.8 / len(kinds)
    for index, kind in enumerate(kinds):
        left = centres + (index - (len(kinds) - 1) / 2) * width
        heights = [found.get(kind, math.nan) for found in values]
        axis.bar(left, heights, width * 0.92, label=kind, color=("#0072B2", "#E69F00", "#009E73")[index])
    axis.set_xticks(centres, [place for places in groups.values() for place in places], fontsize=8)
    axis.tick_params(axis="x", length=0)
    names = axis.secondary_xaxis("bottom")
    middles = [centres[start:end].mean() for start, end in zip(starts, ends, strict=True)]
    names.set_xticks(middles, [f"\n{group}" for group in groups])
    names.tick_params(axis="x", length=0)


def _cdf(axis: Axes, arm: str, values: Sequence[float], arms: Sequence[str]) -> None:
    if not values:
        return
    reached, shares = np.transpose([(min(values), 0.0), *cdf(values)])
    axis.step(reached, shares, where="post", **line(arm, arms))


def sampled(curves: Sequence[Curve]) -> tuple[Floats, Floats]:
    """A common grid of hours, and a row a curve; after its end a curve is 0."""
    last = max(curve[-1][0] for curve in curves if curve)
    grid = np.linspace(0.0, last, STEPS)
    rows = [_held(grid, curve) for curve in curves if curve]
    return grid, np.array(rows)


def _held(grid: Floats, curve: Curve) -> Floats:
    """Means of a step curve around the places of a grid, so that no short step is lost or blown up."""
    times = np.array([at for at, _ in curve])
    levels = np.array([value for _, value in curve])
    areas = np.r_[0.0, np.cumsum(levels[:-1] * np.diff(times))]
    half = (grid[1] - grid[0]) / 2 if grid[-1] > 0 else 1.0
    low, high = np.maximum(grid - half, times[0]), np.minimum(grid + half, times[-1])
    inside = high > low
    lengths = np.where(inside, high - low, 1.0)
    means = (np.interp(high, times, areas) - np.interp(low, times, areas)) / lengths
    held: Floats = np.where(inside, means, 0.0)
    return held


def _occupancy(axis: Axes, outcome: Simulated, span_s: float, lines: float) -> None:
    """`lines`: how many names have room beside the rows."""
    width = PIXELS
    owner = np.full((len(outcome.gpu_types), width), -1, dtype=np.int32)
    for hold in outcome.holds:
        since = (at - outcome.began_at for at in (hold.started_at, hold.ended_at))
        first, end = (int(since_s / span_s * width) for since_s in since)
        owner[hold.gpu, first : max(end, first + 1)] = hold.job % len(TEAMS)
    axis.imshow(
        np.ma.masked_less(owner, 0),
        cmap=ListedColormap(TEAMS),
        vmin=-0.5,
        vmax=len(TEAMS) - 0.5,
        aspect="auto",
        interpolation="nearest",
        extent=(0.0, span_s / HOUR_S, len(owner), 0.0),
    )
    axis.grid(visible=False)
    _name_types(axis, outcome.gpu_types, lines)


def _edges(gpu_types: Sequence[str]) -> list[int]:
    """Where another type begins among the GPUs, their beginning and their end included."""
    changes = (at for at in range(1, len(gpu_types)) if gpu_types[at] != gpu_types[at - 1])
    return [0, *changes, len(gpu_types)]


def _name_types(axis: Axes, gpu_types: Sequence[str], lines: float) -> None:
    """Each type's name beside its rows, and a line between types; the widest are named if not all can be."""
    edges = _edges(gpu_types)
    widest = sorted(pairwise(edges), key=lambda rows: rows[0] - rows[1])[: round(lines)]
    named = sorted(widest)
    middles = spread_out([(low + high) / 2 for low, high in named], len(gpu_types), len(gpu_types) / lines)
    axis.set_yticks(middles, [gpu_types[low] for low, _ in named])
    axis.tick_params(axis="y", length=0)
    for edge in edges[1:-1]:
        axis.axhline(edge, color="#1C2430", linewidth=0.8)


def _cloud(axis: Axes, arm: str, values: Sequence[tuple[float, float]], arms: Sequence[str]) -> None:
    places = sorted({place for place, _ in values})
    means = [np.mean([value for at, value in values if at == place]) for place in places]
    at, level = [place for place, _ in values], [value for _, value in values]
    axis.scatter(at, level, s=9, color=colour(arm, arms), alpha=0.3, linewidth=0)
    axis.plot(places, means, marker="o", ms=4, **line(arm, arms))
