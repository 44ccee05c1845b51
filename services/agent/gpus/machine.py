"""Finds the GPUs of this machine: by a node file, by the settings, or by asking the driver.

Where the agent's environment has CUDA_VISIBLE_DEVICES, only the GPUs that it names count, as for any program
that uses CUDA: the others are somebody else's.
"""

import os
import socket
from collections.abc import Sequence
from itertools import takewhile

import msgspec

from schemas.cluster import GpuFile, Node, NodeFile
from schemas.ids import GpuType, NodeId
from schemas.jobs import Name
from schemas.settings import Settings
from services.agent.gpus.bandwidths import link_bandwidth, network_bandwidth
from services.agent.gpus.names import gpu_type_of, is_cpu, node_name_of
from services.agent.gpus.nvml import Device, NoNvml, Nvml, driver_loaded
from shared.runtime.files import fault, read_file

VISIBLE = "CUDA_VISIBLE_DEVICES"


class UnfitMachine(LookupError):
    """The machine cannot be the node that is asked for; the text says why."""


class NoDriver(UnfitMachine):
    """The machine has no driver for GPUs, so it has no GPUs that a job could use."""


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """A machine as its agent announces it, with what only the agent needs to know."""

    file: NodeFile
    uuids: tuple[str, ...] = ()
    """UUIDs of its GPUs, by index; empty: the driver cannot be asked"""
    unchecked: tuple[str, ...] = ()
    """where the driver cannot be asked: the GPUs that CUDA_VISIBLE_DEVICES names, by index"""
    left_out: str = ""
    """GPUs of the machine that the node leaves out, in words; empty: none"""

    @property
    def visible(self) -> tuple[str, ...]:
        """Names of the GPUs for CUDA_VISIBLE_DEVICES, by index; empty: the node has CPU slots."""
        count = self.file.gpus if isinstance(self.file.gpus, int) else len(self.file.gpus)
        if is_cpu(self.file.gpu_type):
            return ()
        return self.uuids or self.unchecked or tuple(map(str, range(count)))


def visible_devices(settings: Settings) -> tuple[str, ...]:
    """`Machine.visible` of the machine that the settings describe. Raises UnfitMachine, InvalidFile."""
    return machine_of(settings).visible


def machine_of(settings: Settings) -> Machine:
    """The machine by its node file, else by the setting `gpus`, else by its driver.

    Raises UnfitMachine, InvalidFile.
    """
    devices, why_not = _devices()
    if settings.node_file:
        return _of_file(settings.node_file, devices, why_not)
    if settings.gpus:
        gpu_type, _, count = settings.gpus.partition(":")
        return _of_count(described(settings, GpuType(gpu_type), int(count)), devices, why_not)
    if not devices:
        unfit = NoDriver if devices is None and not driver_loaded() else UnfitMachine
        raise unfit(
            f"no GPU is found{_because(why_not)}; with --gpus cpu:{_cores()} slots of the CPU stand for GPUs"
        )
    return _of_devices(settings, devices)


def node_of(file: NodeFile, address: str = "") -> Node:
    """The node of a node file. `address`: used if the file has none."""
    return Node(
        node_id=NodeId(file.name),
        gpu_type=GpuType(file.gpu_type),
        gpus=file.gpus if isinstance(file.gpus, int) else len(file.gpus),
        server=file.server,
        link_bandwidth=file.link_bandwidth,
        network_bandwidth=file.network_bandwidth,
        address=file.address or address,
    )


def described(settings: Settings, gpu_type: GpuType, gpus: int | tuple[GpuFile, ...]) -> NodeFile:
    """A node file for these GPUs, with assumed bandwidths. Raises UnfitMachine."""
    return NodeFile(
        name=_name(settings),
        gpu_type=gpu_type,
        gpus=gpus,
        address=settings.address,
        link_bandwidth=link_bandwidth(gpu_type)[0],
        network_bandwidth=network_bandwidth()[0],
    )


def _name(settings: Settings) -> str:
    try:
        return msgspec.convert(settings.node or node_name_of(socket.gethostname()), Name)
    except msgspec.ValidationError:
        fitting = node_name_of(settings.node)
        reason = "a node's name is up to 63 lower-case letters, digits and dashes"
        raise UnfitMachine(f"{settings.node!r}: {reason}; {fitting} would do") from None


def _devices() -> tuple[tuple[Device, ...] | None, str]:
    """(the GPUs that the agent may use, why there are no others); None: the driver cannot be asked."""
    try:
        nvml = Nvml()
        try:
            devices = nvml.devices()
        finally:
            nvml.close()
    except NoNvml as error:
        return None, f"{error}{', though the driver is loaded' if driver_loaded() else ''}"
    if not devices:
        return devices, "NVML knows of none"
    named = os.environ.get(VISIBLE)
    if named is None:
        return devices, ""
    visible = visible_of(devices, named)
    return visible, f"of its {len(devices)}, {VISIBLE}={named} leaves {len(visible)}"


def visible_of(devices: Sequence[Device], named: str) -> tuple[Device, ...]:
    """The GPUs that CUDA_VISIBLE_DEVICES names, in the driver's order.

    An entry is an index or the beginning of a UUID. As in CUDA, the first that names no GPU ends the list.
    """
    chosen = list[Device]()
    for entry in _entries(named):
        meant = [device for device in devices if _named(device, entry)]
        if len(meant) != 1:
            break
        chosen += meant
    return tuple(device for device in devices if device in chosen)


def _entries(named: str) -> list[str]:
    return [entry.strip() for entry in named.split(",")]


def _may_be_a_gpu(entry: str) -> bool:
    """Whether an entry could name a GPU, as far as that can be said without the driver: -1 names none."""
    return entry.isdecimal() or entry.startswith(("GPU-", "MIG-"))


def _named(device: Device, entry: str) -> bool:
    by_index = entry.isdecimal() and int(entry) == device.index
    return by_index or bool(entry and device.uuid.startswith(entry))


def _because(reason: str) -> str:
    return f" ({reason})" if reason else ""


def _of_file(path: str, devices: Sequence[Device] | None, why_not: str) -> Machine:
    file = read_file(path, NodeFile)
    if isinstance(file.gpus, int):
        return _of_count(file, devices, why_not)
    if is_cpu(file.gpu_type):
        raise fault(path, "$.gpus", f"slots of type {file.gpu_type} have no UUIDs: give their number")
    uuids = tuple(gpu.uuid for gpu in file.gpus)
    known = {device.uuid for device in devices or ()}
    some_unknown = any(device.fault for device in devices or ())  # may be in the file; the watch withholds it
    for index, uuid in enumerate(uuids):
        if uuid in uuids[:index]:
            raise fault(path, f"$.gpus[{index}].uuid", f"{uuid} is given twice")
        if uuid not in known and not some_unknown:
            raise fault(path, f"$.gpus[{index}].uuid", f"this machine has no GPU {uuid}{_because(why_not)}")
    return Machine(file=file, uuids=uuids)


def _of_count(file: NodeFile, devices: Sequence[Device] | None, why_not: str) -> Machine:
    """The first `file.gpus` GPUs; where the driver cannot be asked, only CUDA_VISIBLE_DEVICES is a limit."""
    assert isinstance(file.gpus, int), "a list names its GPUs"
    if is_cpu(file.gpu_type):
        return Machine(file=file)
    asked = f"{file.gpus} GPUs of {file.gpu_type} are asked for"
    if devices is None:
        named = os.environ.get(VISIBLE)
        entries = () if named is None else tuple(takewhile(_may_be_a_gpu, _entries(named)))
        if named is not None and file.gpus > len(entries):
            raise UnfitMachine(f"{asked}, and {VISIBLE}={named} names {len(entries)}")
        return Machine(file=file, unchecked=entries[: file.gpus])
    if file.gpus > len(devices):
        raise UnfitMachine(f"{asked}, and the machine has {len(devices)}{_because(why_not)}")
    chosen = devices[: file.gpus]
    _check(chosen)
    return Machine(file=file, uuids=tuple(device.uuid for device in chosen))


def _of_devices(settings: Settings, devices: Sequence[Device]) -> Machine:
    """The GPUs of the most frequent type, since a node has GPUs of one type."""
    _check(devices)
    types = [gpu_type_of(device.name) for device in devices]
    chosen = max(types, key=types.count)
    ours = [device for device, gpu_type in zip(devices, types, strict=True) if gpu_type == chosen]
    others = sorted({gpu_type for gpu_type in types if gpu_type != chosen})
    return Machine(
        file=described(
            settings, chosen, tuple(GpuFile(uuid=device.uuid, memory=device.memory) for device in ours)
        ),
        uuids=tuple(device.uuid for device in ours),
        left_out=f"{len(devices) - len(ours)} of {', '.join(others)}" if others else "",
    )


def _check(devices: Sequence[Device]) -> None:
    """Raises UnfitMachine for a GPU that cannot be reached: without it the others had other indices."""
    for device in devices:
        if device.fault:
            raise UnfitMachine(
                f"GPU {device.index} of this machine cannot be reached ({device.fault}): "
                "repair it, or list the UUIDs of the others in a node file"
            )


def _cores() -> int:
    return min(len(os.sched_getaffinity(0)), 64)
