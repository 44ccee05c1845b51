"""What a signal that stops a command makes of its end. It imports next to nothing, as `start` does."""

import os
import signal
import sys
from collections.abc import Sequence

BY_SIGNAL = 128
"""exit code of a command that a signal stopped, less the signal's number"""
STOPPED = "stopped"
"""printed by a command that runs until it is stopped, once it was"""
INTERRUPTED_LINE = b"hopyard: interrupted\n"
INTERRUPTED_JSON = b'{"error":{"message":"interrupted","kind":"interrupted","code":130}}\n'
"""what `complain` prints; not imported from there, since that takes time"""
STDERR = 2


def runs_until(number: int, words: Sequence[str]) -> bool:
    """Whether the command of these words runs until a signal of this number, which is no failure then."""
    command = words[0] if words else ""
    return "--watch" in words or command == "up" or (command == "agent" and number != signal.SIGHUP)


def end_at_once(number: int = signal.SIGINT, _: object = None) -> None:
    """Handle a signal before the command has begun: end the process, which has nothing to clean up."""
    if runs_until(number, sys.argv[1:]):
        os.write(STDERR, f"{STOPPED}\n".encode())
        os._exit(0)
    as_json = INTERRUPTED_JSON.replace(b"130", str(BY_SIGNAL + number).encode())
    os.write(STDERR, as_json if "--json" in sys.argv else INTERRUPTED_LINE)
    os._exit(BY_SIGNAL + number)
