"""Files that commands write where a user says so."""

import json
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from hopyard.commands import store
from hopyard.lab.report.document import Report, Written, write
from schemas.questions import StorePage
from tests.full_disk import full_disk
from tests.hopyard.cli_line import Hopyard

NOBODY = "http://127.0.0.1:9"
LINE = b'{"kind":"bandwidth"}'


@pytest.fixture
def estimator(monkeypatch: pytest.MonkeyPatch) -> None:
    """Knows one line."""
    monkeypatch.setattr(store, "ask", lambda *_: StorePage(lines=(LINE,), next=None))


@contextmanager
def read_pipe(path: Path) -> Iterator[int]:
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        yield reader
    finally:
        os.close(reader)


@pytest.mark.usefixtures("estimator")
def test_an_export_goes_into_the_pipe_that_is_named_or_linked(hopyard: Hopyard, tmp_path: Path) -> None:
    pipe, link = tmp_path / "pipe", tmp_path / "link"
    link.symlink_to(pipe)
    with read_pipe(pipe) as reader:
        for path in (pipe, link):
            assert hopyard("store", "export", str(path)).code == 0
            assert os.read(reader, 999).splitlines()[1:] == [LINE]
    assert (pipe.is_fifo(), link.is_symlink()) == (True, True)


@pytest.mark.usefixtures("estimator")
def test_an_export_that_does_not_fit_leaves_the_one_before(hopyard: Hopyard, tmp_path: Path) -> None:
    file = tmp_path / "lab.jsonl"
    assert hopyard("store", "export", str(file)).code == 0
    before = file.read_bytes()
    with full_disk(free_bytes=1):
        ran = hopyard("store", "export", str(file))
    assert (ran.code, ran.err) == (1, f"hopyard: {file}: File too large\n")
    assert (file.read_bytes(), list(tmp_path.iterdir())) == (before, [file])


@pytest.mark.parametrize("linked", [False, True])
def test_a_backup_does_not_replace_a_pipe(hopyard: Hopyard, tmp_path: Path, *, linked: bool) -> None:
    pipe, link = tmp_path / "pipe", tmp_path / "link"
    os.mkfifo(pipe)
    link.symlink_to(pipe)
    ran = hopyard("backup", str(link if linked else pipe), "--api", NOBODY)
    assert (ran.code, "is not a file" in ran.err) == (2, True)


def test_a_token_goes_into_the_file_that_a_link_names(hopyard: Hopyard, tmp_path: Path) -> None:
    link, place = tmp_path / "link", tmp_path / "place"
    link.symlink_to(place)
    keys = str(tmp_path / "tokens.json")
    assert hopyard("token", "create", "--user", "ada", "--file", keys, "--out", str(link)).code == 0
    assert (link.is_symlink(), place.read_text()[:4]) == (True, "hop_")


RUN = ("simulate", "--scenario", "tiny", "--policy", "fifo")


@pytest.mark.parametrize(
    "words",
    [(*RUN, "--out"), (*RUN, "--events"), ("store", "export"), ("backup",), ("node", "discover", "--out")],
)
def test_a_file_that_cannot_be_written_is_refused_before_the_work(
    hopyard: Hopyard, tmp_path: Path, words: tuple[str, ...]
) -> None:
    with full_disk():
        ran = hopyard(*words, str(tmp_path / "found"))
    assert (ran.code, ran.out, ran.err) == (1, "", f"hopyard: {tmp_path}/found: File too large\n")
    ran = hopyard(*words, str(tmp_path / "gone" / "found"))
    assert (ran.code, ran.err) == (2, f"hopyard: {tmp_path}/gone/found: there is no folder {tmp_path}/gone\n")
    ran = hopyard(*words, "-")
    assert (ran.code, ran.err) == (2, "hopyard: - would be a file of this name; stdout is /dev/stdout\n")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("words", "options"),
    [
        ("simulate --events F --out ./F", "--events and --out"),
        ("simulate --out F --events L", "--out and --events"),
        ("simulate --out F --dump-problems F", "--out and --dump-problems"),
        ("simulate --scenario tiny.yaml --out tiny.yaml", "--scenario and --out"),
        ("replay --out T --trace T", "--out and --trace"),
        ("demo --keep F --out F", "--keep and --out"),
        ("bench latency --data F --out F", "--data and --out"),
        ("solve T --out T", "--out and FILE"),
        ("token create --file F --out F", "--file and --out"),
    ],
)
def test_two_options_that_name_one_file_are_refused_before_the_work(
    hopyard: Hopyard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str, options: str
) -> None:
    """The second of two outputs replaced the first, and an output what was read."""
    monkeypatch.chdir(tmp_path)
    Path("T").write_text("a trace, or a problem")
    Path("L").symlink_to("F")
    ran = hopyard(*words.split())
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith(f"hopyard: {options} name the same file: ")
    assert {path.name for path in tmp_path.iterdir()} == {"T", "L"}


def test_a_result_may_go_where_a_scenario_is_named_and_two_to_stdout(
    hopyard: Hopyard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert hopyard(*RUN, "--out", "tiny", "--events", "/dev/null").code == 0
    assert hopyard(*RUN, "--out", "/dev/null", "--events", "/dev/null").code == 0


def test_a_result_that_does_not_fit_is_shown_and_leaves_the_one_before(
    hopyard: Hopyard, tmp_path: Path
) -> None:
    file = tmp_path / "found.json"
    file.write_text("old")
    with full_disk(free_bytes=1):
        ran = hopyard("scenarios", "--json", "--out", str(file))
    assert ran.code == 1
    assert json.loads(ran.err)["error"]["message"] == f"{file}: File too large"
    assert json.loads(ran.out)
    assert (file.read_text(), list(tmp_path.iterdir())) == ("old", [file])


def test_a_report_that_does_not_fit_leaves_the_one_before(tmp_path: Path) -> None:
    written = Written(experiment="t", about={}, figures=(), failures=())
    write(tmp_path, Report("old", [], []), written)
    before = {path: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}
    with full_disk(), pytest.raises(OSError, match=str(tmp_path)):
        write(tmp_path, Report("new", [], []), written)
    assert {path: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()} == before


def test_a_node_file_that_does_not_fit_is_not_half_there(hopyard: Hopyard, tmp_path: Path) -> None:
    file = tmp_path / "node.yaml"
    with full_disk(free_bytes=1):
        assert hopyard("node", "discover", "--gpus", "cpu:2", "--out", str(file)).code == 1
    assert not list(tmp_path.iterdir())


def test_an_event_log_that_does_not_fit_leaves_the_one_before(hopyard: Hopyard, tmp_path: Path) -> None:
    file = tmp_path / "events.ndjson"
    file.write_text("old")
    with full_disk(free_bytes=1_000):
        ran = hopyard("simulate", "--scenario", "tiny", "--policy", "fifo", "--events", str(file))
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.splitlines()[-1] == f"hopyard: {file}: file too large"
    assert (file.read_text(), list(tmp_path.iterdir())) == ("old", [file])


def test_an_event_log_goes_into_a_pipe(hopyard: Hopyard, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with ThreadPoolExecutor() as beside:
        read = beside.submit(pipe.read_bytes)
        assert hopyard("simulate", "--scenario", "tiny", "--policy", "fifo", "--events", str(pipe)).code == 0
        assert all("fact" in json.loads(line) for line in read.result().splitlines())
    assert pipe.is_fifo()
