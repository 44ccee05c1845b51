"""Assumed bandwidths between GPUs, used until they are measured (`hopyard calibrate`).

Bytes/s of an all-reduce in the sense of Hops eq. 2: half of the bandwidth that a ring reaches. A ring reaches
about 0.6 of the maker's figure for one direction over PCIe, and 0.85 over NVLink.
"""

from pathlib import Path

from schemas.ids import GpuType
from services.agent.gpus.names import is_cpu

RING = 0.5
PCIE_3 = 15.75e9 * 0.6 * RING
PCIE_4 = 31.5e9 * 0.6 * RING
THROUGH_HOST = 3.2e9
NVLINK = 0.85 * RING

LINKS: dict[str, tuple[float, str]] = {
    "v100": (150e9 * NVLINK, "NVLink 2, six links, 0.85 of 150 GB/s / 2"),
    "p100": (PCIE_3, "PCIe 3.0 x16, 0.6 of 15.75 GB/s / 2"),
    "a100": (300e9 * NVLINK, "NVLink 3, twelve links, 0.85 of 300 GB/s / 2"),
    "h100": (450e9 * NVLINK, "NVLink 4, eighteen links, 0.85 of 450 GB/s / 2"),
    "h200": (450e9 * NVLINK, "NVLink 4, eighteen links, 0.85 of 450 GB/s / 2"),
    "a10": (PCIE_4, "PCIe 4.0 x16, 0.6 of 31.5 GB/s / 2"),
    "l4": (PCIE_4, "PCIe 4.0 x16, 0.6 of 31.5 GB/s / 2"),
    "l40s": (PCIE_4, "PCIe 4.0 x16, 0.6 of 31.5 GB/s / 2"),
    "rtx-3090": (
        THROUGH_HOST,
        "GeForce cards reach each other through host memory",
    ),
}
OTHERWISE = (PCIE_3, "PCIe 3.0 x16, 0.6 of 15.75 GB/s / 2: nothing is known of this type")
CPU_SLOTS = (0.5e9, "gloo over the loopback of one machine, as measured with three ranks")
"""measured: 0.5e9 with three ranks and 1.1e9 with two, which reduced 8.6 MB"""

NETWORK_SHARE = 0.85 * RING
GIGABIT = 1e9 / 8
NETWORKS = Path("/sys/class/net")


def link_bandwidth(gpu_type: GpuType) -> tuple[float, str]:
    """(bytes/s, source of the number) for an all-reduce inside a node."""
    if is_cpu(gpu_type):
        return CPU_SLOTS
    return LINKS.get(gpu_type, OTHERWISE)


def network_bandwidth(interfaces: Path = NETWORKS) -> tuple[float, str]:
    """(bytes/s, source of the number) for an all-reduce between nodes, by the fastest interface in use."""
    speeds = {path.name: megabits for path in interfaces.glob("*") if (megabits := _megabits(path)) > 0}
    if not speeds:
        return 10 * GIGABIT * NETWORK_SHARE, "0.85 of 10 Gb/s / 2: no interface says how fast it is"
    name = max(sorted(speeds), key=lambda each: speeds[each])
    gigabits = speeds[name] / 1000
    return gigabits * GIGABIT * NETWORK_SHARE, f"0.85 of {gigabits:g} Gb/s of {name} / 2"


def _megabits(interface: Path) -> int:
    """The interface's speed in Mb/s; 0 if it is down or virtual."""
    try:
        if (interface / "operstate").read_text().strip() != "up" or not (interface / "device").exists():
            return 0
        return int((interface / "speed").read_text())
    except (OSError, ValueError):
        return 0
