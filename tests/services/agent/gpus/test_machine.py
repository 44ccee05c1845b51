"""What a machine brings: by its driver, by the settings, by a node file; what is refused, in a sentence."""

from pathlib import Path

import pytest
import yaml

from schemas.settings import Settings
from services.agent.gpus.machine import Machine, UnfitMachine, machine_of, node_of, visible_devices
from shared.runtime.files import InvalidFile
from tests.services.agent.gpus.conftest import DriverOf
from tests.services.agent.gpus.driver import StubGpu, gpus, uuid


def machine(**settings: str) -> Machine:
    return machine_of(Settings(node="here", **settings))  # type: ignore[arg-type]


def node_file(folder: Path, **changes: object) -> str:
    fields: dict[str, object] = {
        "name": "gpu-1",
        "gpu_type": "v100",
        "gpus": [{"uuid": uuid(1)}, {"uuid": uuid(0)}],
        "link_bandwidth": 2e10,
        "network_bandwidth": 1e9,
    }
    path = folder / "node.yaml"
    path.write_text(yaml.safe_dump(fields | changes))
    return str(path)


def test_a_machine_has_the_gpus_that_its_driver_names(driver_of: DriverOf) -> None:
    driver_of(gpus(2))
    found = machine()
    node = node_of(found.file, "10.0.0.7")
    assert (node.node_id, node.gpu_type, node.gpus, node.address) == ("here", "v100", 2, "10.0.0.7")
    assert found.visible == (uuid(0), uuid(1))
    assert node.link_bandwidth == pytest.approx(63.75e9)


def test_a_node_has_gpus_of_one_type_the_most_frequent(driver_of: DriverOf) -> None:
    driver_of([StubGpu(uuid=uuid(0), name="NVIDIA T400 4GB"), *gpus(3)[1:]])
    found = machine()
    assert found.file.gpu_type == "v100"
    assert found.visible == (uuid(1), uuid(2))
    assert found.left_out == "1 of t400"


def test_a_machine_without_gpus_is_refused_with_a_hint(driver_of: DriverOf) -> None:
    driver_of([])
    with pytest.raises(
        UnfitMachine, match=r"no GPU is found \(NVML knows of none\); with --gpus cpu:\d+ slots of the CPU"
    ):
        machine()


def test_slots_of_the_cpu_stand_for_gpus(driver_of: DriverOf) -> None:
    driver_of(gpus(2))
    found = machine(gpus="cpu-slow:4")
    assert (found.file.gpu_type, found.file.gpus, found.visible, found.uuids) == ("cpu-slow", 4, (), ())


def test_an_override_names_type_and_number(driver_of: DriverOf) -> None:
    driver_of(gpus(3))
    found = machine(gpus="v100-32:2")
    assert (found.file.gpu_type, found.visible) == ("v100-32", (uuid(0), uuid(1)))
    with pytest.raises(UnfitMachine, match="4 GPUs of v100 are asked for, and the machine has 3"):
        machine(gpus="v100:4")


def test_where_the_driver_cannot_be_asked_a_number_is_taken_on_trust(
    driver_of: DriverOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver_of([])
    monkeypatch.delenv("NVML_STUB")
    assert machine(gpus="v100:2").visible == ("0", "1")


def test_a_node_file_chooses_gpus_and_their_order(driver_of: DriverOf, tmp_path: Path) -> None:
    driver_of(gpus(4))
    settings = Settings(node_file=node_file(tmp_path))
    assert visible_devices(settings) == (uuid(1), uuid(0))
    node = node_of(machine_of(settings).file, "10.0.0.7")
    assert (node.node_id, node.gpus, node.address) == ("gpu-1", 2, "10.0.0.7")


HOSTILE: dict[str, dict[str, object]] = {
    "name: a newline": {"name": "gpu-1\n"},
    "name: another subject": {"name": "gpu.*.>"},
    "type: a line": {"gpu_type": "v100\n"},
    "uuid: a shell's": {"gpus": [{"uuid": "GPU-00000000,$(reboot)"}]},
    "uuid: all": {"gpus": [{"uuid": "all"}]},
    "gpus: none": {"gpus": []},
    "gpus: below none": {"gpus": -1},
    "gpus: too many": {"gpus": 10**9},
    "address: a command": {"address": "; reboot"},
    "bandwidth: not a number": {"link_bandwidth": float("nan")},
    "bandwidth: endless": {"network_bandwidth": float("inf")},
    "unknown field": {"preexec": "reboot"},
    "type: a list": {"gpu_type": ["v100"]},
}


@pytest.mark.parametrize("case", HOSTILE)
def test_a_hostile_node_file_is_refused_in_a_line(case: str, driver_of: DriverOf, tmp_path: Path) -> None:
    driver_of(gpus(2))
    path = node_file(tmp_path, **HOSTILE[case])
    with pytest.raises(InvalidFile, match=rf"^{path}:\d+: \$\.") as refused:
        machine_of(Settings(node_file=path))
    assert "\n" not in str(refused.value)


def test_gpus_that_are_not_there_or_twice_are_refused(driver_of: DriverOf, tmp_path: Path) -> None:
    driver_of(gpus(1))
    with pytest.raises(InvalidFile, match=f"this machine has no GPU {uuid(1)}"):
        machine_of(Settings(node_file=node_file(tmp_path)))
    with pytest.raises(InvalidFile, match=f"{uuid(0)} is given twice"):
        machine_of(Settings(node_file=node_file(tmp_path, gpus=[{"uuid": uuid(0)}] * 2)))
    with pytest.raises(InvalidFile, match="slots of type cpu have no UUIDs"):
        machine_of(Settings(node_file=node_file(tmp_path, gpu_type="cpu")))


@pytest.mark.parametrize("settings", [{}, {"gpus": "v100:3"}])
def test_a_gpu_that_cannot_be_reached_is_neither_counted_nor_left_out(
    driver_of: DriverOf, settings: dict[str, str]
) -> None:
    """By their number GPUs were taken on trust, and none was watched any more."""
    driver_of([*gpus(2), StubGpu(uuid=uuid(2), lost=True), *gpus(4)[3:]])
    with pytest.raises(UnfitMachine, match=r"GPU 2 of this machine cannot be reached \(.*\): repair it"):
        machine(**settings)
    assert machine(gpus="v100:2").uuids == (uuid(0), uuid(1))


def test_a_node_file_may_name_a_gpu_that_cannot_be_reached(driver_of: DriverOf, tmp_path: Path) -> None:
    driver_of([StubGpu(uuid=uuid(0), lost=True), *gpus(2)[1:]])
    assert machine(node_file=node_file(tmp_path)).uuids == (uuid(1), uuid(0))


VISIBLE: dict[str, tuple[str, tuple[int, ...]]] = {
    "by index": ("2,0", (0, 2)),
    "by UUID": (uuid(3), (3,)),
    "both": (f" 1 , {uuid(2)}", (1, 2)),
    "up to one that is not there": ("1,7,2", (1,)),
    "up to -1": ("0,-1,2", (0,)),
    "twice": ("1,1", (1,)),
    "what more than one begins with": ("GPU-", ()),
    "none": ("", ()),
    "none, as Slurm says it": ("NoDevFiles", ()),
}


@pytest.mark.parametrize("case", VISIBLE)
def test_an_agent_has_the_gpus_that_cuda_shows_it(
    case: str, driver_of: DriverOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its jobs ran on GPUs of other users' allocations, since workers got the variable anew."""
    driver_of(gpus(4))
    named, left = VISIBLE[case]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", named)
    if left:
        assert machine().visible == machine(gpus=f"v100:{len(left)}").visible == tuple(map(uuid, left))
    else:
        with pytest.raises(UnfitMachine, match=rf"no GPU is found \(of its 4, .*={named} leaves 0\)"):
            machine()
    asked = f"{len(left) + 1} GPUs of v100 are asked for, and the machine has {len(left)}"
    with pytest.raises(UnfitMachine, match=rf"^{asked} \(of its 4, "):
        machine(gpus=f"v100:{len(left) + 1}")
    assert machine(gpus="cpu:4").visible == ()


def test_a_node_file_names_no_gpu_that_cuda_hides(
    driver_of: DriverOf, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    driver_of(gpus(4))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1,2")
    with pytest.raises(
        InvalidFile, match=rf"no GPU {uuid(0)} \(of its 4, CUDA_VISIBLE_DEVICES=1,2 leaves 2\)"
    ):
        machine(node_file=node_file(tmp_path))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    assert machine(node_file=node_file(tmp_path)).visible == (uuid(1), uuid(0))


def test_a_gpu_that_cannot_be_reached_may_be_hidden(
    driver_of: DriverOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver_of([gpus(1)[0], StubGpu(uuid=uuid(1), lost=True), *gpus(4)[2:]])
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,3")
    assert machine().uuids == (uuid(2), uuid(3))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1,3")
    with pytest.raises(UnfitMachine, match="GPU 1 of this machine cannot be reached"):
        machine()


def test_without_a_driver_cuda_still_limits_the_gpus(
    driver_of: DriverOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver_of([])
    monkeypatch.delenv("NVML_STUB")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5")
    assert machine(gpus="v100:2").visible == ("3", "5")
    assert machine(gpus="v100:1").visible == ("3",)
    with pytest.raises(
        UnfitMachine, match="3 GPUs of v100 are asked for, and CUDA_VISIBLE_DEVICES=3,5 names 2"
    ):
        machine(gpus="v100:3")
    for none in ("", "-1,0", "NoDevFiles"):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", none)
        with pytest.raises(UnfitMachine, match=f"CUDA_VISIBLE_DEVICES={none} names 0"):
            machine(gpus="v100:1")


def test_a_number_of_gpus_is_not_taken_on_trust_from_a_driver_that_has_none(driver_of: DriverOf) -> None:
    driver_of([])
    with pytest.raises(UnfitMachine, match=r"the machine has 0 \(NVML knows of none\)"):
        machine(gpus="v100:2")
