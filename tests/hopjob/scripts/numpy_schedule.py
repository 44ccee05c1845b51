"""A schedule computes with numpy, whose numbers are kinds of Python's: what is kept of it torch reads."""

import tempfile
from enum import IntEnum

import numpy as np
import torch
from torch import nn

from hopjob.state.checkpoints import Folder
from hopjob.state.plain import plain


class Phase(IntEnum):
    WARM = 1


optimizer = torch.optim.SGD(nn.Linear(2, 2).parameters(), lr=0.1, momentum=0.9)
schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.5 * (1 + np.cos(np.pi * step / 100)))
for _ in range(3):
    optimizer.step()
    schedule.step()
state = {
    "optimizer": optimizer.state_dict(),
    "schedule": schedule.state_dict(),
    "others": {"text": np.str_("a"), "phase": Phase.WARM, np.int64(3): (np.complex128(1j), np.float32(0.5))},
}
with tempfile.TemporaryDirectory() as path:
    folder = Folder(path)
    kept = plain(state, "the state")
    assert isinstance(kept, dict)
    found = folder.load(folder.save(kept, 1).name)
assert found["schedule"]["_last_lr"] == schedule.get_last_lr()
assert found["others"] == {"text": "a", "phase": 1, 3: (1j, 0.5)}
print("all is read")
