"""Drivers' names become the catalogue's."""

import pytest

from loadgen.catalogue.specs import shipped
from services.agent.gpus.names import gpu_type_of, is_cpu, node_name_of

NAMES = {
    "NVIDIA GeForce GTX 1080 Ti": "gtx-1080-ti",
    "NVIDIA TITAN Xp": "titan-xp",
    "NVIDIA GeForce RTX 3090": "rtx-3090",
    "TITAN RTX": "titan-rtx",
    "NVIDIA RTX A2000": "rtx-a2000",
    "NVIDIA T400 4GB": "t400",
    "Tesla V100-SXM2-16GB": "v100",
    "Tesla V100-DGXS-32GB": "v100",
    "Tesla P100-PCIE-16GB": "p100",
    "Tesla K80": "k80",
    "Tesla T4": "t4",
    "Tesla M60": "m60",
    "NVIDIA A100-SXM4-40GB": "a100",
    "NVIDIA A100 80GB PCIe": "a100",
    "NVIDIA A10": "a10",
    "NVIDIA L4": "l4",
    "NVIDIA L40S": "l40s",
    "NVIDIA H100 80GB HBM3": "h100",
    "NVIDIA H100 NVL": "h100",
    "NVIDIA H200": "h200",
}


@pytest.mark.parametrize("name", NAMES)
def test_a_drivers_name_is_a_type_of_the_catalogue(name: str) -> None:
    assert gpu_type_of(name) == NAMES[name]
    assert NAMES[name] in shipped().gpus


def test_cards_that_train_unlike_one_another_keep_apart() -> None:
    alike = ("NVIDIA A10", "NVIDIA A10G", "NVIDIA A100-SXM4-40GB", "NVIDIA RTX A2000", "Quadro RTX 6000")
    assert len({gpu_type_of(name) for name in (*alike, "NVIDIA RTX 6000 Ada Generation")}) == 6


def test_any_name_becomes_one_that_a_subject_can_hold() -> None:
    assert gpu_type_of("NVIDIA Graphics Device\n. *") == "device"
    assert gpu_type_of("NVIDIA 80GB") == "nvidia-80gb"
    assert gpu_type_of("") == "gpu"
    assert len(gpu_type_of("x" * 500)) == 63


def test_hosts_names_become_nodes() -> None:
    assert node_name_of("Gpu_Server-7.example.org") == "gpu-server-7"
    assert node_name_of("...") == "node"


def test_slots_of_a_cpu_are_types_that_begin_so() -> None:
    assert is_cpu("cpu")
    assert is_cpu("cpu-slow")
    assert not is_cpu("cpux")
