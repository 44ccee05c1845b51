"""`python -m hopjob.measure.all_reduces SIZES REPEATS`: times all-reduces among the ranks that meet.

SIZES is a JSON array of bytes. Rank 0's last line is a JSON array with an array of seconds for each size.
"""

from __future__ import annotations

import json
import os
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist

BYTES = 4
"""bytes of one number of a gradient"""
JOIN = timedelta(seconds=60)


def main() -> None:
    sizes, repeats = json.loads(sys.argv[1]), int(sys.argv[2])
    cuda = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if cuda else "gloo", timeout=JOIN)
    gradients = torch.ones(max(int(max(sizes)) // BYTES, 1), device=device)
    _seconds(gradients[:1])  # not counted: the first all-reduce makes the connections
    seconds = [[_seconds(gradients[: int(size) // BYTES]) for _ in range(repeats)] for size in sizes]
    if dist.get_rank() == 0:
        sys.stdout.write(json.dumps(seconds) + "\n")
        sys.stdout.flush()
    dist.barrier()
    os._exit(0)


def _seconds(gradients: torch.Tensor) -> float:
    dist.barrier()
    begin = time.perf_counter()
    dist.all_reduce(gradients)
    if gradients.is_cuda:
        torch.cuda.synchronize(gradients.device)
    return time.perf_counter() - begin


if __name__ == "__main__":
    main()
