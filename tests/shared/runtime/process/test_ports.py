"""A held port is for our own server alone, however often that restarts."""

import asyncio
import gc
import socket
import sys
from contextlib import ExitStack

import pytest

from shared.runtime.process.ports import HeldPorts

HOST = "127.0.0.1"
TRIES = 500

only_linux = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere no port is held")


def test_ports_are_all_different() -> None:
    assert len(set(HeldPorts(HOST, 50).ports)) == 50


@only_linux
def test_a_held_port_is_not_given_to_a_request_for_any_port() -> None:
    held = HeldPorts(HOST, 50)
    with ExitStack() as stack:
        others = [stack.enter_context(socket.socket()) for _ in range(TRIES)]
        for each in others:
            each.bind((HOST, 0))
        assert not {each.getsockname()[1] for each in others} & set(held.ports)


@only_linux
async def test_a_server_listens_there_again_and_again() -> None:
    (port,) = (held := HeldPorts(HOST)).ports
    for _ in range(3):
        server = await asyncio.start_server(lambda _, writer: writer.close(), HOST, port)
        reader, writer = await asyncio.open_connection(HOST, port)
        assert await reader.read() == b""
        writer.close()
        server.close()
        await server.wait_closed()
    del held


def test_a_released_port_can_be_bound() -> None:
    (port,) = (held := HeldPorts(HOST)).ports
    del held
    gc.collect()
    with socket.socket() as other:
        other.bind((HOST, port))
