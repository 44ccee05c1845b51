"""What ranks print is read line by line, once, and given back to the disk."""

import subprocess
import time
from pathlib import Path

import pytest

from services.agent.process import tails
from services.agent.process.folders import RankFiles
from services.agent.process.tails import (
    BACKLOG_MAX_BYTES,
    EMPTIED,
    FREE_EVERY_BYTES,
    LAST_LINES,
    LINE_MAX_BYTES,
    READ_MAX_BYTES,
    Tail,
)


@pytest.fixture
def files(tmp_path: Path) -> RankFiles:
    return RankFiles(tmp_path, 0)


def printed(files: RankFiles, text: bytes) -> None:
    with files.log.open("ab") as log:
        log.write(text)


def test_a_line_is_read_once_it_has_ended(files: RankFiles) -> None:
    tail = Tail(files)
    assert tail.lines() == []
    printed(files, b"one\ntw")
    assert tail.lines() == ["one"]
    assert tail.lines() == []
    printed(files, b"o\r\nbar 1%\rbar 2%\rthree \xff\n\n")
    assert tail.lines() == ["two", "bar 1%", "bar 2%", "three �"]


@pytest.mark.parametrize("full", [True, False])
def test_a_disk_that_was_full_before_space_was_given_back_is_remembered(
    files: RankFiles, monkeypatch: pytest.MonkeyPatch, *, full: bool
) -> None:
    """The rank that could not write ends a moment later, when there is space again."""
    monkeypatch.setattr(tails, "is_full", lambda _: full)
    tail, began = Tail(files), time.monotonic()
    printed(files, b"x" * 1_000 + b"\n")
    tail.lines()
    assert tail.freed_when_full < began
    for _ in range(8):
        printed(files, (b"x" * 1_000 + b"\n") * 200)
        tail.lines()
    assert (tail.freed_when_full >= began) is full


def test_an_unfinished_line_is_read_at_the_end(files: RankFiles) -> None:
    tail = Tail(files)
    printed(files, b"one\n\n\n" + b"x" * 600_000 + b"\nlast")
    lines = [line for lines in tail.rest() for line in lines]
    assert lines[0] == "one"
    assert lines[-1] == "last"
    assert sum(map(len, lines)) == 3 + 600_000 + 4


def test_what_a_process_that_was_not_killed_prints_on_is_left_out(files: RankFiles) -> None:
    """Else the worker's end would wait for ever."""
    printed(files, b"last\n")
    rest, lines = Tail(files).rest(), list[str]()
    for _ in range(3):
        lines += next(rest, [])
        printed(files, b"more\n" * READ_MAX_BYTES)
    assert lines[0] == "last"
    assert next(rest, None) is None


def test_the_next_agent_reads_on_where_the_last_one_was(files: RankFiles) -> None:
    tail = Tail(files)
    printed(files, b"one\n")
    tail.lines()
    tail.lines()
    printed(files, b"two\n")
    assert Tail(files).lines() == ["two"]


def test_a_log_that_its_job_empties_is_read_from_its_beginning(files: RankFiles) -> None:
    """The output of a job vanished from its first `echo … > /dev/stderr` on."""
    line = "echo one; echo two; read _; echo low > /dev/stderr; read _; echo three; echo four"
    tail = Tail(files)
    with files.log.open("ab") as log:
        shell = subprocess.Popen(["sh", "-c", line], stdin=subprocess.PIPE, stdout=log, stderr=log)
    assert shell.stdin is not None
    with shell, shell.stdin as typed:
        assert read(tail, 2) == ["one", "two"]
        typed.write(b"\n")
        typed.flush()
        assert read(tail, 2) == [EMPTIED, "low"]
        typed.write(b"\n")
        typed.flush()
        assert read(tail, 2) == ["three", "four"]
    assert [*tail.rest()] == [[], []]


def test_a_log_that_is_emptied_and_filled_between_two_reads_is_read_from_its_beginning(
    files: RankFiles,
) -> None:
    """It was read on in the middle of what was there then, as lines of the log before."""
    tail = Tail(files)
    printed(files, b"one\ntwo\n")
    assert tail.lines() == ["one", "two"]
    files.log.write_bytes(b"three\nfour\nfive\n")
    assert tail.lines() == [EMPTIED, "three", "four", "five"]
    printed(files, b"six\n")
    assert tail.lines() == ["six"]


def test_a_log_that_is_left_out_in_part_and_then_grows_is_no_other(files: RankFiles) -> None:
    tail = Tail(files)
    printed(files, b"one\n")
    tail.lines()
    printed(files, b"".join(b"%999d\n" % number for number in range(2 * BACKLOG_MAX_BYTES // 1_000)))
    for line in (b"two\n", b"three\n"):
        while tail.lines():
            pass
        printed(files, line)
        assert tail.lines() == [line.decode().strip()]


def read(tail: Tail, count: int) -> list[str]:
    """The next lines, once there are so many."""
    found: list[str] = []
    deadline = time.monotonic() + 60.0
    while len(found) < count:
        assert time.monotonic() < deadline, found
        found += tail.lines()
    return found


def test_an_overlong_line_is_read_without_its_end(files: RankFiles) -> None:
    tail = Tail(files)
    printed(files, b"x" * LINE_MAX_BYTES)
    assert tail.lines() == ["x" * LINE_MAX_BYTES]


def test_the_last_lines_are_there_read_or_not(files: RankFiles) -> None:
    tail = Tail(files)
    assert tail.last() == ()
    printed(files, b"".join(b"%d\n" % number for number in range(100)))
    tail.lines()
    assert tail.last() == tuple(map(str, range(100 - LAST_LINES, 100)))


def test_the_disk_space_of_lines_read_is_freed(files: RankFiles) -> None:
    tail = Tail(files)
    printed(files, (b"x" * 999 + b"\n") * 4_000)
    before = files.log.stat().st_blocks
    while tail.lines():
        pass
    printed(files, b"after\n")
    assert tail.lines() == ["after"]
    assert tail.last()[-1] == "after"
    assert files.log.stat().st_size == 4_000_006
    if files.log.stat().st_blocks == before + 1:
        pytest.skip("this file system has no holes")
    assert files.log.stat().st_blocks * 512 < 4_000_006 - FREE_EVERY_BYTES


def test_a_tail_says_whether_there_is_more_to_read_at_once(files: RankFiles) -> None:
    tail = Tail(files)
    printed(files, (b"x" * 999 + b"\n") * 400)
    tail.lines()
    assert tail.behind
    tail.lines()
    assert not tail.behind


def test_what_is_printed_faster_than_it_can_be_read_is_left_out_and_that_is_said(files: RankFiles) -> None:
    """Else the log would fill the disk, or the memory, of the node."""
    tail = Tail(files)
    count = 2 * BACKLOG_MAX_BYTES // 1_000
    printed(files, b"".join(b"%999d\n" % number for number in range(count)))
    read = [line for lines in tail.rest() for line in lines]
    said, numbers = read[0], [int(line) for line in read[1:]]
    assert numbers == list(range(count - len(numbers), count))
    assert READ_MAX_BYTES - LINE_MAX_BYTES <= 1_000 * len(numbers) <= READ_MAX_BYTES
    assert said.startswith(f"hopyard: {1_000 * (count - len(numbers))} bytes were printed faster")


def test_a_backlog_that_is_not_too_long_is_read_whole(files: RankFiles) -> None:
    printed(files, b"".join(b"%999d\n" % number for number in range(BACKLOG_MAX_BYTES // 1_000)))
    assert sum(map(len, Tail(files).rest())) == BACKLOG_MAX_BYTES // 1_000
