"""`hopyard node discover`: writes the node file of this machine, for its user to check."""

import os

from hopyard.failures import Failure, Invalid
from schemas.cluster import NodeFile
from schemas.ids import GpuType
from services.agent.gpus.bandwidths import link_bandwidth, network_bandwidth
from services.agent.gpus.machine import Machine, UnfitMachine, machine_of
from shared.runtime.settings import PREFIX, load_settings


def discovered(gpus: str | None, name: str | None) -> Machine:
    """The node file's text. Raises Invalid, Failure for GPUs that are not there."""
    chosen = {"gpus": gpus, "node": name, "node_file": ""}
    given = {PREFIX + setting.upper(): value for setting, value in chosen.items() if value is not None}
    try:
        settings = load_settings({**os.environ, **given})
    except ValueError as error:
        raise Invalid(str(error)) from None
    try:
        return machine_of(settings)
    except UnfitMachine as error:
        raise Failure(str(error)) from None


def as_text(file: NodeFile) -> str:
    """YAML, with a comment on the source of each number."""
    lines = [
        "# A machine, as `hopyard node discover` found it; `hopyard agent --node-file` joins with it.",
        f"name: {file.name}",
        f"gpu_type: {file.gpu_type}",
        *_gpus(file),
        f"server: {file.server}",
        f"address: {file.address or chr(34) * 2}  # empty: the one from which it reaches NATS",
        "# bytes/s of an all-reduce; `hopyard calibrate` measures them",
        f"link_bandwidth: {file.link_bandwidth:.6g}  # {link_bandwidth(GpuType(file.gpu_type))[1]}",
        f"network_bandwidth: {file.network_bandwidth:.6g}  # {network_bandwidth()[1]}",
    ]
    return "\n".join(lines) + "\n"


def _gpus(file: NodeFile) -> list[str]:
    if isinstance(file.gpus, int):
        return [f"gpus: {file.gpus}"]
    entries = [f"  - {{uuid: {gpu.uuid}, memory: {gpu.memory or 0:.0f}}}" for gpu in file.gpus]
    return ["gpus:  # one that is left out gets no job; their order is that of their indices", *entries]
