"""What is left of a benchmark of several figures when one of them fails. The measurements are fakes."""

import json
from functools import partial
from pathlib import Path

import pytest

from hopyard.failures import Failure, Interrupted
from hopyard.lab.bench.figures import Benchmark, seconds
from hopyard.lab.bench.machine import sync_s
from hopyard.lab.bench.suite import BENCHMARKS, BenchRun
from tests.hopyard.cli_line import Hopyard, command_line


@pytest.fixture
def hopyard(capsys: pytest.CaptureFixture[str]) -> Hopyard:
    return command_line(capsys)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("latency", "dispatch"):
        monkeypatch.setitem(BENCHMARKS, name, partial(found, name))


def found(name: str, _: BenchRun) -> Benchmark:
    return Benchmark(name=name, conditions="here", figures=(seconds("way", 0.1),))


def fails(monkeypatch: pytest.MonkeyPatch, name: str, error: BaseException) -> None:
    def failing(_: BenchRun) -> Benchmark:
        raise error

    monkeypatch.setitem(BENCHMARKS, name, failing)


def test_a_disk_that_takes_no_file_is_said_of_the_folder_and_not_of_a_draft() -> None:
    with pytest.raises(OSError, match=r"'/proc/self'$"):
        sync_s(Path("/proc/self"))


@pytest.mark.parametrize(("error", "code"), [(Failure("no room"), 1), (Interrupted("interrupted"), 130)])
def test_what_was_measured_before_a_failure_is_shown_and_written(
    hopyard: Hopyard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int
) -> None:
    fails(monkeypatch, "restart", error)
    out = tmp_path / "figures.json"
    ran = hopyard("bench", "latency", "restart", "dispatch", "--out", str(out), "--json")
    assert ran.code == code
    assert json.loads(ran.err.splitlines()[-1])["error"]["message"] == str(error)
    assert json.loads(ran.out) == json.loads(out.read_bytes())
    assert [one["name"] for one in json.loads(ran.out)["benchmarks"]] == ["latency"]


def test_a_first_figure_that_fails_leaves_nothing(
    hopyard: Hopyard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fails(monkeypatch, "restart", Failure("no room"))
    out = tmp_path / "figures.json"
    ran = hopyard("bench", "restart", "latency", "--out", str(out))
    assert (ran.code, ran.out, out.exists()) == (1, "", False)


def test_torch_is_looked_for_before_anything_is_measured(hopyard: Hopyard, tmp_path: Path) -> None:
    ran = hopyard("bench", "latency", "switching", "--python", str(tmp_path / "python"))
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == f"hopyard: --python {tmp_path}/python: is not an interpreter\n"


def test_a_browser_is_looked_for_before_anything_is_measured(
    hopyard: Hopyard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    ran = hopyard("bench", "latency", "page")
    assert (ran.code, ran.out, "latency …" in ran.err) == (1, "", False)


def test_a_figure_that_is_named_twice_is_measured_once(hopyard: Hopyard) -> None:
    ran = hopyard("bench", "latency", "dispatch", "latency", "--json")
    assert ran.code == 0
    assert [one["name"] for one in json.loads(ran.out)["benchmarks"]] == ["latency", "dispatch"]
