"""`SCRIPT`, whose last save is not tried again for long; with `NO_ROOM` none finds room."""

import os
import runpy
from pathlib import Path

from hopjob import training_state
from hopjob.state.checkpoints import Folder, State

training_state.LAST_SAVE_LIMIT_S, training_state.LAST_SAVE_EVERY_S = 0.5, 0.3


def save_nothing(folder: Folder, state: State, samples: float) -> Path:  # noqa: ARG001 - the method's
    raise OSError(28, "No space left on device")


if "NO_ROOM" in os.environ:
    Folder.save = save_nothing  # type: ignore[assignment,method-assign]
runpy.run_path(os.environ["SCRIPT"], run_name="__main__")
