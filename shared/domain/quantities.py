"""Lengths of time and amounts of memory as people write them. Pure."""

import math
import re

UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
PREFIXES = ("", "k", "M", "G", "T")
"""powers of a thousand; with an i, of 1024"""
_LENGTH = re.compile(r"(?P<count>\d{1,9}(\.\d{1,6})?)(?P<unit>[smhd])?", re.ASCII)
_CLOCK = re.compile(r"((?P<h>\d{1,5}):)?(?P<m>\d{1,5}):(?P<s>\d\d)", re.ASCII)
_AMOUNT = re.compile(r"(?P<count>\d{1,12}(\.\d{1,6})?) ?((?P<prefix>[kKMGT])(?P<binary>i)?)?B", re.ASCII)


def seconds_in(text: str) -> float | None:
    """The seconds of a duration such as 90s, 30m, 2h or 1.5d; None for anything else."""
    found = _LENGTH.fullmatch(text.strip())
    return float(found["count"]) * UNITS_S[found["unit"] or "s"] if found else None


def seconds_of_clock(text: str) -> float | None:
    """The seconds of a duration such as 01:30:00, or 5:00, which is minutes; None for anything else."""
    found = _CLOCK.fullmatch(text.strip())
    return float(sum(int(found[unit] or 0) * UNITS_S[unit] for unit in "hms")) if found else None


def bytes_in(text: str) -> float | None:
    """The bytes of an amount such as 500MB, 8 GB or 8GiB; None for anything else."""
    found = _AMOUNT.fullmatch(text.strip())
    if found is None:
        return None
    prefix = (found["prefix"] or "").replace("K", "k")
    base = 1024.0 if found["binary"] else 1000.0
    return float(found["count"]) * math.pow(base, PREFIXES.index(prefix))
