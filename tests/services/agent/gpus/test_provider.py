"""An agent stands for its own machine."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from schemas.events import NodeJoined
from schemas.settings import Settings
from services.agent.build import build_standing
from services.agent.gpus import provider
from services.agent.gpus.provider import address_towards, this_machine
from services.agent.work.nodes import UnknownNode
from shared.runtime.bus.memory import MemoryBus
from shared.runtime.clock import LoopClock
from shared.runtime.plugins import NODES
from shared.runtime.service import Inbox, Ports
from shared.runtime.shell.virtual import run
from tests.services.agent.gpus.conftest import DriverOf
from tests.services.agent.gpus.driver import gpus

SETTINGS = Settings(node="gpu-1", nodes="this-machine", nats_url="nats://127.0.0.1:4222")


async def _ask(_: object) -> None:
    raise AssertionError("a claim asks nothing")


INBOX = Inbox(put=lambda _: None, ask=_ask, replayed=lambda: True, seq=lambda: 0)


def played(scene: Callable[[Ports], Awaitable[None]]) -> None:
    async def main() -> None:
        await scene(Ports(bus=MemoryBus(LoopClock()), clock=LoopClock()))

    run(main)


def test_a_machine_joins_with_its_gpus_those_in_use_withheld(driver_of: DriverOf) -> None:
    async def scene(ports: Ports) -> None:
        service = await build_standing(SETTINGS, ports)
        joined = service.core.resume(1.0)[0].event  # type: ignore[union-attr]
        assert isinstance(joined, NodeJoined)
        assert (joined.node_id, joined.node.gpus, joined.node.address) == ("gpu-1", 2, "127.0.0.1")
        assert list(joined.withheld) == [1]

    driver = driver_of(gpus(2))
    driver.gpus[1].processes = [1]
    driver.write()
    played(scene)


def test_the_next_life_of_an_agent_has_its_node_at_once(driver_of: DriverOf) -> None:
    async def scene(ports: Ports) -> None:
        first = await this_machine(SETTINGS, ports)
        again = await this_machine(SETTINGS, ports)
        assert ports.clock.now() == 0.0
        assert first.node == again.node
        assert first.life != again.life

    driver_of(gpus(2))
    played(scene)


def test_another_machine_of_the_name_is_refused_in_a_line(
    driver_of: DriverOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scene(ports: Ports) -> None:
        first = await this_machine(SETTINGS, ports)
        keeping = asyncio.ensure_future(first.tasks[0](INBOX))
        monkeypatch.setattr(provider, "BOOT", Path("/proc/sys/kernel/random/uuid"))  # as of another machine
        with pytest.raises(UnknownNode, match="another machine stands for gpu-1; --name gives"):
            await this_machine(SETTINGS, ports)
        keeping.cancel()

    driver_of(gpus(2))
    played(scene)


def test_the_provider_is_installed() -> None:
    assert NODES.load("this-machine") is this_machine


def test_the_address_is_the_one_that_reaches_nats() -> None:
    assert address_towards("nats://127.0.0.1:4222,nats://10.0.0.1:4222") == "127.0.0.1"
    assert address_towards("nats://[::1]:4222") in {"::1", ""}
    assert address_towards("nats://no.such.host.invalid") == ""
