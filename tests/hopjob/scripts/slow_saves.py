"""`SCRIPT`, whose checkpoints take a second to write."""

import os
import runpy
import time
from pathlib import Path

from hopjob.state.checkpoints import Folder, State

save = Folder.save


def save_slowly(folder: Folder, state: State, samples: float) -> Path:
    time.sleep(1.0)
    return save(folder, state, samples)


Folder.save = save_slowly  # type: ignore[assignment,method-assign]
runpy.run_path(os.environ["SCRIPT"], run_name="__main__")
