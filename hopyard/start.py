"""The `hopyard` program: handles signals that stop it while `cli` is imported, then runs `cli.main`.

This module imports next to nothing itself, since Ctrl-C shows a traceback until its handler is set.
"""

import signal

from hopyard.stopping import end_at_once


def main() -> None:
    """Run the command line of this process and exit with its code.

    During the import Ctrl-C ends the process at once: there is nothing to clean up, and a library that is
    imported could catch an exception. Where SIGINT is ignored, as in the background of a shell, it stays so.
    """
    heard = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if heard:
        signal.signal(signal.SIGINT, end_at_once)
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, end_at_once)  # until `run` takes it
    from hopyard.cli import main as run  # noqa: PLC0415 - takes a tenth of a second, most of it libraries'

    try:
        if heard:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        run()
    except KeyboardInterrupt:  # before `run` takes it, or after
        end_at_once()


if __name__ == "__main__":
    main()
