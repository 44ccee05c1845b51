"""Read by every Python process that has this folder on its path: a core raises at a fact, in every life.

A file in the folder RAISING that is named as a service says at which: `KIND JOB`, the first fact of the kind
about a job whose id begins so. Which one that was, stands behind it.
"""

import os
from pathlib import Path
from typing import Any

from schemas.base import Event
from shared.runtime.shell.handling import Handling

FOLDER = Path(os.environ["RAISING"])
_init = Handling.__init__


def _doomed(service: str, event: Event) -> bool:
    file = FOLDER / service.partition("-")[0]
    try:
        kind, job, *doomed = file.read_text().split()
    except FileNotFoundError:
        return False
    if event.tag() != kind or not str(getattr(event, "job_id", "")).startswith(job):
        return False
    if not doomed:
        doomed = [event.event_id]
        file.write_text(" ".join([kind, job, *doomed]))
    return event.event_id in doomed


def _with_raising_core(self: Handling, service: Any, *rest: Any, **named: Any) -> None:  # noqa: ANN401 - handed on
    handle = service.core.handle

    def raising(message: object, now: float) -> object:
        if isinstance(message, Event) and _doomed(service.name, message):
            raise ZeroDivisionError(f"{service.name} at {message.event_id}")
        return handle(message, now)

    service.core.handle = raising
    _init(self, service, *rest, **named)


Handling.__init__ = _with_raising_core  # type: ignore[method-assign]
