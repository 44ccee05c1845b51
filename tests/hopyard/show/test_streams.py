"""Whatever stdin, stdout and stderr are, a command ends with a result or a line, not with a traceback."""

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from hopyard.show.streams import is_text

HOPYARD = (sys.executable, "-P", "-m", "hopyard.cli")
LATIN = {**os.environ, "PYTHONIOENCODING": "iso-8859-1", "PYTHONUTF8": "0"}


Done = subprocess.CompletedProcess[bytes]


def ran(*words: str, stdout: int = subprocess.PIPE, env: dict[str, str] | None = None) -> Done:
    return subprocess.run([*HOPYARD, *words], stdout=stdout, stderr=subprocess.PIPE, check=False, env=env)


@pytest.mark.parametrize("words", [("version",), ("--version",), ("-h",), ("scenarios", "-h")])
def test_a_full_disk_below_stdout_is_reported_in_a_line(words: tuple[str, ...]) -> None:
    with Path("/dev/full").open("wb") as full:
        done = ran(*words, stdout=full.fileno())
    assert done.returncode == 1
    assert done.stderr == b"hopyard: stdout takes nothing more: no space left on device\n"


def test_a_full_disk_below_stdout_is_reported_as_json() -> None:
    with Path("/dev/full").open("wb") as full:
        done = ran("version", "--json", stdout=full.fileno())
    assert done.returncode == 1
    assert msgspec.json.decode(done.stderr)["error"]["kind"] == "refused"


@pytest.mark.parametrize("words", [("version",), ("version", "--json"), ("-h",)])
def test_a_pipe_closed_early_prints_no_message(words: tuple[str, ...]) -> None:
    read, write = os.pipe()
    os.close(read)
    try:
        done = ran(*words, stdout=write)
    finally:
        os.close(write)
    assert (done.returncode, done.stderr) == (1, b"")


CLOSED = b"hopyard: stdout takes nothing more: bad file descriptor\n"


@pytest.mark.parametrize(
    ("closed", "code", "said"),
    [
        ("<&-", 0, b""),
        ("2>&-", 0, b""),
        ("<&- 2>&-", 0, b""),
        (">&-", 1, CLOSED),
        ("<&- >&-", 1, CLOSED),
        (">&- 2>&-", 1, b""),
        ("<&- >&- 2>&-", 1, b""),
    ],
)
@pytest.mark.parametrize("words", ["version", "scenarios"])
def test_a_command_whose_stdout_is_closed_fails(closed: str, code: int, said: bytes, words: str) -> None:
    done = subprocess.run(
        ["sh", "-c", f'"$0" -P -m hopyard.cli {words} {closed}', sys.executable],
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (code, said)


def test_a_command_that_prints_nothing_needs_no_stdout(tmp_path: Path) -> None:
    file = tmp_path / "node.yaml"
    command = f'"$0" -P -m hopyard.cli node discover --gpus cpu:1 --out {file} >&-'
    done = subprocess.run(["sh", "-c", command, sys.executable], capture_output=True, check=False)
    assert (done.returncode, file.exists()) == (0, True)


def test_a_closed_stdin_is_empty() -> None:
    command = ["sh", "-c", '"$0" -P -m hopyard.cli submit - <&-', sys.executable]
    done = subprocess.run(command, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (2, b"hopyard: stdin: is empty\n")


def test_a_terminal_of_another_encoding_gets_escapes() -> None:
    done = ran("policy", "list", env=LATIN)
    assert done.returncode == 0
    assert rb"\u03c1" in done.stdout


def test_json_is_utf_8_in_every_encoding() -> None:
    done = ran("policy", "list", "--json", env=LATIN)
    assert done.returncode == 0
    assert "ρ" in str(msgspec.json.decode(done.stdout))


def test_a_word_that_is_no_text_is_named() -> None:
    done = ran("submit", os.fsdecode(b"caf\xe9.yaml"), "--json", env={**os.environ, "PYTHONUTF8": "1"})
    assert done.returncode == 2
    assert msgspec.json.decode(done.stderr)["error"]["message"] == r"'caf\udce9.yaml' is not text in utf-8"


@pytest.mark.parametrize(("word", "text"), [("", True), ("café ☃ 😀", True), ("caf\udce9", False)])
def test_an_undecodable_word_is_no_text(word: str, *, text: bool) -> None:
    assert is_text(word) is text
