"""The file of tokens, as it is read at every request."""

import time
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from schemas.tokens import Role
from shared.runtime import owner_only
from shared.runtime.tokens import Keyring, change_tokens, issued


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "tokens.json"


def made(file: Path) -> str:
    token, entry = issued(Role.VIEWER, user="ada", now=time.time())
    change_tokens(file, lambda there: (*there, entry))
    return token


def test_a_file_that_was_opened_to_others_counts_again_once_it_is_closed(file: Path) -> None:
    token, keyring = made(file), Keyring(str(file))
    for mode, counts in ((0o600, True), (0o666, False), (0o600, True), (0o604, False), (0o440, True)):
        file.chmod(mode)
        assert (keyring.holder(token, time.time()) is not None) is counts, oct(mode)


def test_a_token_is_added_to_the_file_that_a_link_leads_to(file: Path, tmp_path: Path) -> None:
    """The link became a file of its own: who reads the other one accepted what was revoked here."""
    link = tmp_path / "link.json"
    link.symlink_to(file)
    old, new, keyring = made(file), made(link), Keyring(str(file))
    assert link.is_symlink()
    assert all(keyring.holder(token, time.time()) for token in (old, new))
    change_tokens(link, lambda _: ())
    assert keyring.holder(new, time.time()) is None


def test_a_token_file_is_read_again_after_a_failed_read(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    token, keyring = made(file), Keyring(str(file))

    def fails(_: Path) -> bytes:
        raise OSError("too many open files")

    with monkeypatch.context() as patch, capture_logs() as logs:
        patch.setattr(owner_only, "read_secret", fails)
        for _ in range(3):
            assert keyring.holder(token, time.time()) is None
    assert [each["reason"] for each in logs] == ["too many open files"], "it is said once"
    assert keyring.holder(token, time.time()) is not None


def test_a_token_file_that_appears_or_disappears_is_noticed(file: Path) -> None:
    keyring = Keyring(str(file))
    assert keyring.empty()
    token = made(file)
    assert keyring.holder(token, time.time()) is not None
    file.unlink()
    assert keyring.holder(token, time.time()) is None
