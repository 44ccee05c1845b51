"""What a signal that stops a command makes of its end. It imports next to nothing, as `start` does."""

import signal
from collections.abc import Sequence

BY_SIGNAL = 128
"""exit code of a command that a signal stopped, less the signal's number"""
STOPPED = "stopped"
"""printed by a command that runs until it is stopped, once it was"""


def runs_until(number: int, words: Sequence[str]) -> bool:
    """Whether the command of these words runs until a signal of this number, which is no failure then."""
    command = words[0] if words else ""
    return "--watch" in words or command == "up" or (command == "agent" and number != signal.SIGHUP)
