import stat
import time
from pathlib import Path

import pytest

from hopyard.api.connect import token_for
from hopyard.failures import Invalid
from hopyard.local.credentials import (
    ensure_tokens,
    folder_of,
    own_token,
    page_link,
    this_user,
    token_in,
    tokens_of,
)
from hopyard.local.stacks import listed
from schemas.tokens import Role
from shared.runtime.tokens import Keyring, change_tokens, read_tokens
from tests.hopyard.local.test_stacks import written


@pytest.fixture(autouse=True)
def _alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    for name in ("HOPYARD_API_TOKEN", "HOPYARD_API_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)


def test_a_stack_has_tokens_of_its_own_that_its_owner_alone_can_read(tmp_path: Path) -> None:
    ensure_tokens(tmp_path)
    keyring = Keyring(str(tokens_of(tmp_path)))
    for role in (Role.OPERATOR, Role.VIEWER):
        holder = keyring.holder(own_token(tmp_path, role), time.time())
        assert holder is not None
        assert (holder.role, holder.user) == (role, this_user())
    folder = folder_of(tmp_path)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}


def test_no_token_is_stored_where_it_is_checked(tmp_path: Path) -> None:
    ensure_tokens(tmp_path)
    stored = tokens_of(tmp_path).read_text()
    assert own_token(tmp_path) not in stored
    assert own_token(tmp_path).split("_", 2)[2] not in stored


def test_tokens_stay_from_start_to_start_until_they_are_revoked(tmp_path: Path) -> None:
    ensure_tokens(tmp_path)
    first = own_token(tmp_path)
    ensure_tokens(tmp_path)
    assert own_token(tmp_path) == first
    change_tokens(tokens_of(tmp_path), lambda _: ())
    ensure_tokens(tmp_path)
    assert own_token(tmp_path) != first
    assert len(read_tokens(tokens_of(tmp_path))) == 2


def test_a_token_that_others_can_read_is_not_used(tmp_path: Path) -> None:
    ensure_tokens(tmp_path)
    (folder_of(tmp_path) / "operator-token").chmod(0o644)
    with pytest.raises(Invalid, match="chmod 600"):
        own_token(tmp_path)


def test_the_token_of_a_stack_is_sent_only_to_its_address(tmp_path: Path) -> None:
    stack = written(tmp_path / "one")
    data = tmp_path / "one" / ".hopyard"
    ensure_tokens(data)
    assert token_for(stack.api_url) == ""
    with listed(data, print):
        assert token_for(stack.api_url) == token_for(stack.api_url + "/") == own_token(data)
        assert token_for("http://127.0.0.1:11") == ""
        assert token_for("https://cluster.example") == ""


def test_a_token_of_the_environment_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "token"
    file.write_text("of a file\n")
    file.chmod(0o600)
    monkeypatch.setenv("HOPYARD_API_TOKEN_FILE", str(file))
    assert token_for("http://anywhere") == token_in(file) == "of a file"
    monkeypatch.setenv("HOPYARD_API_TOKEN", "of a variable")
    assert token_for("http://anywhere") == "of a variable"
    monkeypatch.setenv("HOPYARD_API_TOKEN", "")
    file.unlink()
    with pytest.raises(Invalid, match="no such file"):
        token_for("http://anywhere")


@pytest.mark.parametrize("token", ["a secret\r\nX: y", "a secret \u2603", "a secret\x00"])
def test_a_token_that_no_request_can_hold_is_refused_and_not_shown(
    token: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The token was shown, in an error by which the API could not be reached."""
    file = tmp_path / "token"
    file.write_text(token)
    file.chmod(0o600)
    monkeypatch.setenv("HOPYARD_API_TOKEN_FILE", str(file))
    with pytest.raises(Invalid, match=f"^{file} holds a character that no token has$"):
        token_for("http://anywhere")
    if "\x00" not in token:
        monkeypatch.setenv("HOPYARD_API_TOKEN", token)
        with pytest.raises(Invalid, match=r"^HOPYARD_API_TOKEN holds a character that no token has$"):
            token_for("http://anywhere")


def test_white_space_around_a_token_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOPYARD_API_TOKEN", "a-token\r\n")
    assert token_for("http://anywhere") == "a-token"


def test_the_page_is_opened_with_a_viewer_s_token(tmp_path: Path) -> None:
    ensure_tokens(tmp_path)
    address, token = page_link("http://127.0.0.1:1", tmp_path).split("/#token=")
    holder = Keyring(str(tokens_of(tmp_path))).holder(token, time.time())
    assert address == "http://127.0.0.1:1"
    assert holder is not None
    assert holder.role is Role.VIEWER
