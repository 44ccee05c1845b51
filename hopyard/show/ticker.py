"""A line about work in progress, on stderr: rewritten on a terminal, repeated now and then elsewhere."""

import os
import sys
import time
from collections import deque
from typing import TextIO

from hopyard.show.units import duration, legible

REWRITE_EVERY_S = 0.1
LINE_EVERY_S = 10.0
"""seconds between two lines that stay, and before the first, so that short work prints none"""
SURE_FROM = 0.01
"""share of the work after which the time left is shown"""
WORTH_SAYING_S = 1.0
ERASE = "\r\x1b[K"
WIDTH = 80
"""columns of a terminal of unknown width"""


class Ticker:
    """Prints everything that is said while the work goes on, so that no line lands in another."""

    def __init__(self, out: TextIO | None = None) -> None:
        self._out = sys.stderr if out is None else out
        self._rewrites = self._out.isatty()
        self._began = time.monotonic()
        self._last = self._began - (REWRITE_EVERY_S if self._rewrites else 0.0)
        self._shown = False
        self._past = deque([(self._began, 0.0)])
        """times, and shares done by then, over the later half of the time so far"""

    def show(self, text: str, share: float) -> None:
        """Show how far the work is: in words, and as a share of the whole."""
        now = time.monotonic()
        if now - self._last < (REWRITE_EVERY_S if self._rewrites else LINE_EVERY_S):
            return
        self._last = now
        line = f"{legible(text)}, {share:.0%}{self._left(share, now)}"
        self._write(ERASE + line[: self._width() - 1] if self._rewrites else line + "\n")
        self._shown = self._rewrites

    def step(self, text: str) -> None:
        """Print a line about a part that is done, unless lines are rewritten."""
        if not self._rewrites:
            self._write(legible(text) + "\n")

    def say(self, text: str) -> None:
        """Print a line that stays."""
        self.clear()
        self._write(legible(text) + "\n")

    def clear(self) -> None:
        """Erase the line."""
        if self._shown:
            self._write(ERASE)
            self._shown = False

    def _left(self, share: float, now: float) -> str:
        """Seconds left, by the pace of the later half of the time, since work often gets slower."""
        self._past.append((now, share))
        while len(self._past) > 1 and self._past[1][0] <= (self._began + now) / 2:
            self._past.popleft()
        then, was = self._past[0]
        if not SURE_FROM <= share < 1 or share <= was:
            return ""
        left_s = (1 - share) * (now - then) / (share - was)
        return f", about {duration(left_s)} left" if left_s >= WORTH_SAYING_S else ""

    def _width(self) -> int:
        try:
            return os.get_terminal_size(self._out.fileno()).columns or WIDTH
        except OSError:
            return WIDTH

    def _write(self, text: str) -> None:
        self._out.write(text)
        self._out.flush()
