"""Facts about the machine that figures were made on."""

import os
import platform
import tempfile
import time
from pathlib import Path

from hopyard.lab.bench.figures import quantile
from hopyard.show.units import duration
from shared.runtime.disk import check_folder, naming

GIB = 1024**3
SYNCS = 100


def machine_facts(folder: Path) -> dict[str, str]:
    """Label → text. `folder`: on the disk that is measured."""
    busy, _, _ = os.getloadavg()
    return {
        "cores": str(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()),
        "processor": _processor(),
        "memory": f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / GIB:.0f} GiB",
        "system": platform.platform(),
        "load before": f"{busy:.1f}",
        "disk sync": duration(sync_s(folder)),
    }


def sync_s(folder: Path) -> float:
    """Median seconds to sync a few bytes to disk, for which every stored fact waits."""
    check_folder(folder)
    times = []
    with naming(folder), tempfile.TemporaryFile(dir=folder, buffering=0) as file:
        for _ in range(SYNCS):
            began = time.perf_counter()
            file.write(b"fact")
            os.fsync(file.fileno())
            times.append(time.perf_counter() - began)
    return quantile(times, 0.5)


def _processor() -> str:
    """Linux hides the name of the processor from `platform`."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())
