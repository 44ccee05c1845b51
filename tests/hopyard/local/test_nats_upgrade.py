"""A NATS that an earlier version started allows what either version needs, and the server takes it."""

import asyncio
import os
from pathlib import Path

import msgspec
import pytest

from hopyard.failures import Failure
from hopyard.local.accounts import accounts_in, ensure_accounts
from hopyard.local.credentials import account_of
from hopyard.local.nats_upgrade import merged, widen_permissions
from schemas.ids import NodeId
from shared.runtime.bus.accounts import NatsUser, inbox_of
from shared.runtime.bus.jetstream.patched_client import PatchedClient
from shared.runtime.process.nats_server import NatsServer

LIMIT_S = 60.0
NEW = "hopyard.service.planner.led"
"""what the planner of the earlier version might not say"""


def of_earlier_version(data: Path) -> list[NatsUser]:
    return [
        msgspec.structs.replace(
            user,
            permissions=msgspec.structs.replace(
                user.permissions, publish=tuple(one for one in user.permissions.publish if one != NEW)
            ),
        )
        for user in accounts_in(data)
    ]


async def refused(server: NatsServer, data: Path) -> bool:
    """Whether the planner may not say what is new."""
    own = msgspec.json.decode(account_of(data, "planner").read_bytes(), type=dict[str, str])
    errors: list[str] = []

    async def note(error: Exception) -> None:
        errors.append(str(error))

    connection = PatchedClient()
    await connection.connect(
        server.url,
        user=own["user"],
        password=own["password"],
        inbox_prefix=inbox_of("planner").encode(),
        error_cb=note,
    )
    try:
        await connection.publish(NEW, b"")
        async with asyncio.timeout(LIMIT_S):
            await connection.flush()
    finally:
        await connection.close()
    return any("permissions violation" in error.lower() for error in errors)


async def test_a_running_server_allows_what_the_installed_version_needs(tmp_path: Path) -> None:
    ensure_accounts(tmp_path, [NodeId("n1")])
    server = NatsServer(tmp_path / "nats", accounts=lambda: of_earlier_version(tmp_path))
    await server.start()
    try:
        assert await refused(server, tmp_path)
        assert await asyncio.to_thread(widen_permissions, tmp_path, os.getpid())
        assert not await refused(server, tmp_path)
        assert not await asyncio.to_thread(widen_permissions, tmp_path, os.getpid())
    finally:
        await server.stop()


def test_accounts_of_another_kind_are_left_alone(tmp_path: Path) -> None:
    ensure_accounts(tmp_path)
    config = tmp_path / "nats" / "nats-server.conf"
    config.parent.mkdir()
    config.write_text('{"authorization": {"users": []}}')
    config.chmod(0o600)
    with pytest.raises(Failure, match="stop `hopyard up`"):
        widen_permissions(tmp_path, os.getpid())
    assert config.read_text() == '{"authorization": {"users": []}}'


def test_merged_permissions_are_the_union_of_both() -> None:
    one = {"users": [{"user": "a", "permissions": {"publish": ["x", "y"]}}], "exports": [{"stream": "s"}]}
    other = {"users": [{"user": "a", "permissions": {"publish": ["y", "z"]}}, {"user": "b"}], "imports": []}
    assert merged(one, other) == {
        "users": [{"user": "a", "permissions": {"publish": ["x", "y", "z"]}}, {"user": "b"}],
        "exports": [{"stream": "s"}],
        "imports": [],
    }
