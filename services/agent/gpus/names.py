"""Derives GPU types and node names, as cluster files have them, from drivers' names and host names. Pure."""

import re

from schemas.ids import GpuType

CPU = "cpu"
"""GPU types `cpu` and `cpu-…` stand for CPU slots"""
MAKERS = frozenset({"nvidia", "tesla", "geforce", "gpu", "generation", "graphics"})
"""words in a GPU's name that say nothing about its type"""
FORMS = re.compile(r"^(sxm\d*|pcie|nvl|dgxs|\d+gb|hbm\d*e?)$")
"""words for the form of the board or the memory size, which do not make another type"""
LENGTH_AT_MOST = 63


def gpu_type_of(name: str) -> GpuType:
    """`Tesla V100-SXM2-16GB` is a `v100`, `NVIDIA GeForce GTX 1080 Ti` a `gtx-1080-ti`."""
    words = [word for word in re.split(r"[^a-z0-9]+", name.lower()) if word]
    telling = [word for word in words if word not in MAKERS and not FORMS.match(word)]
    return GpuType("-".join(telling or words)[:LENGTH_AT_MOST].strip("-") or "gpu")


def is_cpu(gpu_type: str) -> bool:
    """Whether GPUs of this type are CPU slots."""
    return gpu_type == CPU or gpu_type.startswith(f"{CPU}-")


def node_name_of(host: str) -> str:
    """A node's name from a host's: without the domain, other characters than those of names as dashes."""
    return re.sub(r"[^a-z0-9]+", "-", host.partition(".")[0].lower())[:LENGTH_AT_MOST].strip("-") or "node"
