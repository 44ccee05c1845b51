import errno
import os
from pathlib import Path

import pytest

from shared.runtime.disk import naming, sync


def test_what_cannot_be_synced_raises_unless_its_file_system_syncs_no_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "file"
    file.touch()
    sync(file)
    monkeypatch.setattr(os, "fsync", failing(errno.EINVAL))
    sync(tmp_path)
    with pytest.raises(OSError, match="Invalid argument"):
        sync(file)
    monkeypatch.setattr(os, "fsync", failing(errno.EIO))
    with pytest.raises(OSError, match="Input/output error"):
        sync(tmp_path)


def failing(number: int) -> object:
    def fail(_: int) -> None:
        raise OSError(number, os.strerror(number))

    return fail


def test_the_error_of_a_write_names_its_file() -> None:
    full = Path("/dev/full")
    with pytest.raises(OSError, match=r"No space left on device: '/dev/full'"), naming(full):
        full.write_bytes(b"x")
