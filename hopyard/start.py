"""The `hopyard` program: handles signals that stop it while `cli` is imported, then runs `cli.main`.

This module imports next to nothing itself, since Ctrl-C shows a traceback until its handler is set.
"""

import os
import signal
import sys

from hopyard.stopping import BY_SIGNAL, STOPPED, runs_until

TEXT = b"hopyard: interrupted\n"
AS_JSON = b'{"error":{"message":"interrupted","kind":"interrupted","code":130}}\n'
"""what `complain` prints; not imported from there, since that takes time"""
STDERR = 2


def main() -> None:
    """Run the command line of this process and exit with its code.

    During the import Ctrl-C ends the process at once: there is nothing to clean up, and a library that is
    imported could catch an exception. Where SIGINT is ignored, as in the background of a shell, it stays so.
    """
    heard = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if heard:
        signal.signal(signal.SIGINT, _end)
    ended = signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    if ended:
        signal.signal(signal.SIGTERM, _end)
    from hopyard.cli import main as run  # noqa: PLC0415 - takes a tenth of a second, most of it libraries'

    try:
        if heard:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        if ended:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        run()
    except KeyboardInterrupt:  # before `run` takes it, or after
        _end()


def _end(number: int = signal.SIGINT, _: object = None) -> None:
    if runs_until(number, sys.argv[1:]):
        os.write(STDERR, f"{STOPPED}\n".encode())
        os._exit(0)
    as_json = AS_JSON.replace(b"130", str(BY_SIGNAL + number).encode())
    os.write(STDERR, as_json if "--json" in sys.argv else TEXT)
    os._exit(BY_SIGNAL + number)


if __name__ == "__main__":
    main()
