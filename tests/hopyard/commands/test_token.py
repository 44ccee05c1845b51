import json
import stat
import time
import webbrowser
from pathlib import Path

import pytest

from hopyard.local.credentials import ensure_tokens, own_token, token_in
from hopyard.local.stacks import listed
from schemas.tokens import Role
from shared.runtime.tokens import Keyring
from tests.hopyard.cli_line import Hopyard
from tests.hopyard.local.test_stacks import written

YEAR_S = 365 * 86_400.0


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "etc" / "tokens.json"


def test_a_token_is_made_shown_once_listed_and_revoked(hopyard: Hopyard, file: Path) -> None:
    made = hopyard("token", "create", "--user", "ada", "--note", "laptop", "--file", str(file))
    token = made.out.strip()
    assert (made.code, made.out) == (0, f"{token}\n")
    assert token not in made.err
    holder = Keyring(str(file)).holder(token, time.time())
    assert holder is not None
    assert (holder.role, holder.user) == (Role.SUBMITTER, "ada")
    assert Keyring(str(file)).holder(token, time.time() + YEAR_S) is None

    listed = hopyard("token", "list", "--file", str(file))
    assert holder.token_id in listed.out
    assert "laptop" in listed.out
    shown = json.loads(hopyard("token", "list", "--json", "--file", str(file)).out)
    assert [each["token_id"] for each in shown] == [holder.token_id]
    for out in (listed.out, json.dumps(shown), file.read_text()):
        assert token.split("_", 2)[2] not in out

    assert hopyard("token", "revoke", holder.token_id, "--file", str(file)).code == 0
    assert Keyring(str(file)).holder(token, time.time()) is None
    again = hopyard("token", "revoke", holder.token_id, "--file", str(file))
    assert again.code == 1
    assert "has no token" in again.err


def test_the_file_of_tokens_is_its_owners_alone(hopyard: Hopyard, file: Path) -> None:
    hopyard("token", "create", "--role", "viewer", "--file", str(file))
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700


def test_an_existing_folder_keeps_its_permissions(hopyard: Hopyard, file: Path) -> None:
    file.parent.mkdir(mode=0o755)
    hopyard("token", "create", "--role", "viewer", "--file", str(file))
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o755


def test_a_submitter_token_needs_a_user(hopyard: Hopyard, file: Path) -> None:
    refused = hopyard("token", "create", "--file", str(file))
    assert refused.code == 2
    assert "--user" in refused.err
    assert not file.exists()


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--user", "ada\n"),
        ("--user", "a\tb"),
        ("--user", "x" * 101),
        ("--note", "x" * 201),
        ("--note", "laptop\n3f2a9c01  operator  root"),
        ("--project", "No Project"),
        ("--project", "lab-"),
    ],
)
def test_a_value_that_could_not_be_read_or_that_no_job_can_have_makes_no_token(
    hopyard: Hopyard, file: Path, option: str, value: str
) -> None:
    refused = hopyard("token", "create", "--role", "operator", option, value, "--file", str(file))
    assert refused.code == 2
    assert f"{option}: it must be" in refused.err
    assert not file.exists()


@pytest.mark.parametrize("days", ["3000000", "1e8", "1e300", "inf", "nan", "-1"])
def test_days_of_no_calendar_make_no_token(hopyard: Hopyard, file: Path, days: str) -> None:
    refused = hopyard("token", "create", "--user", "ada", "--file", str(file), "--days", days)
    assert refused.code == 2
    assert "--days" in refused.err
    assert not file.exists()


@pytest.mark.parametrize("at", [1e12, 1e300])
def test_a_token_that_expires_beyond_the_calendar_is_listed_and_revoked(
    hopyard: Hopyard, file: Path, at: float
) -> None:
    hopyard("token", "create", "--role", "viewer", "--file", str(file))
    [entry] = json.loads(file.read_text())["tokens"]
    file.write_text(json.dumps({"tokens": [entry | {"expires_at": at}]}))
    assert "beyond the calendar" in hopyard("token", "list", "--file", str(file)).out
    assert hopyard("token", "revoke", entry["token_id"], "--file", str(file)).code == 0


def test_a_token_of_an_earlier_version_is_listed_on_one_line(hopyard: Hopyard, file: Path) -> None:
    hopyard("token", "create", "--role", "viewer", "--file", str(file))
    [entry] = json.loads(file.read_text())["tokens"]
    older = {"note": "laptop\n3f2a9c01\x1b[31m", "project": "No Project"}
    file.write_text(json.dumps({"tokens": [entry | older]}))
    _, line = hopyard("token", "list", "--file", str(file)).out.splitlines()
    assert line.endswith("laptop 3f2a9c01[31m")
    assert "No Project" in line


@pytest.mark.parametrize("words", [("list",), ("revoke", "x")])
def test_a_file_that_is_not_there_has_no_tokens(
    hopyard: Hopyard, tmp_path: Path, words: tuple[str, ...]
) -> None:
    file = tmp_path / "missing.json"
    ran = hopyard("token", *words, "--file", str(file))
    assert (ran.code, ran.err) == (2, f"hopyard: {file}: no such file\n")


def test_a_damaged_file_is_named_and_left_alone(hopyard: Hopyard, file: Path) -> None:
    file.parent.mkdir()
    file.write_text("{")
    file.chmod(0o600)
    for words in (("list",), ("create", "--role", "viewer"), ("revoke", "x")):
        ran = hopyard("token", *words, "--file", str(file))
        assert ran.code == 1
        assert str(file) in ran.err
        assert ran.err.count("\n") == 1
    assert file.read_text() == "{"


def test_without_a_stack_and_a_file_the_error_says_what_is_missing(hopyard: Hopyard) -> None:
    for words in (("token", "list"), ("page",)):
        ran = hopyard(*words)
        assert ran.code == 3
        assert "hopyard up" in ran.err


def test_a_token_goes_into_a_file_that_commands_then_take(
    hopyard: Hopyard, file: Path, tmp_path: Path
) -> None:
    out = tmp_path / "ada.token"
    ran = hopyard("token", "create", "--user", "ada", "--file", str(file), "--out", str(out))
    token = token_in(out)
    assert (ran.code, ran.out) == (0, "")
    assert token not in ran.err
    assert Keyring(str(file)).holder(token, time.time()) is not None
    shown = hopyard("token", "create", "--user", "ada", "--file", str(file), "--out", str(out), "--json")
    assert json.loads(shown.out)["token"] == ""


def test_a_token_that_cannot_be_stored_is_not_created(hopyard: Hopyard, file: Path, tmp_path: Path) -> None:
    taken = tmp_path / ("n" * 250)  # the draft beside it has a name that is too long
    ran = hopyard("token", "create", "--user", "ada", "--file", str(file), "--out", str(taken))
    assert (ran.code, "no token is made" in ran.err) == (1, True)
    assert len(ran.err.splitlines()) == 1, "it said first that the token is in the file"
    assert json.loads(hopyard("token", "list", "--json", "--file", str(file)).out) == []


def test_the_page_is_opened_without_its_token_on_a_command_line(
    hopyard: Hopyard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []

    def browser(url: str) -> bool:
        opened.append(url)
        return True

    monkeypatch.setattr(webbrowser, "open", browser)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    stack = written(tmp_path / "one")
    data = tmp_path / "one" / ".hopyard"
    ensure_tokens(data)
    with listed(data, print):
        monkeypatch.chdir(tmp_path / "one")
        link = hopyard("page").out.strip()
        ran = hopyard("page", "--open")
    assert link == f"{stack.api_url}/#token={own_token(data, Role.VIEWER)}"
    assert (ran.code, ran.out) == (0, "")
    [url] = opened
    page = Path(url.removeprefix("file://"))
    assert "token=" not in url
    assert f"url={link}" in page.read_text()
    assert stat.S_IMODE(page.stat().st_mode) == 0o600
