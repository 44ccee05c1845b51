"""How much of its device's memory is in use."""

from __future__ import annotations

import os
import resource

import torch

KIB = 1024


def memory_share() -> float:
    """Share of the GPU's memory in use, torch's cache included; without a GPU, peak share of main memory."""
    if torch.cuda.is_initialized():
        free, whole = torch.cuda.mem_get_info()
        return 1.0 - free / whole
    taken = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * KIB
    return min(taken / (os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")), 1.0)
