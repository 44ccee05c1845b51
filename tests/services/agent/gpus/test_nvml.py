"""What nvidia-ml-py reads through a real shared library of the driver's name."""

import pytest

from services.agent.gpus.nvml import NoNvml, Nvml, Xid
from tests.services.agent.gpus.conftest import DriverOf
from tests.services.agent.gpus.driver import GIB, StubGpu, gpus, uuid


def test_devices_have_name_memory_and_uuid(driver_of: DriverOf) -> None:
    driver_of([StubGpu(uuid=uuid(0)), StubGpu(uuid=uuid(1), name="NVIDIA H200", memory=141 * GIB)])
    found = Nvml().devices()
    assert [device.uuid for device in found] == [uuid(0), uuid(1)]
    assert (found[1].name, found[1].memory) == ("NVIDIA H200", 141 * GIB)


def test_a_gpu_may_have_no_memory_of_its_own(driver_of: DriverOf) -> None:
    driver_of([StubGpu(uuid=uuid(0), name="NVIDIA GB10", memory=0, utilisation=40)])
    nvml = Nvml()
    assert [device.memory for device in nvml.devices()] == [None]
    assert (nvml.read(uuid(0)).memory_used, nvml.read(uuid(0)).utilisation) == (0.0, 40)


def test_a_reading_has_all_that_is_judged_by(driver_of: DriverOf) -> None:
    driver_of(
        [
            StubGpu(uuid=uuid(0), used=3 * GIB, utilisation=40, processes=range(100, 112)),
            StubGpu(uuid=uuid(1), remap_pending=True, mig=True),
            StubGpu(uuid=uuid(2), lost=True),
        ]
    )
    used, marked, lost = map(Nvml().read, map(uuid, range(3)))
    assert (used.processes, used.memory_used, used.utilisation) == (tuple(range(100, 112)), 3 * GIB, 40)
    assert not any((used.remap_pending, used.remap_failed, used.partitioned, used.lost))
    assert (marked.remap_pending, marked.remap_failed, marked.partitioned) == (True, False, True)
    assert lost.lost


def test_a_gpu_that_is_gone_from_the_list_is_lost(driver_of: DriverOf) -> None:
    driver = driver_of(gpus(2))
    nvml = Nvml()
    driver.gpus.pop()
    driver.write()
    assert not nvml.read(uuid(0)).lost
    assert nvml.read(uuid(1)).lost


def test_errors_come_once_in_their_order(driver_of: DriverOf) -> None:
    driver = driver_of(gpus(2))
    nvml = Nvml()
    nvml.watch_xids((uuid(0), uuid(1)))
    assert nvml.xids() == ()
    driver.xids = [(uuid(1), 79), (uuid(0), 31), ("GPU-gone", 48)]
    driver.write()
    assert nvml.xids() == (Xid(uuid=uuid(1), code=79), Xid(uuid=uuid(0), code=31), Xid(uuid="", code=48))
    assert nvml.xids() == ()


def test_without_a_driver_there_is_a_reason(driver_of: DriverOf, monkeypatch: pytest.MonkeyPatch) -> None:
    driver_of([])
    monkeypatch.delenv("NVML_STUB")
    with pytest.raises(NoNvml, match="Driver Not Loaded"):
        Nvml()
