"""What `hopyard diag` says of the NATS servers of a stack."""

import asyncio
import socket
from pathlib import Path

import pytest

from hopyard.actions import diagnose
from hopyard.failures import Failure
from shared.runtime.process.nats_server import NatsServer


async def test_each_server_that_does_not_answer_is_named_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(diagnose, "TIMEOUT_S", 1.0)
    server = NatsServer(tmp_path)
    await server.start()
    try:
        with socket.create_server(("127.0.0.1", 0)) as mute, socket.socket() as closed:
            closed.bind(("127.0.0.1", 0))
            silent, gone = [f"nats://127.0.0.1:{one.getsockname()[1]}" for one in (mute, closed)]
            with pytest.raises(Failure) as found:
                await asyncio.wait_for(diagnose._nats(f"{silent},{gone},{server.url}"), 10.0)
    finally:
        await server.stop()
    first, second, third = str(found.value).split("; ")
    assert first == f"{silent}: does not answer within 1 s"
    assert second == f"{gone}: connection refused"
    assert third.startswith(f"{server.url}: version ")
