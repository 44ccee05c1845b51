"""Sends heartbeats at equal intervals: that the agent is alive, and what runs on its node."""

from collections.abc import Awaitable, Callable

from schemas.ids import NodeId
from schemas.samples import Heartbeat
from services.agent.work.runner import Runner
from shared.runtime.service import Inbox, Ports

TEXT_MAX = 400
"""characters of a trouble that are sent"""


def heartbeat(
    ports: Ports,
    runner: Runner,
    troubles: Callable[[], tuple[str, ...]],
    *,
    node_id: NodeId,
    life: str,
    every_s: float,
) -> Callable[[Inbox], Awaitable[None]]:
    """A task of the service that sends a heartbeat every `every_s` cluster seconds."""

    async def beat(_: Inbox) -> None:
        while True:
            await ports.bus.send(
                Heartbeat(
                    at=ports.clock.now(),
                    node_id=node_id,
                    life=life,
                    workers=runner.running(),
                    progress=runner.progress(),
                    troubles=tuple([trouble[:TEXT_MAX] for trouble in troubles()]),
                )
            )
            await ports.clock.sleep(every_s)

    return beat
