"""How pictures look: size, type, colours, axes. What they show is in `pictures`."""

import io
import math
import textwrap
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, Literal, TypeVar

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

T = TypeVar("T")

WIDTH, HEIGHT = 8.6, 3.6
"""inches"""
DPI = 150

LEGEND_LETTERS = 114
"""letters in one line of a legend"""
LINE_LETTERS = 80
"""letters in one line of a name in a legend"""
LEGEND_PAD = 0.9 * 9.5 / 72
"""inches around a legend: 0.9 of the size of its letters"""
ONE_LINE = 0.24
"""inches of a legend of one line"""
CROWDED = 60.0
"""ratio of the ends of a logarithmic axis above which only decades are named"""
DECADES = 4
"""decades that are named on a crowded axis"""
APART = 0.1
"""share of a logarithmic axis by which two named places are apart at least"""

COLOURS = {
    "hops": "#0072B2", "lr": "#0072B2",
    "hops, priority ftf": "#56B4E9", "ftf": "#56B4E9",
    "sia": "#D55E00",
    "gavel": "#009E73",
    "tiresias": "#CC79A7",
    "fifo": "#7A7A7A",
    "sjf": "#E69F00",
    "srtf": "#882255",
    "srsf": "#AA7744",
    "las": "#332288",
    "yarn-cs": "#111111",
    "gap 0.05": "#56B4E9", "gap 0.01": "#0072B2", "no gap": "#D55E00",
}  # fmt: skip
"""Okabe and Ito's colours, and a few of Tol's where those end"""
LISTED = tuple(dict.fromkeys(COLOURS.values()))
OTHERS = ("#44AA99", "#999933", "#661100", "#6699CC", "#DDCC77", "#AA4499")
"""colours of policies that are not listed above, in alphabetical order; where they end, LISTED"""
Dashes = str | tuple[float, tuple[float, ...]]
Stroke = tuple[str, Dashes]
"""(colour, dashes)"""
DASHES: tuple[Dashes, ...] = ("-", (0, (5, 1.4)), (0, (1.2, 1.2)), (0, (6, 1.4, 1.2, 1.4)))
STYLE: dict[Any, Any] = {
    "font.size": 9.5,
    "font.family": "DejaVu Sans",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#8A94A0",
    "axes.labelcolor": "#1C2430",
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#E6EAEF",
    "grid.linewidth": 0.8,
    "xtick.color": "#5D6B7C",
    "ytick.color": "#5D6B7C",
    "lines.linewidth": 1.8,
    "legend.frameon": False,
}


def colour(arm: str, arms: Sequence[str]) -> str:
    """`arms`: all of the report, so that an arm that is not in COLOURS keeps its colour in all pictures."""
    return _strokes(tuple(arms))[arm][0]


def line(arm: str, arms: Sequence[str]) -> dict[str, Any]:
    ink, dashes = _strokes(tuple(arms))[arm]
    return {"label": wrapped(arm, LINE_LETTERS), "color": ink, "linestyle": dashes}


def wrapped(name: str, letters: int) -> str:
    """The name of an arm in lines of at most so many letters, which begin with an option where they can."""
    return textwrap.fill(name.replace("+", " +"), letters).replace(" +", "+")


def letters_of(name: str) -> int:
    """The length of the longest line."""
    return max(map(len, name.splitlines()), default=0)


@cache
def _strokes(arms: tuple[str, ...]) -> Mapping[str, Stroke]:
    """Of each arm; no two are the same while there are others."""
    places = {arm: place for place, arm in enumerate(dict.fromkeys(arms))}
    unlisted = sorted(places.keys() - COLOURS.keys())
    found: dict[str, Stroke] = {}
    for arm in [*(arm for arm in places if arm in COLOURS), *unlisted]:
        inks = (COLOURS[arm],) if arm in COLOURS else _from(unlisted.index(arm), OTHERS) + LISTED
        strokes = [(ink, dashes) for ink in inks for dashes in _from(places[arm], DASHES)]
        taken = set(found.values())
        found[arm] = next((each for each in strokes if each not in taken), strokes[0])
    return found


def _from(place: int, all_of: tuple[T, ...]) -> tuple[T, ...]:
    """All, in a ring, from that place on."""
    first = place % len(all_of)
    return all_of[first:] + all_of[:first]


def drawn(
    draw: Callable[[Sequence[Axes]], None], *, columns: int = 1, rows: int = 1, height: float = HEIGHT
) -> bytes:
    with mpl.rc_context(STYLE):
        file = io.BytesIO()
        figure = laid_out(draw, columns=columns, rows=rows, height=height)
        figure.savefig(file, format="png", metadata={"Software": None})
        return file.getvalue()


def laid_out(draw: Callable[[Sequence[Axes]], None], *, columns: int, rows: int, height: float) -> Figure:
    """`height`: of a row of panels, with a legend of one line; further lines make the figure higher."""
    figure = Figure(figsize=(WIDTH, height * rows), dpi=DPI, layout="constrained")
    panels = list(figure.subplots(rows, columns, squeeze=False).flat)
    draw(panels)
    _legend(figure, panels)
    return figure


def logarithmic(axes: Axes, which: Literal["x", "y"], ticks: Sequence[float] | None = None) -> None:
    """A logarithmic axis whose numbers read as numbers; `ticks`: the places to name."""
    axis = axes.xaxis if which == "x" else axes.yaxis
    axes.set(**{f"{which}scale": "log"})
    if ticks is None:
        low, high = axis.get_view_interval()
        between, most = ((1.0,), DECADES) if high > CROWDED * low else ((1.0, 2.0, 5.0), 8)
        axis.set_major_locator(LogLocator(subs=between, numticks=most))
    else:
        axis.set_ticks(apart(ticks))
    axis.set_minor_formatter(NullFormatter())
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def apart(ticks: Sequence[float]) -> list[float]:
    """The positive ticks whose numbers do not run into the next one's; the largest is among them."""
    kept: list[float] = []
    for tick in sorted(ticks, reverse=True):
        if not kept or math.log(kept[-1] / tick) >= APART * math.log(max(ticks) / min(ticks)):
            kept.append(tick)
    return kept[::-1]


def _legend(figure: Figure, panels: Sequence[Axes]) -> None:
    """Put a legend above all panels, which share their arms, from where the first panel begins."""
    found = {
        label: handle
        for axis in panels
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True)
    }
    if found:
        fits = max(LEGEND_LETTERS // (max(map(letters_of, found)) + 8), 1)
        legend = figure.legend(
            list(found.values()), list(found), loc="outside upper left", ncols=fits, handlelength=2.4
        )
        room = legend.get_window_extent()
        figure.set_size_inches(WIDTH, figure.get_figheight() + max(room.height / DPI - ONE_LINE, 0.0))
        layout = figure.get_layout_engine()
        assert layout is not None
        layout.execute(figure)  # all that is wanted here of a first drawing, which takes twice as long
        figure.set_layout_engine("none")
        beside = 1.0 - room.width / DPI / WIDTH
        left = max(min(panels[0].get_position().x0 - LEGEND_PAD / WIDTH, beside), 0.0)
        legend.set_bbox_to_anchor((left, 0.0, 1.0 - left, 1.0), transform=figure.transFigure)
