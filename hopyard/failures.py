"""The failures of commands that are no bugs, and their exit codes.

0  done
1  refused: understood, and the answer is no; or a run that did not go well
2  bad usage, or a file that is not valid
3  unreachable: nothing answers at the address
4  a job that was waited for failed
5  it was cancelled
6  it was rejected: no GPU type can run it
130  interrupted
"""

import errno
import os

from shared.runtime.damage import leaf_of
from shared.runtime.installing import not_there

REFUSED = 1
INVALID = 2
UNREACHABLE = 3
FAILED = 4
CANCELLED = 5
REJECTED = 6
INTERRUPTED = 130
KINDS = {
    REFUSED: "refused",
    INVALID: "invalid",
    UNREACHABLE: "unreachable",
    FAILED: "failed",
    CANCELLED: "cancelled",
    REJECTED: "rejected",
    INTERRUPTED: "interrupted",
}
"""of failures, as they are called in JSON"""


NOT_INSTALLED = os.EX_UNAVAILABLE
"""exit code of a service that lacks a library, and would the next time too"""
MISCONFIGURED = os.EX_CONFIG
"""exit code of a service whose settings are wrong, which the next start would find too"""
PACKAGES = {
    **{name: name for name in ("aiohttp", "duckdb", "highspy", "numpy", "ortools", "selenium", "structlog")},
    **dict.fromkeys(("markdown_it", "matplotlib"), "markdown-it-py matplotlib"),
    "nats": "nats-py",
    "prometheus_client": "prometheus-client",
    "yaml": "pyyaml",
}
"""what to install for a library that is imported when it is needed, by the name of its module"""
EXTRAS = dict.fromkeys(("markdown_it", "matplotlib"), "lab")
"""the extra that has it, where one does"""
HERE = "the current folder"
"""what an error is about that says "no such file" and names none: the folder was deleted meanwhile"""


class Failure(Exception):
    """The command ends here, with a line for the user."""

    code: int = REFUSED


class Invalid(Failure):
    """What the user gave makes no sense."""

    code = INVALID


class Unreachable(Failure):
    """No API answers at the address."""

    code = UNREACHABLE


class Unanswered(Unreachable):
    """The API took the call and did not answer in time: what was asked for may have been done."""


class JobEnded(Failure):
    """A job that was waited for did not complete."""

    def __init__(self, text: str, code: int) -> None:
        super().__init__(text)
        self.code = code


class Interrupted(Failure):
    """The user stopped the command before there was a result."""

    code = INTERRUPTED


class Claimed(Failure):
    """Another stack holds the data folder."""


class Died(Failure):
    """A process ended that should not have; the text says which, how, and its last words."""


class StoreDamaged(Failure):
    """What a stack has stored is damaged; the text says what, what is lost, and what to do."""


class NotReady(Failure):
    """Some service did not get ready in time."""


class NotInstalled(Failure):
    """A library is not there; the text says how to install it."""


def not_installed(error: BaseException) -> NotInstalled | None:
    """What to install, when the error or one that it came from is the want of a library of ours."""
    came_from: BaseException | None = leaf_of(error)
    while came_from is not None:
        library = (getattr(came_from, "name", None) or "").partition(".")[0]
        if isinstance(came_from, ModuleNotFoundError) and library in PACKAGES:
            return NotInstalled(not_there(library, PACKAGES[library], EXTRAS.get(library, "")))
        came_from = came_from.__cause__
    return None


def worded(error: OSError) -> str:
    """The file that the error is about, if it names one, and what is wrong with it."""
    unnamed = HERE if error.errno == errno.ENOENT else ""
    place = os.fsdecode(error.filename) if error.filename else unnamed
    return ": ".join(filter(None, (place, (error.strerror or str(error)).lower())))
