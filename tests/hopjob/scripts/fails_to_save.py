"""`SCRIPT`, whose first save of so many samples finds no room."""

import os
import runpy
from pathlib import Path

from hopjob.state.checkpoints import Folder, State

whole, save, failed = int(os.environ["WHOLE"]), Folder.save, list[float]()


def save_at_second(folder: Folder, state: State, samples: float) -> Path:
    if samples == whole and not failed:
        failed.append(samples)
        raise OSError(28, "No space left on device")
    return save(folder, state, samples)


Folder.save = save_at_second  # type: ignore[assignment,method-assign]
runpy.run_path(os.environ["SCRIPT"], run_name="__main__")
