"""Sets what /proc shows of a forked rank in place of the template's: command line and environment."""

from __future__ import annotations

import contextlib
import ctypes
import os
from pathlib import Path

NAME = 15
"""PR_SET_NAME, and how many characters Linux keeps of it"""
ARGUMENTS, ENVIRONMENT = slice(47, 49), slice(49, 51)
"""fields of /proc/PID/stat: first and last address"""


def set_title(title: str, variable: str = "") -> None:
    """Write the title over the memory in which the process got its arguments and environment.

    `variable`: `NAME=VALUE`, all that its environment in /proc then has: by it the agent finds the process,
    and those that it forks. Call it after the environment has been replaced, since libc then no longer reads
    that memory. If /proc does not give the addresses, nothing happens.
    """
    with contextlib.suppress(OSError, ValueError, AttributeError):
        ctypes.CDLL(None).prctl(NAME, title.encode()[:NAME], 0, 0, 0)
        fields = Path("/proc/self/stat").read_text("ascii", "replace").rpartition(")")[2].split()
        # the first two fields, pid and name, are before the bracket
        first, arguments_end = (int(field) for field in fields[ARGUMENTS.start - 2 : ARGUMENTS.stop - 2])
        begin, end = (int(field) for field in fields[ENVIRONMENT.start - 2 : ENVIRONMENT.stop - 2])
        mark = os.fsencode(variable) + b"\0"
        ends = end - len(mark) if len(mark) < end - begin else end
        room = (ends if begin == arguments_end else arguments_end) - first
        if first and room > 1:
            ctypes.memset(first, 0, arguments_end - first)
            ctypes.memset(begin, 0, end - begin)
            text = title.encode()[: room - 1]
            ctypes.memmove(first, text, len(text))
            ctypes.memmove(ends, mark, end - ends)
