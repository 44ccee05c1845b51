"""The `hopyard` program: `cli.main`, behind an answer to Ctrl-C while that is imported.

It imports next to nothing before, so that hardly an instant is left in which Ctrl-C shows a traceback.
"""

import os
import signal
import sys

TEXT = b"hopyard: interrupted\n"
AS_JSON = b'{"error":{"message":"interrupted","kind":"interrupted","code":130}}\n'
"""as `complain` has it"""
INTERRUPTED, STDERR = 130, 2


def main() -> None:
    """Run the command line of this process and exit with its code.

    An import has nothing to clean up, and somebody else's code in it may take an exception for its own:
    so Ctrl-C ends the process on the spot. Whoever ignores it, as a shell does for what it runs in the
    background, has a reason.
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
