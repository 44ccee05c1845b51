import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from hopyard.failures import Claimed, Invalid
from hopyard.local.data_folder import (
    StackFile,
    claimed,
    clock_origin,
    close_contents,
    read_stack_file,
    write_stack_file,
)


def stack_file() -> StackFile:
    return StackFile(api_url="http://127.0.0.1:1", nats_url="nats://127.0.0.1:2", pid=1, pids={}, ports={})


def test_a_folder_has_one_holder_at_a_time(tmp_path: Path) -> None:
    with claimed(tmp_path), pytest.raises(Claimed, match="another stack runs"), claimed(tmp_path):
        pass


def test_a_folder_is_free_again_afterwards(tmp_path: Path) -> None:
    with claimed(tmp_path):
        write_stack_file(tmp_path, stack_file())
    with claimed(tmp_path):
        assert read_stack_file(tmp_path) is None


def test_a_damaged_stack_file_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "stack.json").write_text("{")
    assert read_stack_file(tmp_path) is None


def test_a_new_folders_clock_starts_at_0(tmp_path: Path) -> None:
    assert clock_origin(tmp_path, speed=60.0, now=1000.0) == 1000.0


def test_a_folders_clock_goes_on_where_it_was(tmp_path: Path) -> None:
    clock_origin(tmp_path, speed=60.0, now=1000.0)
    assert clock_origin(tmp_path, speed=60.0, now=1500.0) == 1000.0


def test_another_speed_changes_the_pace_and_not_the_time(tmp_path: Path) -> None:
    clock_origin(tmp_path, speed=60.0, now=1000.0)
    origin = clock_origin(tmp_path, speed=10.0, now=1100.0)
    assert (1100.0 - origin) * 10.0 == pytest.approx(100.0 * 60.0)


@pytest.mark.parametrize("left", [b"", b'{"origin": 1000.0', b"\x00" * 40, b'{"origin": "x", "speed": 1}'])
def test_a_clock_that_cannot_be_read_is_named_with_the_way_out(tmp_path: Path, left: bytes) -> None:
    """As a power cut left it, before files were synced."""
    (tmp_path / "clock.json").write_bytes(left)
    with pytest.raises(Invalid, match=r"clock\.json: .*; write .* from a backup"):
        clock_origin(tmp_path, speed=1.0, now=2000.0)
    assert (tmp_path / "clock.json").read_bytes() == left


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture(autouse=True)
def _an_open_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def test_a_folder_and_what_is_in_it_are_its_owners_alone(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with claimed(data):
        write_stack_file(data, stack_file())
        clock_origin(data, speed=1.0, now=1000.0)
        modes = {path.name: mode_of(path) for path in data.iterdir()}
        assert mode_of(data) == 0o700
    assert modes == {"lock": 0o600, "stack.json": 0o600, "clock.json": 0o600}


def test_a_folder_of_a_stack_that_was_open_is_closed(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir(mode=0o755)
    (data / "clock.json").write_text('{"origin": 1000.0, "speed": 1.0}')
    with claimed(data):
        assert mode_of(data) & 0o066 == 0, "jobs of other accounts may pass through, until it is known"


def test_an_open_folder_with_other_files_is_refused_and_left_alone(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir(mode=0o755)
    (data / "thesis.tex").touch()
    with pytest.raises(Invalid, match="is open to others"), claimed(data):
        pass
    assert mode_of(data) == 0o755


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_folder_of_another_account_is_refused(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir(mode=0o700)
    os.chown(data, 4711, 4711)
    with pytest.raises(Invalid, match="belongs to another account"), claimed(data):
        pass


def test_files_left_open_by_an_older_version_are_closed_but_not_folders_of_jobs(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.touch(mode=0o644)
    data = tmp_path / "data"
    data.mkdir(mode=0o711)
    (data / "estimator.duckdb").touch(mode=0o644)
    (data / "link").symlink_to(elsewhere)
    for name in ("logs", "nats", "output", "jobs", "run"):
        (data / name).mkdir(mode=0o755)
    close_contents(data)
    found = {path.name: mode_of(path) for path in data.iterdir()}
    assert found == {
        "estimator.duckdb": 0o600,
        "link": 0o644,
        **dict.fromkeys(("logs", "nats", "output"), 0o700),
        **dict.fromkeys(("jobs", "run"), 0o755),
    }


def test_a_folder_name_that_is_not_utf_8_is_refused(tmp_path: Path) -> None:
    """Settings and messages hold its name, in UTF-8."""
    data = tmp_path / os.fsdecode(b"caf\xe9")
    with pytest.raises(Invalid, match=r"caf\\udce9' is not UTF-8 text; choose another --data"), claimed(data):
        pass
    assert not data.exists()
