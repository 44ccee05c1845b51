import os
import stat
import sys
from pathlib import Path

import pytest

from shared.runtime import owner_only
from tests.synced_paths import synced_paths


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_written_file_is_its_owners_alone_even_over_an_open_one(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.touch(mode=0o644)
    owner_only.write(path, b"sesame")
    assert (mode_of(path), path.read_bytes()) == (0o600, b"sesame")
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_is_taken_from_others(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir(mode=0o755)
    owner_only.make_folder(folder, owner_only.PASSED)
    assert mode_of(folder) == 0o711
    owner_only.make_folder(folder)
    assert mode_of(folder) == 0o700


@pytest.mark.parametrize("mode", [0o604, 0o602, 0o620, 0o644])
def test_a_secret_that_others_can_reach_is_not_read(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "secret"
    owner_only.write(path, b"sesame")
    path.chmod(mode)
    with pytest.raises(owner_only.Exposed, match="chmod 600"):
        owner_only.read_secret(path)


def test_a_secret_of_ones_own_or_ones_group_is_read(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    owner_only.write(path, b"sesame")
    for mode in (0o600, 0o400, 0o440):
        path.chmod(mode)
        assert owner_only.read_secret(path) == b"sesame"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_folder_of_another_account_is_no_place_for_secrets(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    os.chown(folder, 4711, 4711)
    with pytest.raises(owner_only.Exposed, match="another account"):
        owner_only.make_folder(folder)


def test_an_error_names_the_file_that_is_not_written(tmp_path: Path) -> None:
    """And not its draft, of which nobody knows, or no file at all, as where a disk is full."""
    (tmp_path / "folder" / "in the way").mkdir(parents=True)
    with pytest.raises(OSError, match="folder") as refused:
        owner_only.write(tmp_path / "folder", b"sesame")
    assert refused.value.filename == str(tmp_path / "folder")


@pytest.mark.skipif(sys.platform != "linux", reason="looks at open files as Linux shows them")
def test_a_written_file_outlives_a_power_cut_unless_it_need_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its content is on the disk before it has its name, and then its name."""
    synced = synced_paths(monkeypatch)
    owner_only.write(tmp_path / "passing", b"sesame", lasting=False)
    assert synced == []
    owner_only.write(tmp_path / "secret", b"sesame")
    draft, folder = synced
    assert (draft.parent, draft.name.rpartition(".")[0], folder) == (tmp_path, ".secret", tmp_path)
