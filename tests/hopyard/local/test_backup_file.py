"""The file of a backup, whole and damaged."""

import errno
import hashlib
import os
import re
import stat
import sys
import tarfile
from io import BytesIO
from pathlib import Path

import msgspec
import pytest

from hopyard.actions.restore import restore
from hopyard.failures import Failure, Invalid
from hopyard.local import backup_file
from hopyard.local.backup_file import DIGEST, FORMAT, MANIFEST, Manifest, opened
from tests.synced_paths import synced_paths

STORE = b'{"kind":"hopyard-store","version":2}\n'


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    folder, file = tmp_path / "parts", tmp_path / "backup.tar"
    (folder / "streams").mkdir(parents=True)
    (folder / "store.ndjson").write_bytes(STORE)
    (folder / "streams" / "HOPYARD").write_bytes(b"\x00\xff" * 5_000)
    backup_file.write(file, manifest(folder), folder)
    return file


def manifest(folder: Path, form: int = FORMAT) -> Manifest:
    return Manifest(
        format=form,
        hopyard="1",
        made_at=0.0,
        cluster="lab",
        speed=1.0,
        origin=0.0,
        revision=0,
        settings={},
        streams={},
        parts=backup_file.parts_of(folder),
    )


def test_a_backup_is_readable_by_its_owner_only_and_has_a_manifest(whole: Path) -> None:
    assert stat.S_IMODE(whole.stat().st_mode) == 0o600
    with opened(whole) as backup:
        assert backup.manifest.cluster == "lab"
        assert backup.part("store.ndjson").read() == STORE
        assert backup.names("streams") == ["HOPYARD"]


@pytest.mark.skipif(sys.platform != "linux", reason="looks at open files as Linux shows them")
def test_a_backup_outlives_a_power_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "parts"
    folder.mkdir()
    synced = synced_paths(monkeypatch)
    backup_file.write(tmp_path / "backup.tar", manifest(folder), folder)
    assert synced == [folder / backup_file.DRAFT, tmp_path], "the content, then the name"


def test_a_backup_damaged_anywhere_is_refused_by_name_and_not_restored(whole: Path, tmp_path: Path) -> None:
    data = whole.read_bytes()
    with tarfile.open(whole) as tar:
        parts = [(member.offset_data, member.size) for member in tar.getmembers()]
    flipped = [offset + at for offset, size in parts for at in range(0, size, max(size // 7, 1))]
    damaged = [b"", b"\x00" * 2_000, b"garbage" * 500, data[:100], data[: len(data) // 2]]
    damaged += [data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :] for at in flipped]
    for each in damaged:
        whole.write_bytes(each)
        with pytest.raises(Invalid, match=re.escape(str(whole))), opened(whole):
            pass
    whole.write_bytes(data[: len(data) // 2])
    with pytest.raises(Invalid, match="damaged"):
        restore(whole, tmp_path / "new")
    assert not [path for path in tmp_path.iterdir() if "new" in path.name]


def test_a_file_in_the_way_of_the_new_folder_is_no_directory(whole: Path, tmp_path: Path) -> None:
    with pytest.raises(Failure, match=r"backup\.tar/new: not a directory"):
        restore(whole, whole / "new")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["backup.tar", "parts"]


def test_a_backup_of_a_later_form_is_refused_with_both_numbers(whole: Path, tmp_path: Path) -> None:
    folder = tmp_path / "parts"
    backup_file.write(whole, manifest(folder, form=FORMAT + 1), folder)
    with pytest.raises(Invalid, match=f"format {FORMAT + 1}, and this hopyard reads {FORMAT}"), opened(whole):
        pass


def members(*parts: tuple[str, bytes]) -> bytes:
    out = BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, data in parts:
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, BytesIO(data))
    return out.getvalue()


def head_of(folder: Path) -> tuple[tuple[str, bytes], tuple[str, bytes]]:
    head = msgspec.json.encode(manifest(folder))
    return (MANIFEST, head), (DIGEST, hashlib.sha256(head).hexdigest().encode())


def test_a_part_under_another_name_is_not_extracted(whole: Path) -> None:
    whole.write_bytes(members(*head_of(whole.parent / "parts"), ("../../etc/store.ndjson", STORE)))
    with pytest.raises(Invalid, match="not there"), opened(whole):
        pass


@pytest.mark.parametrize("name", [MANIFEST, DIGEST])
def test_the_head_is_read_as_far_as_one_can_go(
    whole: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two of a name the last one counts: a small first one says nothing."""
    monkeypatch.setattr(backup_file, "MANIFEST_MAX_BYTES", 100_000)
    head = head_of(whole.parent / "parts")
    whole.write_bytes(members(*head, (name, b" " * (backup_file.MANIFEST_MAX_BYTES + 1))))
    with pytest.raises(Invalid, match=f"{re.escape(name)} in it is larger than"), opened(whole):
        pass


def large(parts: int) -> Manifest:
    """As if the archive had so many files more."""
    names = (f"archive/observations-{one:012}-{one:012}.parquet" for one in range(parts))
    part = backup_file.BackupPart(size=0, sha256="0" * 64)
    return msgspec.structs.replace(manifest(Path("nowhere")), parts=dict.fromkeys(names, part))


def test_a_backup_of_many_parts_is_refused_when_it_is_written_if_restore_would_refuse_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert len(msgspec.json.encode(large(30_000))) > 4 * 1024 * 1024, "more than restore once took"
    assert len(msgspec.json.encode(large(30_000))) < backup_file.MANIFEST_MAX_BYTES / 10
    monkeypatch.setattr(backup_file, "MANIFEST_MAX_BYTES", 100_000)
    with pytest.raises(Failure, match=r"list of 3000 parts would have \d+ bytes.* takes 100000; nothing was"):
        backup_file.write(tmp_path / "backup.tar", large(3_000), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_sparse_part_is_refused(whole: Path) -> None:
    """A kilobyte of tar stands for a terabyte of zeros."""
    sparse = tarfile.TarInfo(DIGEST)
    sparse.pax_headers = {
        "GNU.sparse.major": "0",
        "GNU.sparse.minor": "1",
        "GNU.sparse.size": str(1 << 40),
        "GNU.sparse.map": f"{1 << 40},0",
        "GNU.sparse.numblocks": "1",
    }
    out = BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for member, data in ((tarfile.TarInfo(MANIFEST), b"{}"), (sparse, b"")):
            member.size = len(data)
            tar.addfile(member, BytesIO(data))
    whole.write_bytes(out.getvalue())
    with tarfile.open(whole) as tar:
        assert tar.getmember(DIGEST).size == 1 << 40, "a plain reader takes it for that"
    with pytest.raises(Invalid, match=f"{DIGEST} is not there"), opened(whole):
        pass


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE])
def test_a_part_that_is_no_file_is_refused(whole: Path, kind: bytes) -> None:
    out = BytesIO(whole.read_bytes())
    with tarfile.open(fileobj=out, mode="a") as tar:
        link = tarfile.TarInfo("store.ndjson")
        link.type, link.linkname = kind, "store.ndjson"
        tar.addfile(link)
    whole.write_bytes(out.getvalue())
    with pytest.raises(Invalid, match=r"store\.ndjson"), opened(whole):
        pass


def test_a_folder_that_cannot_be_made_is_named(whole: Path) -> None:
    with pytest.raises(Failure, match=r"^/proc/nowhere: "):
        restore(whole, Path("/proc/nowhere"))


def test_two_backups_to_one_file_do_not_meddle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second took the first's draft away, or the first put the second's unfinished one in place."""
    folders = [tmp_path / "one", tmp_path / "other"]
    for folder in folders:
        folder.mkdir()
        (folder / "store.ndjson").write_bytes(STORE)
    target, sync = tmp_path / "backup.tar", os.fsync

    def other_fails_meanwhile(file: int) -> None:
        monkeypatch.setattr(os, "fsync", fail)
        with pytest.raises(Failure, match="nothing was written"):
            backup_file.write(target, manifest(folders[1]), folders[1])
        monkeypatch.setattr(os, "fsync", sync)
        sync(file)

    def fail(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", other_fails_meanwhile)
    backup_file.write(target, manifest(folders[0]), folders[0])
    with opened(target) as backup:
        assert backup.part("store.ndjson").read() == STORE
