"""From a GPU's name as its driver gives it to the name of its type in cluster files. Pure."""

import re

from schemas.ids import GpuType

CPU = "cpu"
"""a type that begins with this has CPU slots in place of GPUs"""
MAKERS = frozenset({"nvidia", "tesla", "geforce", "gpu", "generation", "graphics"})
"""names of makers, which say nothing about the type"""
FORMS = re.compile(r"^(sxm\d*|pcie|nvl|dgxs|\d+gb|hbm\d*e?)$")
"""words for a board or a memory size: one type, unless a node file names another"""
LENGTH_AT_MOST = 63


def gpu_type_of(name: str) -> GpuType:
    """`Tesla V100-SXM2-16GB` is a `v100`, `NVIDIA GeForce GTX 1080 Ti` a `gtx-1080-ti`."""
    words = [word for word in re.split(r"[^a-z0-9]+", name.lower()) if word]
    telling = [word for word in words if word not in MAKERS and not FORMS.match(word)]
    return GpuType("-".join(telling or words)[:LENGTH_AT_MOST].strip("-") or "gpu")


def is_cpu(gpu_type: str) -> bool:
    return gpu_type == CPU or gpu_type.startswith(f"{CPU}-")


def node_name_of(host: str) -> str:
    """A node's name from a host's: without its domain, in the characters that names may have."""
    return re.sub(r"[^a-z0-9]+", "-", host.partition(".")[0].lower())[:LENGTH_AT_MOST].strip("-") or "node"
