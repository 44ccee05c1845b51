"""Files that a user named: written as a whole, and never replaced by something else."""

import os
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from shared.runtime import outputs
from tests.full_disk import full_disk

WRITERS = [outputs.write, outputs.write_secret]
Write = Callable[[Path, bytes], None]


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("write", WRITERS)
def test_a_file_is_made_and_replaced_and_nothing_is_left_beside_it(tmp_path: Path, write: Write) -> None:
    path = tmp_path / "result"
    for data in (b"one, and long", b"two"):
        write(path, data)
        assert path.read_bytes() == data
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("write", WRITERS)
@pytest.mark.parametrize("there", [True, False])
def test_a_link_stays_and_its_file_is_written(tmp_path: Path, write: Write, *, there: bool) -> None:
    place, link = tmp_path / "folder" / "result", tmp_path / "link"
    place.parent.mkdir()
    if there:
        place.write_bytes(b"old")
    link.symlink_to(place)
    write(link, b"new")
    assert (link.is_symlink(), place.read_bytes()) == (True, b"new")
    assert list(place.parent.iterdir()) == [place]


@pytest.mark.parametrize("write", WRITERS)
def test_a_pipe_is_written_into(tmp_path: Path, write: Write) -> None:
    pipe, link = tmp_path / "pipe", tmp_path / "link"
    os.mkfifo(pipe)
    link.symlink_to(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        for path in (pipe, link):
            write(path, b"data")
            assert (os.read(reader, 9), path.is_fifo()) == (b"data", True)
    finally:
        os.close(reader)


@pytest.mark.parametrize("write", WRITERS)
def test_a_file_that_is_open_elsewhere_is_written_into(tmp_path: Path, write: Write) -> None:
    """As `/dev/stdout` of a shell that writes stdout to a file."""
    with (tmp_path / "result").open("w+b") as file:
        write(Path(f"/proc/self/fd/{file.fileno()}"), b"data")
        assert file.read() == b"data"


@pytest.mark.parametrize("write", WRITERS)
def test_a_full_disk_takes_nothing_from_what_is_there(tmp_path: Path, write: Write) -> None:
    path = tmp_path / "result"
    path.write_bytes(b"old")
    with full_disk(), pytest.raises(OSError, match="File too large") as full:
        write(path, b"new")
    assert full.value.filename == str(path)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_what_is_not_written_to_its_end_is_not_there(tmp_path: Path) -> None:
    def half() -> None:
        with outputs.opened(tmp_path / "result") as out:
            out.write(b"half")
            raise KeyError

    with pytest.raises(KeyError):
        half()
    assert not list(tmp_path.iterdir())


def test_a_replaced_file_keeps_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "result"
    path.touch(mode=0o640)
    outputs.write(path, b"new")
    assert mode_of(path) == 0o640


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write all files")
def test_a_write_protected_file_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "result"
    path.touch(mode=0o400)
    with pytest.raises(PermissionError):
        outputs.write(path, b"new")


def test_another_accounts_file_stays_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "result"
    path.write_bytes(b"old")
    before = path.stat()
    monkeypatch.setattr(os, "geteuid", lambda: before.st_uid + 1)
    outputs.write(path, b"new")
    assert (path.stat().st_ino, path.read_bytes()) == (before.st_ino, b"new")


@pytest.mark.parametrize("write", WRITERS)
def test_a_place_where_nothing_can_be_written_is_named(tmp_path: Path, write: Write) -> None:
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    for path in (tmp_path / "gone" / "result", tmp_path, loop):
        with pytest.raises(OSError, match=f"'{path}'$"):
            write(path, b"data")
    assert loop.is_symlink()


def test_what_could_not_be_written_is_known_before(tmp_path: Path) -> None:
    path = tmp_path / "result"
    outputs.check(path)
    with full_disk(), pytest.raises(OSError, match="File too large"):
        outputs.check(path)
    with pytest.raises(FileNotFoundError):
        outputs.check(tmp_path / "gone" / "result")
    assert not list(tmp_path.iterdir())
    path.write_bytes(b"old")
    outputs.check(path)
    assert path.read_bytes() == b"old"


def test_a_pipe_is_not_opened_by_the_look_at_it(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    outputs.check(tmp_path / "pipe")


@pytest.mark.parametrize("write", WRITERS)
def test_a_read_only_disk_is_said_of_the_file_and_not_of_its_draft(tmp_path: Path, write: Write) -> None:
    """There even a draft that is not there cannot be deleted."""
    mounts = ("mount", "-t", "tmpfs", "-o", "ro", "tmpfs", tmp_path)
    if os.geteuid() or subprocess.run(mounts, check=False).returncode:
        pytest.skip("needs to mount a disk")
    try:
        with pytest.raises(OSError, match=f"'{tmp_path}/result'$"):
            write(tmp_path / "result", b"data")
    finally:
        subprocess.run(("umount", tmp_path), check=True)
