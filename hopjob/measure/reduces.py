"""`python -m hopjob.measure.reduces SIZES REPEATS`: seconds of all-reduces among the ranks that meet.

SIZES: bytes, as a JSON array. Rank 0 writes the seconds as its last line, a JSON array for each size. A large
one goes in buckets on a CPU, as gradients do, so that memory stays small.
"""

from __future__ import annotations

import json
import os
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist

BUCKET_BYTES = 64_000_000
JOIN = timedelta(seconds=60)


def main() -> None:
    sizes, repeats = json.loads(sys.argv[1]), int(sys.argv[2])
    cuda = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if cuda else "gloo", timeout=JOIN)
    largest = max(sizes) if cuda else min(max(sizes), BUCKET_BYTES)
    bucket = torch.ones(max(int(largest) // 4, 1), device=device)
    _seconds(bucket, 4.0)  # connections are made by the first
    seconds = [[_seconds(bucket, size) for _ in range(repeats)] for size in sizes]
    if dist.get_rank() == 0:
        sys.stdout.write(json.dumps(seconds) + "\n")
        sys.stdout.flush()
    dist.barrier()
    os._exit(0)


def _seconds(bucket: torch.Tensor, size: float) -> float:
    dist.barrier()
    begin = time.perf_counter()
    left = max(int(size) // 4, 1)
    while left > 0:
        dist.all_reduce(bucket[:left])
        left -= bucket.numel()
    if bucket.is_cuda:
        torch.cuda.synchronize(bucket.device)
    return time.perf_counter() - begin


if __name__ == "__main__":
    main()
