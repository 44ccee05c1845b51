"""What `hopyard agent` would run with, and what it refuses."""

from pathlib import Path

import pytest

from hopyard.actions.join import environment, join
from hopyard.actions.up import listening
from hopyard.failures import Failure, Invalid, Unreachable
from hopyard.local.accounts import admitted, ensure_accounts
from hopyard.local.credentials import OPERATOR, account_of
from hopyard.local.stack_settings import Listen

NATS = {"nats_url": "nats://head:4222"}


def test_an_agent_stands_for_its_machine_and_starts_processes() -> None:
    assert environment({"XDG_STATE_HOME": "/state"}, NATS) == {
        "XDG_STATE_HOME": "/state",
        "HOPYARD_OUTPUT_FOLDER": "/state/hopyard/output",
        "HOPYARD_NODES": "this-machine",
        "HOPYARD_RUNNER": "process",
        "HOPYARD_NATS_URL": "nats://head:4222",
    }


def test_on_a_terminal_its_log_is_for_people(monkeypatch: pytest.MonkeyPatch) -> None:
    home = {"XDG_STATE_HOME": "/state"}
    assert "HOPYARD_LOG_FORMAT" not in environment(home, NATS)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    assert environment(home, NATS)["HOPYARD_LOG_FORMAT"] == "console"
    chosen = environment({**home, "HOPYARD_LOG_FORMAT": "json"}, NATS)
    assert chosen["HOPYARD_LOG_FORMAT"] == "json"


def test_the_environment_and_a_settings_file_choose_otherwise(tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text("runner: emulated\nnats_url: nats://other:4222\noutput_folder: /logs\n")
    environ = {"HOPYARD_SETTINGS": str(file), "HOPYARD_NODES": "cluster-file"}
    assert environment(environ, {}) == environ


def test_without_a_stack_an_address_to_join_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    with pytest.raises(Unreachable, match="name one by --join nats://HOST:4222"):
        environment({}, {})


def test_a_setting_that_there_is_not_is_named() -> None:
    with pytest.raises(Invalid, match="no such setting"):
        environment({"HOPYARD_RUNER": "process"}, NATS)


def test_the_account_of_another_node_or_of_a_service_is_refused(tmp_path: Path) -> None:
    """Such an agent waited for ever: `every node has an agent, waiting for one to leave`."""
    ensure_accounts(tmp_path)
    file = admitted(tmp_path, "gpu-1")
    given = {
        "nats_url": "nats://127.0.0.1:1",
        "gpus": "cpu:1",
        "node": "gpu-2",
        "nats_credentials": str(file),
    }
    with pytest.raises(
        Failure, match=r"has the account of node gpu-1, and this one is called gpu-2: .* admit"
    ):
        join(given, print)
    operator = str(account_of(tmp_path, OPERATOR))
    with pytest.raises(Failure, match="has the account operator, which is no node's"):
        join(given | {"nats_credentials": operator}, print)


@pytest.mark.parametrize("text", ["4222", "host:", ":4222", "host:x", "host:0", "host:65536", "host:٤٢"])
def test_an_address_to_listen_on_is_a_host_and_a_port(text: str) -> None:
    with pytest.raises(Invalid, match="HOST:PORT"):
        listening(text)


def test_nats_may_listen_on_any_address_since_it_authenticates() -> None:
    assert listening("127.0.0.1:4222") == Listen(host="127.0.0.1", port=4222)
    assert listening("[::1]:4222").host == "::1"
    assert listening("0.0.0.0:4222").host == "0.0.0.0"
