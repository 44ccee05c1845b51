"""Of each job the newest whole checkpoint goes into a backup, and comes out of it as it was."""

import os
import re
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from hopyard.actions.checkpoints import (
    IN_JOB,
    NAME,
    CheckpointsTaken,
    WantedCheckpoints,
    check_room,
    copy_all,
    restore_all,
)
from hopyard.failures import Failure, Invalid
from hopyard.local import backup_file
from hopyard.local.backup_file import CHECKPOINTS, FORMAT, Manifest
from schemas.ids import JobId
from shared.runtime import owner_only
from tests.paths import ROOT

A, B = JobId("a-1"), JobId("b-2")


def saved(jobs: Path, job: JobId, samples: int, data: bytes) -> Path:
    folder = jobs / job / IN_JOB
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{samples:015}-{zlib.crc32(data):08x}.pt"
    path.write_bytes(data)
    return path


def of(jobs: Path, bytes_max: int = 10_000) -> WantedCheckpoints:
    return WantedCheckpoints(folder=jobs, jobs=(A, B), elsewhere=(), bytes_max=bytes_max)


def names(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def kept_in(tmp_path: Path, copies: Path) -> Path:
    """A backup of nothing else."""
    manifest = Manifest(
        format=FORMAT,
        hopyard="1",
        made_at=0.0,
        cluster="c",
        speed=1.0,
        origin=0.0,
        revision=0,
        settings={},
        streams={},
        parts=backup_file.parts_of(copies),
    )
    backup_file.write(tmp_path / "backup.tar", manifest, copies)
    return tmp_path / "backup.tar"


def test_the_newest_of_each_job_comes_back_as_it_was(tmp_path: Path) -> None:
    jobs, copies = tmp_path / "jobs", tmp_path / "copies"
    saved(jobs, A, 100, b"old")
    newest = {A: saved(jobs, A, 200, b"new"), B: saved(jobs, B, 50, b"b's")}
    (jobs / A / IN_JOB / "000000000000300.part").write_bytes(b"half")
    assert check_room(of(jobs), tmp_path / "backup.tar").startswith("checkpoints of 2 jobs")
    assert copy_all(of(jobs), copies / CHECKPOINTS) == CheckpointsTaken(2, ())
    with backup_file.opened(kept_in(tmp_path, copies)) as backup, owner_only.alone():
        assert restore_all(backup, tmp_path / "again") == 2
    with_accounts = os.geteuid() == 0
    assert (tmp_path / "again").stat().st_mode & 0o777 == (0o711 if with_accounts else 0o700)
    for job, path in newest.items():
        assert names(tmp_path / "again" / job) == [f"{IN_JOB}/{path.name}"]
        assert (tmp_path / "again" / job / IN_JOB / path.name).read_bytes() == path.read_bytes()


def test_a_damaged_one_is_passed_over_for_the_one_before(tmp_path: Path) -> None:
    older, newer = saved(tmp_path, A, 100, b"old"), saved(tmp_path, A, 200, b"new")
    newer.write_bytes(b"nev")
    saved(tmp_path, B, 100, b"b").write_bytes(b"c")
    assert copy_all(of(tmp_path), tmp_path / "copies") == CheckpointsTaken(1, (B,))
    assert names(tmp_path / "copies") == [f"{A}/{older.name}"]


def link(path: Path, secret: Path) -> None:
    path.unlink()
    path.symlink_to(secret)


def pipe(path: Path, _: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def linked_folder(path: Path, _: Path) -> None:
    path.parent.rename(path.parent.with_name("others"))
    path.parent.symlink_to("others")


@pytest.mark.parametrize("trick", [link, pipe, linked_folder])
def test_files_that_do_not_belong_to_the_job_are_not_read(
    tmp_path: Path, trick: Callable[[Path, Path], None]
) -> None:
    """A job's account may put anything there, and the account that makes backups may read more."""
    secret = tmp_path / "secret"
    secret.write_bytes(b"secret")
    trick(saved(tmp_path, A, 100, b"secret"), secret)
    assert copy_all(of(tmp_path), tmp_path / "copies") == CheckpointsTaken(0, (A,))
    assert names(tmp_path / "copies") == []


def test_more_than_is_allowed_is_refused_before_it_is_read(tmp_path: Path) -> None:
    saved(tmp_path, A, 100, bytes(60))
    saved(tmp_path, B, 100, bytes(60))
    with pytest.raises(Failure, match="checkpoints of 2 jobs, 120 B: more than 100 B"):
        check_room(of(tmp_path, 100), tmp_path / "backup.tar")
    with pytest.raises(Failure, match="grown beyond"):
        copy_all(of(tmp_path, 100), tmp_path / "copies")


def test_a_checkpoint_damaged_in_the_backup_is_refused(tmp_path: Path) -> None:
    saved(tmp_path, A, 100, b"all of its state")
    copy_all(of(tmp_path), tmp_path / "copies" / CHECKPOINTS)
    file = kept_in(tmp_path, tmp_path / "copies")
    file.write_bytes(file.read_bytes().replace(b"all of its", b"all of itz"))
    with pytest.raises(Invalid, match="is not what was written"), backup_file.opened(file):
        pass


@pytest.mark.parametrize("name", ["../000000000000100-00000000.pt", "a-1/passwd", "a-1/../../x.pt"])
def test_no_other_file_comes_out_of_a_backup(tmp_path: Path, name: str) -> None:
    class Odd:
        def names(self, _: str) -> list[str]:
            return [name]

    with pytest.raises(Invalid, match="no checkpoint has such a name"):
        restore_all(Odd(), tmp_path / "jobs")  # type: ignore[arg-type]
    assert names(tmp_path) == []


def test_the_names_are_those_that_the_plug_in_writes() -> None:
    """The plug-in is no import of ours: jobs run it."""
    written = (ROOT / "hopjob" / "state" / "checkpoints.py").read_text()
    theirs = re.search(r'^NAME = re\.compile\(r"(.*)"\)$', written, re.MULTILINE)
    assert theirs is not None
    assert theirs[1].replace("(", "").replace(")", "") == re.sub(r"\(\?P<crc>|\(|\)", "", NAME.pattern)
