"""How a command fails without a fault in the code, and the exit code of each failure.

0  done
1  refused: understood, and the answer is no; or a run that did not go well
2  bad usage, or a file that is not valid
3  nobody answers
130  interrupted
"""

from typing import ClassVar

REFUSED = 1
INVALID = 2
UNREACHABLE = 3
INTERRUPTED = 130
KINDS = {REFUSED: "refused", INVALID: "invalid", UNREACHABLE: "unreachable", INTERRUPTED: "interrupted"}
"""of failures, as they are called in JSON"""


class Failure(Exception):
    """The command ends here, with a line for the user."""

    code: ClassVar[int] = REFUSED


class Invalid(Failure):
    """What the user gave makes no sense."""

    code = INVALID


class Unreachable(Failure):
    """Nobody that speaks the API answers."""

    code = UNREACHABLE


class Interrupted(Failure):
    """The user stopped the command before there was a result."""

    code = INTERRUPTED


class Claimed(Failure):
    """Another stack holds the data folder."""


class Died(Failure):
    """A process ended that should not have; the text says which, how, and its last words."""


class NotReady(Failure):
    """Some service did not get ready in time."""
