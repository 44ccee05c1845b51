"""Sets what `ps` shows of a forked rank, in place of the template's command line and environment."""

from __future__ import annotations

import contextlib
import ctypes
from pathlib import Path

NAME = 15
"""PR_SET_NAME, and how many characters Linux keeps of it"""
ARGUMENTS, ENVIRONMENT = slice(47, 49), slice(49, 51)
"""fields of /proc/PID/stat: first and last address"""


def set_title(title: str) -> None:
    """Over the memory in which the process got its arguments and environment; libc has copies by then.

    Call it after the environment has been replaced. Where Linux does not say the addresses, nothing happens.
    """
    with contextlib.suppress(OSError, ValueError, AttributeError):
        ctypes.CDLL(None).prctl(NAME, title.encode()[:NAME], 0, 0, 0)
        fields = Path("/proc/self/stat").read_text("ascii", "replace").rpartition(")")[2].split()
        # the first two fields, number and name, stand before the bracket
        first, arguments_end = (int(field) for field in fields[ARGUMENTS.start - 2 : ARGUMENTS.stop - 2])
        begin, end = (int(field) for field in fields[ENVIRONMENT.start - 2 : ENVIRONMENT.stop - 2])
        room = (end if begin == arguments_end else arguments_end) - first
        if first and room > 1:
            ctypes.memset(first, 0, room)
            text = title.encode()[: room - 1]
            ctypes.memmove(first, text, len(text))
