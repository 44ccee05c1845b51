"""The `hopyard` program: handles Ctrl-C while `cli` is imported, then runs `cli.main`.

This module imports next to nothing itself, since Ctrl-C shows a traceback until its handler is set.
"""

import os
import signal
import sys

TEXT = b"hopyard: interrupted\n"
AS_JSON = b'{"error":{"message":"interrupted","kind":"interrupted","code":130}}\n'
"""what `complain` prints; not imported from there, since that takes time"""
INTERRUPTED, STDERR = 130, 2


def main() -> None:
    """Run the command line of this process and exit with its code.

    During the import Ctrl-C ends the process at once: there is nothing to clean up, and a library that is
    imported could catch an exception. Where SIGINT is ignored, as in the background of a shell, it stays so.
    """
    heard = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if heard:
        signal.signal(signal.SIGINT, _end)
    from hopyard.cli import main as run  # noqa: PLC0415 - takes a tenth of a second, most of it libraries'

    try:
        if heard:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        run()
    except KeyboardInterrupt:  # before `run` takes it, or after
        _end()


def _end(*_: object) -> None:
    os.write(STDERR, AS_JSON if "--json" in sys.argv else TEXT)
    os._exit(INTERRUPTED)


if __name__ == "__main__":
    main()
