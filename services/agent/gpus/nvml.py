"""Reads GPUs from the driver, through NVIDIA's management library (NVML) and nvidia-ml-py, which is optional.

Nothing here changes a GPU. A reading that a GPU does not support counts as harmless: cards without ECC remap
no memory rows, and consumer cards report less than others.
"""

from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from shared.runtime.installing import not_there

A = TypeVar("A")

DRIVER = Path("/proc/driver/nvidia/version")
"""path that exists while the kernel module is loaded"""
EVENTS_AT_MOST = 100
"""Xids that one call reads"""


class NoNvml(OSError):
    """NVML cannot be used here; the text says why."""


class Device(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU as the driver names it."""

    index: int
    """its place in the order of bus addresses, from 0"""
    uuid: str
    name: str
    memory: float | None
    """bytes; None: it has no memory of its own, but shares the machine's"""
    fault: str = ""
    """why the driver cannot reach it, in which case neither its UUID nor its name is known; empty: it can"""


class GpuReading(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a GPU at one moment."""

    processes: tuple[int, ...] = ()
    """pids of the processes that compute on it, as far as this process may see them"""
    memory_used: float = 0.0
    """bytes"""
    utilisation: int = 0
    """percent of the last sampling period in which a kernel ran"""
    partitioned: bool = False
    """cut into instances (MIG): no job gets the whole GPU"""
    remap_pending: bool = False
    """memory rows or pages are to be replaced at the next reset"""
    remap_failed: bool = False
    """memory rows are faulty and cannot be replaced"""
    lost: bool = False
    """the driver can no longer reach it"""


class Xid(msgspec.Struct, frozen=True, kw_only=True):
    """An error of a GPU that the driver reported. `uuid`: empty if the GPU is gone."""

    uuid: str
    code: int


class Nvml:
    """A session with the library. Raises NoNvml where there is none."""

    def __init__(self) -> None:
        try:
            self._lib = import_module("pynvml")
        except ModuleNotFoundError:
            raise NoNvml(not_there("nvidia-ml-py", "nvidia-ml-py", "gpu")) from None
        try:
            self._lib.nvmlInit()
        except self._lib.NVMLError as error:
            raise NoNvml(f"NVML: {error}") from None
        self._events: Any = None

    def close(self) -> None:
        self._tried(lambda: self._events and self._lib.nvmlEventSetFree(self._events), None)
        self._tried(self._lib.nvmlShutdown, None)

    def devices(self) -> tuple[Device, ...]:
        """All GPUs, in the order of their bus addresses. Raises NoNvml."""
        try:
            count = self._lib.nvmlDeviceGetCount()
        except self._lib.NVMLError as error:
            raise NoNvml(f"NVML: {error}") from None
        return tuple(map(self._device, range(count)))

    def _device(self, index: int) -> Device:
        lib = self._lib
        try:
            handle = lib.nvmlDeviceGetHandleByIndex(index)
            return Device(
                index=index,
                uuid=lib.nvmlDeviceGetUUID(handle),
                name=lib.nvmlDeviceGetName(handle),
                memory=self._memory(handle),
            )
        except lib.NVMLError as error:
            return Device(index=index, uuid="", name="", memory=None, fault=str(error))

    def _memory(self, handle: Any) -> float | None:  # noqa: ANN401 - a pointer of the library
        try:
            return float(self._lib.nvmlDeviceGetMemoryInfo(handle).total)
        except self._lib.NVMLError_NotSupported:
            return None

    def read(self, uuid: str) -> GpuReading:
        lib = self._lib
        lost = (lib.NVMLError_GpuIsLost, lib.NVMLError_NotFound, lib.NVMLError_Unknown)
        try:
            handle = lib.nvmlDeviceGetHandleByUUID(uuid)
            processes = self._processes(handle, lost)
        except lost:
            return GpuReading(lost=True)
        except lib.NVMLError:
            return GpuReading()
        remapped = self._tried(lambda: lib.nvmlDeviceGetRemappedRows(handle), (0, 0, 0, 0))
        retiring = self._tried(lambda: lib.nvmlDeviceGetRetiredPagesPendingStatus(handle), 0)
        return GpuReading(
            processes=processes,
            memory_used=float(self._tried(lambda: self._memory_used(handle), 0)),
            utilisation=self._tried(lambda: lib.nvmlDeviceGetUtilizationRates(handle).gpu, 0),
            partitioned=bool(self._tried(lambda: lib.nvmlDeviceGetMigMode(handle)[0], 0)),
            remap_pending=bool(remapped[2] or retiring),
            remap_failed=bool(remapped[3]),
        )

    def _processes(self, handle: Any, lost: tuple[type[Exception], ...]) -> tuple[int, ...]:  # noqa: ANN401
        """Pids of those that compute; none if NVML does not say, as in MIG mode without privileges.

        Raises the errors of a GPU that is lost.
        """
        try:
            return tuple(found.pid for found in self._lib.nvmlDeviceGetComputeRunningProcesses(handle))
        except lost:
            raise
        except self._lib.NVMLError:
            return ()

    def _memory_used(self, handle: Any) -> int:  # noqa: ANN401 - a pointer of the library
        """Bytes in use, if possible without the driver's own reserve (half a gigabyte on large cards)."""
        lib = self._lib
        try:
            return int(lib.nvmlDeviceGetMemoryInfo(handle, version=lib.nvmlMemory_v2).used)
        except lib.NVMLError:
            return int(lib.nvmlDeviceGetMemoryInfo(handle).used)

    def watch_xids(self, uuids: tuple[str, ...]) -> None:
        """Collect the errors of these GPUs for `xids`. A GPU that cannot report errors has none."""
        lib = self._lib
        self._events = self._tried(lib.nvmlEventSetCreate, None)
        for uuid in uuids if self._events is not None else ():
            self._tried(partial(self._register, uuid), None)

    def _register(self, uuid: str) -> None:
        handle = self._lib.nvmlDeviceGetHandleByUUID(uuid)
        self._lib.nvmlDeviceRegisterEvents(handle, self._lib.nvmlEventTypeXidCriticalError, self._events)

    def xids(self) -> tuple[Xid, ...]:
        """The errors since the last call, oldest first; does not wait."""
        found: list[Xid] = []
        while self._events is not None and len(found) < EVENTS_AT_MOST:
            event = self._tried(lambda: self._lib.nvmlEventSetWait_v2(self._events, 0), None)
            if event is None:
                break
            uuid = self._tried(partial(self._lib.nvmlDeviceGetUUID, event.device), "")
            found.append(Xid(uuid=uuid, code=int(event.eventData)))
        return tuple(found)

    def _tried(self, call: Callable[[], A], otherwise: A) -> A:
        """The library's answer; `otherwise` if it raises an error."""
        try:
            return call()
        except self._lib.NVMLError:
            return otherwise


def driver_loaded() -> bool:
    """Whether NVIDIA's kernel module is loaded, so that NVML should find GPUs."""
    return DRIVER.exists()
