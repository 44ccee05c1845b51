"""Files of every format, damaged: a sentence and an exit code, never a traceback."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from hopyard.actions.scenario import chosen_cluster
from hopyard.failures import INVALID, REFUSED, UNREACHABLE, Invalid
from tests.hopyard.cli_line import Hopyard, command_line

NOBODY = "http://127.0.0.1:9"
JOB = b"""name: one
workload: {model: resnet18, dataset: cifar10, batch_size: 256}
gpus: 2
samples: 1e6
"""
SETTINGS = b"round_s: 60\npolicy: fifo\n"
TOKENS = b'{"tokens":[]}'
EXPORT = b'{"kind":"hopyard-store","version":2}\n{"kind":"bandwidth","row":{"gpu_type":"v100"}}\n'
FORMATS = {
    "job.yaml": (JOB, ("submit", "FILE", "--api", NOBODY)),
    "job.json": (b'{"name": "one", "gpus": 1}', ("submit", "FILE", "--api", NOBODY)),
    "settings.yaml": (SETTINGS, ("config", "show", "--file", "FILE")),
    "tokens.json": (TOKENS, ("token", "list", "--file", "FILE")),
    "scenario.yaml": (b"name: mine\ncluster: tiny\n", ("simulate", "--scenario", "FILE")),
    "trace.csv": (b"submit,gpus\n0,1\n", ("simulate", "--scenario", "tiny", "--trace", "FILE")),
    "export.jsonl": (EXPORT, ("store", "import", "FILE")),
    "backup.tar": (b"no tar", ("restore", "FILE", "--data", "NEW")),
}
ENDS = {0, REFUSED, INVALID, UNREACHABLE}
BROKEN = ("empty", "garbage", "binary")


def damaged(whole: bytes) -> Iterator[tuple[str, bytes]]:
    chance = random.Random(1)
    yield "empty", b""
    yield "garbage", chance.randbytes(300)
    yield "binary", b"\x00" * 300
    yield "deep", b"[" * 5_000
    for cut in range(1, len(whole), max(len(whole) // 5, 1)):
        yield f"cut at {cut}", whole[:cut]
    for at in range(0, len(whole), max(len(whole) // 8, 1)):
        yield f"flipped at {at}", whole[:at] + bytes([whole[at] ^ 0x55]) + whole[at + 1 :]


@pytest.fixture
def hopyard(capsys: pytest.CaptureFixture[str]) -> Hopyard:
    return command_line(capsys)


@pytest.mark.parametrize("name", FORMATS)
def test_a_damaged_file_gets_a_sentence(
    hopyard: Hopyard, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    whole, words = FORMATS[name]
    file = tmp_path / name
    places = {"FILE": str(file), "NEW": str(tmp_path / "new")}
    for what, data in damaged(whole):
        if name in {"scenario.yaml", "trace.csv"} and what.startswith(("cut", "flipped")):
            continue  # may be a scenario still, which then runs
        file.write_bytes(data)
        file.chmod(0o600)
        ran = hopyard(*(places.get(word, word) for word in words))
        assert ran.code in ENDS, (what, ran)
        assert ran.code or what not in BROKEN or name == "settings.yaml", (what, ran)
        if ran.code:
            assert ran.err.strip(), (what, ran)
            assert "Traceback" not in ran.err, (what, ran)


CLUSTER = b"""name: mine
gpu_types:
  titan-xp: {link_bandwidth: 4.7e9, network_bandwidth: 2.7e9}
nodes:
  - {prefix: titan-xp, count: 2, gpus: 4, gpu_type: titan-xp, server: w780-g}
"""


def test_a_damaged_cluster_file_gets_a_sentence_or_is_a_cluster_still(tmp_path: Path) -> None:
    file, refused = tmp_path / "cluster.yaml", dict[str, str]()
    file.write_bytes(CLUSTER)
    assert chosen_cluster(str(file)).name == "mine"
    for what, data in damaged(CLUSTER):
        file.write_bytes(data)
        try:
            chosen_cluster(str(file))
        except Invalid as error:
            refused[what] = str(error)
    assert refused.keys() >= {*BROKEN, "deep"}
    assert [words for words in refused.values() if str(file) not in words] == []
