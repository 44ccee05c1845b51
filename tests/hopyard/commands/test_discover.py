"""`hopyard node discover`: a file that an agent takes as it is."""

from pathlib import Path

import pytest

from schemas.cluster import NodeFile
from schemas.settings import Settings
from services.agent.gpus.machine import machine_of
from shared.runtime.files import read_file
from tests.hopyard.cli_line import Hopyard
from tests.services.agent.gpus.driver import StubDriver, StubGpu, found_here, gpus, uuid


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StubDriver:
    return found_here(tmp_path / "gpus", monkeypatch, gpus(2))


def test_the_written_node_file_is_what_an_agent_would_find(
    hopyard: Hopyard, driver: StubDriver, tmp_path: Path
) -> None:
    file = tmp_path / "node.yaml"
    ran = hopyard("node", "discover", "--name", "gpu-7", "--out", str(file))
    assert (ran.code, ran.out, ran.err) == (0, "", "")
    found = machine_of(Settings(node="gpu-7"))
    assert found.uuids == tuple(gpu.uuid for gpu in driver.gpus)
    assert read_file(file, NodeFile) == found.file
    assert machine_of(Settings(node_file=str(file))) == found


def test_every_number_says_where_it_comes_from(hopyard: Hopyard, driver: StubDriver) -> None:
    driver.gpus[0] = StubGpu(uuid=uuid(0), name="NVIDIA H200")
    driver.gpus[1] = StubGpu(uuid=uuid(1), name="NVIDIA H200")
    driver.write()
    out = hopyard("node", "discover").out
    assert "gpu_type: h200\n" in out
    assert "link_bandwidth: 1.9125e+11  # NVLink 4, eighteen links, 0.85 of 450 GB/s / 2\n" in out
    assert "\nnetwork_bandwidth: " in out
    assert all(len(line) <= 110 for line in out.splitlines())


def test_gpus_of_other_types_are_named(hopyard: Hopyard, driver: StubDriver) -> None:
    driver.gpus.append(StubGpu(uuid=uuid(9), name="NVIDIA T400"))
    driver.write()
    assert hopyard("node", "discover").err == "left out: 1 of t400; a node has GPUs of one type\n"


def test_a_file_that_is_there_stays(hopyard: Hopyard, tmp_path: Path) -> None:
    file = tmp_path / "node.yaml"
    file.write_text("mine")
    assert hopyard("node", "discover", "--gpus", "cpu:2", "--out", str(file)).code == 2
    assert file.read_text() == "mine"


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("--gpus", "cpu"), 2, "TYPE:COUNT"),
        (("--gpus", "v100:65"), 2, "TYPE:COUNT"),
        (("--gpus", "cpu:2", "--name", "A.b"), 1, "'A.b': a node's name is up to 63"),
        (("--gpus", "v100:3"), 1, "3 GPUs of v100 are asked for, and the machine has 2"),
    ],
)
def test_invalid_options_are_refused_in_a_line(
    words: tuple[str, ...], code: int, said: str, hopyard: Hopyard, driver: StubDriver
) -> None:
    assert driver.gpus
    ran = hopyard("node", "discover", *words)
    assert (ran.code, ran.out) == (code, "")
    assert said in ran.err
    assert ran.err.count("\n") == 1


@pytest.mark.parametrize("command", ["node discover", "agent --join nats://127.0.0.1:9"])
def test_gpus_that_make_no_sense_are_named_by_their_option(hopyard: Hopyard, command: str) -> None:
    ran = hopyard(*command.split(), "--gpus", "foo")
    assert ran.code == 2
    assert ran.err.startswith("hopyard: --gpus foo: it takes TYPE:COUNT")
