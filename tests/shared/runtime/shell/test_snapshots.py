"""What a service's next life reads is what the last one packed, or an error says that it cannot be read."""

import subprocess
import sys

import msgspec
import pytest

from services.admission.state import AdmissionState
from shared.runtime.shell.snapshots import UnreadableSnapshot, packed, unpacked


class Now(msgspec.Struct):
    seen: list[str]


class Later(msgspec.Struct):
    seen: int


BLOB = packed(7, Now(["a", "b"]), iter(["id-1", "id-2"]))


def test_a_packed_snapshot_is_unpacked() -> None:
    assert unpacked(BLOB, Now) == (7, Now(["a", "b"]), ["id-1", "id-2"])


@pytest.mark.parametrize(("facts", "share"), [(100, 1.0), (100_000, 0.5)])
def test_only_a_large_snapshot_is_compressed_and_either_is_read(facts: int, share: float) -> None:
    now, ids = Now(["a" * 10] * facts), [f"id-{number}" for number in range(facts)]
    plain = sum(map(len, [*now.seen, *ids]))
    blob = packed(7, now, ids)
    assert (len(blob) > plain) == (share == 1.0)
    assert len(blob) < plain * share + 2_000
    assert unpacked(blob, Now) == (7, now, ids)


@pytest.mark.parametrize("blob", [b"", b"garbage", BLOB[:-4], packed(7, 1, [])])
def test_a_damaged_snapshot_cannot_be_read(blob: bytes) -> None:
    with pytest.raises(UnreadableSnapshot):
        unpacked(blob, Now)


def test_the_state_of_another_version_cannot_be_read() -> None:
    with pytest.raises(UnreadableSnapshot, match="other fields"):
        unpacked(BLOB, Later)


def test_a_renamed_field_is_not_read_as_an_absent_one() -> None:
    class Renamed(msgspec.Struct):
        heard: list[str] = []

    with pytest.raises(UnreadableSnapshot, match="other fields"):
        unpacked(BLOB, Renamed)


def test_a_process_reads_a_snapshot_of_another_process_of_its_version() -> None:
    """A computed default is a function, which every process has elsewhere."""
    program = (
        "import sys\n"
        "from services.admission.state import AdmissionState\n"
        "from shared.runtime.shell.snapshots import packed\n"
        "sys.stdout.buffer.write(packed(7, AdmissionState(), ()))"
    )
    blob = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True).stdout
    assert unpacked(blob, AdmissionState) == (7, AdmissionState(), [])
