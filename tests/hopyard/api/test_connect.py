"""Where a command that goes on for long finds its stack again."""

import os
from pathlib import Path

import pytest

from hopyard.api.connect import patiently, reach
from hopyard.failures import Unreachable
from hopyard.local.data_folder import StackFile, write_stack_file
from schemas.views import PolicyChoice
from tests.hopyard.cli_server import CannedApi, canned_api

NOBODY = "http://127.0.0.1:9"


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    for name in ("HOPYARD_API_URL", "HOPYARD_API_TOKEN", "HOPYARD_API_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "mine" / ".hopyard").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "mine")


def runs(url: str, folder: Path = Path(), **more: int) -> None:
    """A stack whose API has this port, and further instances of admission these."""
    own = StackFile(api_url=url, nats_url="nats://127.0.0.1:1", pid=os.getpid(), pids={}, ports=more)
    write_stack_file(folder / ".hopyard", own)


def token(text: str) -> None:
    (Path(".hopyard") / "credentials").mkdir(exist_ok=True)
    file = Path(".hopyard") / "credentials" / "operator-token"
    file.write_text(text)
    file.chmod(0o600)


def tokens_sent(api: CannedApi) -> list[str]:
    return [headers.get("Authorization", "") for _, _, headers, _ in api.requests]


async def test_a_stack_that_started_again_is_found_at_its_new_port_with_its_token() -> None:
    runs(NOBODY)
    with canned_api() as api:
        api.says("GET /v1/policy", PolicyChoice(policy="sia"))
        async with reach(None) as client:
            with pytest.raises(Unreachable):
                await client.policy()
            runs(api.url)
            token("new")
            assert (await patiently(client.policy)).policy == "sia"
            assert client.url == api.url
        assert tokens_sent(api) == ["Bearer new"]


async def test_another_instance_answers_for_one_that_is_away() -> None:
    with canned_api() as api:
        api.says("GET /v1/policy", PolicyChoice(policy="sia"))
        runs(NOBODY, Path(), **{"admission": 9, "admission-2": int(api.url.rpartition(":")[2])})
        async with reach(None) as client:
            assert (await patiently(client.policy)).policy == "sia"


@pytest.mark.parametrize("given", [None, NOBODY])
async def test_neither_another_folder_s_stack_nor_another_address_than_the_given_one_is_taken(
    tmp_path: Path, given: str | None
) -> None:
    """It would be another cluster, with other jobs of the same ids."""
    runs(NOBODY)
    with canned_api() as api:
        api.says("GET /v1/policy", PolicyChoice(policy="sia"))
        async with reach(given) as client:
            with pytest.raises(Unreachable):
                await client.policy()
            (tmp_path / ".hopyard").mkdir()
            runs(api.url, tmp_path)
            if given is None:
                (Path(".hopyard") / "stack.json").unlink()
            else:
                runs(api.url)
            with pytest.raises(Unreachable, match=NOBODY):
                await patiently(client.policy, 0.0)
        assert api.requests == []
