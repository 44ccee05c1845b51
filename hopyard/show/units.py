"""Quantities and texts of users and jobs, made readable. A value that is not known is an empty text."""

import math
from collections.abc import Mapping, Sequence

from shared.domain.controls import CONTROLS
from shared.domain.quantities import UNITS_S

MINUTE_S, HOUR_S, DAY_S = UNITS_S["m"], UNITS_S["h"], UNITS_S["d"]
ALL_DIGITS_ABOVE = 999_999.5
WHOLE_ABOVE = 100
WHOLE_MS = 999.5
"""milliseconds that are a second with three digits"""
PLACES = 4
"""decimal places of the smallest number that is not written with an exponent"""
LARGEST_PART = 0.999
"""the largest share below all that is shown in per cent"""
ROUNDING = 1e-9
BINARY = ("B", "KiB", "MiB", "GiB", "TiB")
SHOWN_BELOW = {"s": 100, "m": 100, "h": 48}
"""by unit, the number from which on `brief` takes the next unit"""


def duration(seconds: float | None) -> str:
    """A length of time with about three digits: 34ms, 8.1s, 4m 10s, 2h 03m, 3d 04h."""
    if seconds is None or not math.isfinite(seconds):
        return ""
    if seconds < 0:
        return "-" + duration(-seconds)
    return _short(seconds) if seconds < MINUTE_S - 0.05 else _long(round(seconds))


def _short(seconds: float) -> str:
    thousandths = round(seconds * 1000, PLACES)
    return f"{thousandths:.3g}ms" if 0 < thousandths < WHOLE_MS else f"{thousandths / 1000:.3g}s"


def _long(seconds: int) -> str:
    if seconds < HOUR_S:
        return f"{seconds // MINUTE_S}m {seconds % MINUTE_S:02d}s"
    if seconds < DAY_S:
        return f"{seconds // HOUR_S}h {seconds % HOUR_S // MINUTE_S:02d}m"
    return f"{seconds // DAY_S}d {seconds % DAY_S // HOUR_S:02d}h"


def withheld(gpus: Mapping[int, str]) -> str:
    """The GPUs that no job gets, with the reasons, in one line."""
    reasons: dict[str, list[str]] = {}
    for index in sorted(gpus):
        reasons.setdefault(gpus[index], []).append(str(index))
    return in_a_line(
        "; ".join(f"GPU {','.join(indices)} withheld: {reason}" for reason, indices in reasons.items())
    )


def number(value: float | None) -> str:
    """A number: without decimals from 100 on, with three significant digits below."""
    if value is None or not math.isfinite(value):
        return ""
    return f"{value:,.0f}" if abs(value) >= WHOLE_ABOVE else f"{value:.3g}"


def precise(value: float) -> str:
    """A number with six significant digits, or all of those before the point."""
    return f"{value:,.0f}" if abs(value) >= ALL_DIGITS_ABOVE else f"{value:,.6g}"


def plural(count: int, what: str) -> str:
    """1 GPU, 2 GPUs."""
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def gpu_counts(counts: Sequence[int]) -> str:
    """1 GPU, 4 GPUs, 1/2/4 GPUs."""
    return f"{'/'.join(map(str, counts))} {'GPU' if tuple(counts) == (1,) else 'GPUs'}"


def share(value: float | None) -> str:
    """Per cent; what is not the whole is not shown as 100 %."""
    if value is None or not math.isfinite(value):
        return ""
    return f"{LARGEST_PART if LARGEST_PART < value < 1.0 - ROUNDING else value:.1%}"


def whole_share(value: float) -> str:
    """Per cent without decimals; only all is 100 %, and only nothing 0 %."""
    return f"{value if value in {0.0, 1.0} else min(max(value, 0.01), 0.99):.0%}"


def memory(amount: float) -> str:
    """A number of bytes, in the largest unit that it reaches: 8 GiB, 512 MiB."""
    unit = min(int(math.log2(max(amount, 1.0)) // 10), len(BINARY) - 1)
    return f"{number(amount / 1024**unit)} {BINARY[unit]}"


def clock(seconds: float) -> str:
    """A moment of cluster time as days, hours, minutes and seconds since second 0: 1d 02:03:04.5."""
    tenths = round(seconds * 10)
    days, rest = divmod(tenths, DAY_S * 10)
    hours, rest = divmod(rest, HOUR_S * 10)
    minutes, rest = divmod(rest, MINUTE_S * 10)
    day = f"{days}d " if days else ""
    return f"{day}{hours:02d}:{minutes:02d}:{rest / 10:04.1f}"


def brief(seconds: float | None) -> str:
    """A length of time, rounded to a whole number of one unit: 34s, 99s, 47m, 12h, 47h, 3d."""
    if seconds is None or not math.isfinite(seconds):
        return ""
    units = (unit for unit, below in SHOWN_BELOW.items() if round(seconds / UNITS_S[unit]) < below)
    unit = next(units, "d")
    return f"{round(seconds / UNITS_S[unit])}{unit}"


def legible(text: str) -> str:
    """A text without control characters, which whoever wrote it may have put there; line breaks stay."""
    return CONTROLS.sub("", text.replace("\t", " "))


def on_one_line(text: str) -> str:
    """The whole of a text, so that no part of it can pass for another line."""
    return " ".join(legible(text).splitlines())


def in_a_line(text: str) -> str:
    """The first line of a text, and the last if it says more, as the error at the end of a log does."""
    lines = [line.strip() for line in legible(text).split("\n") if line.strip()]
    more = lines[-1:] if len(lines) > 1 and lines[-1] not in lines[0] else []
    return " … ".join([*lines[:1], *more])
