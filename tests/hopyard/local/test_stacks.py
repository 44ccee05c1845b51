"""A command reaches a stack of this folder or this user, and no other."""

import os
from pathlib import Path

import pytest

from hopyard.api import ask
from hopyard.failures import Unreachable
from hopyard.local.data_folder import StackFile, write_stack_file
from hopyard.local.stacks import folder_of_api, listed, my_folder, my_stack, starting
from shared.runtime.bus.jetstream.connection import Connection

GONE = 2**22 + 1
"""no process has this id"""
NOBODY = 2**31 - 5
"""no account has this id"""


@pytest.fixture(autouse=True)
def _state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def written(folder: Path, port: int = 1, pid: int | None = None) -> StackFile:
    data = folder / ".hopyard"
    data.mkdir(parents=True)
    stack = StackFile(
        api_url=f"http://127.0.0.1:{port}",
        nats_url=f"nats://127.0.0.1:{100 + port}",
        pid=os.getpid() if pid is None else pid,
        pids={},
        ports={},
    )
    write_stack_file(data, stack)
    return stack


def test_a_stack_is_found_from_a_folder_below(tmp_path: Path) -> None:
    stack = written(tmp_path)
    assert my_stack(tmp_path / "a" / "b") == stack


def test_the_stack_file_of_a_killed_stack_is_ignored(tmp_path: Path) -> None:
    written(tmp_path, pid=GONE)
    with pytest.raises(Unreachable, match=r"start one by `hopyard up`, or name one by --api"):
        my_stack(tmp_path)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_stack_of_another_user_further_up_is_ignored(tmp_path: Path) -> None:
    written(tmp_path)
    os.chown(tmp_path / ".hopyard" / "stack.json", 12_345, -1)
    with pytest.raises(Unreachable):
        my_stack(tmp_path / "a")


def test_a_stack_is_found_by_its_address_from_any_folder(tmp_path: Path) -> None:
    stack = written(tmp_path / "one")
    assert folder_of_api(stack.api_url) is None
    with listed(tmp_path / "one" / ".hopyard", print):
        assert folder_of_api(f"{stack.api_url}/") == tmp_path / "one" / ".hopyard"
        assert folder_of_api("http://127.0.0.1:9") is None


def test_the_only_stack_of_a_user_is_found_from_anywhere(tmp_path: Path) -> None:
    stack = written(tmp_path / "one")
    with listed(tmp_path / "one" / ".hopyard", print):
        assert my_stack(tmp_path / "elsewhere") == stack
    with pytest.raises(Unreachable):
        my_stack(tmp_path / "elsewhere")


def test_where_a_stack_has_ended_one_of_another_place_is_not_meant(tmp_path: Path) -> None:
    """A command that was to restart the one restarted the other."""
    stack = written(tmp_path / "one")
    ended = tmp_path / "two" / ".hopyard"
    ended.mkdir(parents=True)
    (ended / "lock").touch()
    other = tmp_path / "one" / ".hopyard"
    with listed(other, print):
        with pytest.raises(Unreachable, match=rf"on {ended} does not run; another of yours runs on {other} "):
            my_stack(tmp_path / "two" / "below")
        assert my_folder(tmp_path / "two", instead="") == ended
        assert my_stack(tmp_path) == stack


def test_a_stack_that_is_not_up_yet_is_not_said_to_have_ended(tmp_path: Path) -> None:
    written(tmp_path / "one")
    begun, other = tmp_path / "two" / ".hopyard", tmp_path / "one" / ".hopyard"
    begun.mkdir(parents=True)
    (begun / "lock").touch()
    entry = tmp_path / "state" / "hopyard" / "stacks" / str(os.getppid())
    with listed(other, print):
        entry.write_bytes(os.fsencode(begun))
        with pytest.raises(
            Unreachable, match=rf"on {begun} is not up yet; another of yours runs on {other} "
        ):
            my_stack(tmp_path / "two")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_where_another_user_s_stack_is_ones_own_elsewhere_is_meant(tmp_path: Path) -> None:
    stack = written(tmp_path / "one")
    shared = tmp_path / "shared" / ".hopyard"
    shared.mkdir(parents=True)
    (shared / "lock").touch()
    os.chown(shared / "lock", 12_345, -1)
    with listed(tmp_path / "one" / ".hopyard", print):
        assert my_stack(tmp_path / "shared" / "below") == stack


@pytest.mark.parametrize("beside", ["mine", "below/.hopyard"])
def test_a_stack_beside_or_below_one_that_has_ended_is_meant(tmp_path: Path, beside: str) -> None:
    (tmp_path / ".hopyard").mkdir()
    (tmp_path / ".hopyard" / "lock").touch()
    stack = written(tmp_path / "elsewhere")
    (tmp_path / beside).parent.mkdir(exist_ok=True)
    (tmp_path / "elsewhere" / ".hopyard").rename(tmp_path / beside)
    with listed(tmp_path / beside, print):
        assert my_stack(tmp_path) == my_stack(tmp_path / "any") == stack


def test_with_several_stacks_no_choice_is_guessed(tmp_path: Path) -> None:
    written(tmp_path / "one", port=1)
    written(tmp_path / "two", port=2)
    entries = tmp_path / "state/hopyard/stacks"
    with listed(tmp_path / "one" / ".hopyard", print):
        (entries / str(GONE)).write_text(str(tmp_path / "two" / ".hopyard"))
        with pytest.raises(Unreachable, match=r"2 stacks of yours run.*one.*:1.*two.*:2"):
            my_stack(tmp_path / "elsewhere")
        assert my_stack(tmp_path / "two").api_url.endswith(":2")


def test_entries_of_stacks_that_are_gone_go(tmp_path: Path) -> None:
    entries = tmp_path / "state/hopyard/stacks"
    entries.mkdir(parents=True)
    (entries / str(GONE)).write_text(str(tmp_path / "gone"))
    with pytest.raises(Unreachable):
        my_stack(tmp_path)
    assert list(entries.iterdir()) == []


def test_the_nats_of_a_stack_is_that_of_the_api_that_was_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A backup had the settings of one stack and the facts of another."""

    async def address(connection: Connection) -> str:
        raise AssertionError(connection)

    monkeypatch.setattr(ask, "CONNECT_TIMEOUT_S", 0.1)
    monkeypatch.delenv("HOPYARD_NATS_URL", raising=False)
    monkeypatch.chdir(tmp_path)
    stack = written(tmp_path / "one", port=1)
    written(tmp_path, port=2)
    with listed(tmp_path / "one" / ".hopyard", print):
        with pytest.raises(Unreachable, match=r"127\.0\.0\.1:101 within"):
            ask.over_nats(address, stack.api_url)
        with pytest.raises(Unreachable, match=r"http://127\.0\.0\.1:9 is not known here: HOPYARD_NATS_URL"):
            ask.over_nats(address, "http://127.0.0.1:9")


def test_a_stack_that_is_still_starting_is_reported_as_such(tmp_path: Path) -> None:
    data = tmp_path / "one" / ".hopyard"
    with listed(data, print):
        assert starting() == [data]
        with pytest.raises(Unreachable, match=rf"the stack on {data} is not up yet"):
            my_stack(tmp_path / "elsewhere")
        written(tmp_path / "one")
        assert starting() == []
    assert starting() == []


def test_a_folder_name_that_is_not_utf_8_is_found(tmp_path: Path) -> None:
    data = tmp_path / os.fsdecode(b"caf\xe9")
    with listed(data, print):
        assert starting() == [data]


@pytest.mark.parametrize(
    ("home", "reason"),
    [
        (None, "this account has no home folder; XDG_STATE_HOME names one for the state of its programs"),
        ("/dev/null", "/dev/null/.local/state/hopyard/stacks: not a directory"),
    ],
)
def test_an_account_without_a_home_has_stacks_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, home: str | None, reason: str
) -> None:
    """As that of a service or in a container: `hopyard up` and `hopyard ps` ended with a traceback."""
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.delenv("HOME", raising=False)
    if home is not None:
        monkeypatch.setenv("HOME", home)
    monkeypatch.setattr(os, "getuid", lambda: NOBODY)
    stack = written(tmp_path)
    said: list[str] = []
    with listed(tmp_path / ".hopyard", said.append):
        assert my_stack(tmp_path) == stack
        with pytest.raises(Unreachable, match="no stack of yours runs"):
            my_stack(tmp_path.parent)
    assert said == [f"commands in other folders will not find this stack: {reason}"]
