"""What programs of the tests (`python -m tests.…`) have in common."""

import os
import signal
import sys
from collections.abc import Callable
from typing import NoReturn


def run(main: Callable[[], int | None]) -> NoReturn:
    """Run a program, and end with its exit code; as by SIGPIPE if its output is closed (`… | head`)."""
    try:
        code = main()
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is left is flushed at the end
        code = 128 + signal.SIGPIPE
    sys.exit(code)
