"""Read by every Python process that has this folder on its path: holds up threads of pools as a stuck disk.

The file that STALL names says which: `POOL INSTANCE`, for as long as it is there. Where AHEAD_S is set,
the clock of the machine is so many seconds ahead.
"""

import os
import time
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures.thread import ThreadPoolExecutor
from pathlib import Path
from typing import Any

_submit = ThreadPoolExecutor.submit


def _held(pool: str | None) -> bool:
    try:
        return Path(os.environ["STALL"]).read_text() == f"{pool} {os.environ.get('HOPYARD_INSTANCE')}"
    except (OSError, KeyError):
        return False


def _submitted(
    self: ThreadPoolExecutor, work: Callable[..., Any], /, *arguments: object, **named: object
) -> Future[Any]:
    def late() -> object:
        while _held(self._thread_name_prefix):
            time.sleep(0.05)
        return work(*arguments, **named)

    return _submit(self, late)


ThreadPoolExecutor.submit = _submitted  # type: ignore[assignment, method-assign]

_time = time.time
time.time = lambda: _time() + float(os.environ.get("AHEAD_S", "0"))  # a fork has an environment of its own
