"""Which GPU errors (Xids, by their numbers in NVIDIA's driver) mean that a GPU must not be used. Pure.

By NVIDIA's catalogue of Xids for Ampere and newer cards. An Xid is fatal if the catalogue asks to reset the
GPU, to restart the machine or to check its cables. Errors that jobs cause, or that affect one job, are not:
13 (an illegal instruction), 31 (an illegal address), 43 (the job stopped by its own fault), 45 (the job was
ended), 94 (a memory error that one job alone has seen), and all others.
"""

FATAL = {
    46: "stopped processing",
    48: "memory error that cannot be corrected",
    54: "auxiliary power is not connected",
    62: "micro-controller halted",
    64: "memory rows cannot be replaced",
    74: "NVLink error",
    79: "has fallen off the bus",
    95: "memory error that may have reached every job on it",
    109: "context switch timed out",
    110: "security fault",
    119: "its firmware does not answer",
    120: "its firmware failed",
    136: "NVLink cannot be brought up",
    140: "memory error that could not be recorded",
    143: "cannot be initialised",
    156: "a unit of it is to be retired",
    158: "timed out for good",
}
"""what each Xid means, in words"""


def fatal(code: int) -> str:
    """What a fatal Xid means, with its number; empty: the Xid is not fatal."""
    return f"{FATAL[code]} (Xid {code})" if code in FATAL else ""
