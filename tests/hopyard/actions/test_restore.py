"""What a restored stack has of the one that was backed up, beside what NATS and the estimator hold."""

import asyncio
import sys
from pathlib import Path

import msgspec
import pytest

from hopyard.actions.backup import copy_files
from hopyard.actions.restore import SETTINGS, Restored, restore
from hopyard.failures import Invalid
from hopyard.local import backup_file
from hopyard.local.accounts import admitted, expel, is_expelled
from hopyard.local.backup_file import FILES, STREAMS, StreamPart
from hopyard.local.offline_nats import offline_nats
from schemas.views import SettingsView, SettingView
from shared.runtime.bus.jetstream import streams
from shared.runtime.bus.jetstream.copies import copy_stream
from shared.runtime.bus.jetstream.streams import STATE_STREAM
from tests.hopyard.local.test_backup_file import STORE, manifest
from tests.synced_paths import synced_paths

LIMIT_S = 60.0
CLUSTER = {"cluster": "/data/cluster.json"}


class Made:
    """A stack of next to nothing."""

    def __init__(self, folder: Path, state: StreamPart) -> None:
        self.data, self.parts, self._file = folder / "data", folder / "parts", folder / "backup.tar"
        self._state = state
        self.data.mkdir()

    def again(self, in_force: dict[str, str] = CLUSTER, chosen: dict[str, str] | None = None) -> Restored:
        """Back it up with these settings, and restore it."""
        copy_files(self.data, self.parts / FILES, in_force_of(in_force))
        (self.parts / "store.ndjson").write_bytes(STORE)
        head = msgspec.structs.replace(
            manifest(self.parts), settings=chosen or {}, streams={STATE_STREAM: self._state}
        )
        backup_file.write(self._file, head, self.parts)
        return restore(self._file, self.data.parent / "new")


def in_force_of(values: dict[str, str]) -> SettingsView:
    shown = (
        SettingView(name=name, value=value, default="", source="", doc="") for name, value in values.items()
    )
    return SettingsView(settings=tuple(shown))


@pytest.fixture
def made(tmp_path: Path) -> Made:
    (parts := tmp_path / "parts" / STREAMS).mkdir(parents=True)
    return Made(tmp_path, asyncio.run(state_copied(tmp_path / "first", parts)))


async def state_copied(data: Path, into: Path) -> StreamPart:
    async with offline_nats(data) as connection:
        await streams.ensure(connection, LIMIT_S)
        with (into / STATE_STREAM).open("wb") as out:
            copy = await copy_stream(connection, STATE_STREAM, out)
    return StreamPart(config=copy.config, state=copy.state)


def test_a_node_that_was_expelled_is_not_let_in_again(made: Made) -> None:
    for node in ("titan-0", "titan-1"):
        admitted(made.data, node)
    expel(made.data, "titan-0")
    new = Path(made.again().data)
    assert [is_expelled(new, node) for node in ("titan-0", "titan-1")] == [True, False]


def test_a_stack_has_no_archive_if_the_first_had_none(made: Made) -> None:
    """It may have dropped facts, of which no other archive has any."""
    new = Path(made.again(chosen={"archive": "", "policy": "fifo"}).data)
    assert msgspec.json.decode((new / SETTINGS).read_bytes()) == {"archive": "", "policy": "fifo"}


def test_an_archive_elsewhere_is_replaced_by_one_in_the_new_folder(made: Made) -> None:
    new = Path(made.again(chosen={"archive": "/srv/archive", "policy": "fifo"}).data)
    assert msgspec.json.decode((new / SETTINGS).read_bytes()) == {"policy": "fifo"}


@pytest.mark.parametrize(
    ("in_force", "start"), [(CLUSTER, "--cluster"), ({"cluster": ""}, "--listen HOST:PORT")]
)
def test_a_cluster_file_that_the_stack_no_longer_uses_is_left_behind(
    made: Made, in_force: dict[str, str], start: str
) -> None:
    """As of a start before, by a version that left it there: emulated nodes would stand in for real ones."""
    (made.data / "cluster.json").write_bytes(b"{}")
    assert start in made.again(in_force).start


@pytest.mark.parametrize("name", ["nats/agent-titan-0.json", "agent.expelled", "nats/agent.expelled/x"])
def test_no_other_file_of_credentials_is_restored(made: Made, name: str) -> None:
    file = made.parts / FILES / "credentials" / name
    file.parent.mkdir(parents=True)
    file.touch()
    with pytest.raises(Invalid, match="no stack has such a file"):
        made.again()


@pytest.mark.skipif(sys.platform != "linux", reason="looks at open files as Linux shows them")
def test_a_restored_folder_outlives_a_power_cut(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    synced = synced_paths(monkeypatch)
    new = Path(made.again().data)
    draft, parent = synced[-2:]
    assert (draft.parent, draft.name.startswith(".new-"), parent) == (new.parent, True, new.parent)
