from pathlib import Path

import pytest

from hopyard.failures import Claimed
from hopyard.local.data_folder import (
    StackFile,
    claimed,
    clock_origin,
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


def test_a_damaged_stack_file_is_none(tmp_path: Path) -> None:
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
