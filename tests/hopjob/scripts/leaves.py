"""Ends as END says, and leaves to Python what a script may: a file, a thread, a process, an exit handler."""

import atexit
import multiprocessing
import os
import pickle
import signal
import sys
import threading
import time
from pathlib import Path


class Result:
    """Pickled by its name in this script."""


def write(name: str) -> None:
    time.sleep(0.5)
    Path(name).write_bytes(pickle.dumps(Result()))


left = Path("file").open("w")  # noqa: SIM115 - what this is about
left.write("all of it\n")


def keep(*_: object) -> None:
    """A handler keeps the script's variables to the end."""
    left.write("a signal\n")


signal.signal(signal.SIGUSR1, keep)
threading.Thread(target=write, args=["thread"]).start()
multiprocessing.get_context("fork").Process(target=write, args=["process"]).start()
atexit.register(write, "handler")
if os.environ["END"] == "error":
    raise ValueError("this loss is no loss")
sys.exit(int(os.environ["END"]))
