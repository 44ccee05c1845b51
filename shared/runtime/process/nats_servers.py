"""The NATS servers of a stack: one, or a cluster of three, which goes on when one of them is gone.

The servers of a cluster let each other in by a password that stands in their configuration alone.
"""

import asyncio
import secrets
from collections.abc import Callable
from pathlib import Path

from shared.runtime.process.nats_server import START_TIMEOUT_S, NatsServer, Peers
from shared.runtime.process.ports import HeldPorts

CLUSTER = "hopyard"
LOOPBACK = "127.0.0.1"


class NatsServers:
    """The servers, all on this machine; a client may connect to any of them."""

    def __init__(self, each: list[NatsServer], held: HeldPorts | None = None) -> None:
        """`held`: the ports on which they listen for each other."""
        self.each = each
        self._held = held

    @property
    def url(self) -> str:
        """The addresses for clients on this machine, with commas."""
        return ",".join(server.url for server in self.each)

    @property
    def port(self) -> int:
        """The port of the first server."""
        return self.each[0].port

    def running(self) -> bool:
        """Whether all servers run."""
        return not self.ended()

    def ready(self) -> bool:
        """Whether all servers run and have taken clients."""
        return all(server.ready() for server in self.each)

    def ended(self) -> list[int]:
        """Numbers of the servers that do not run, from 1."""
        return [number for number, server in enumerate(self.each, 1) if not server.running()]

    async def start(self) -> None:
        """Raises RuntimeError with the end of the log of one that does not start."""
        for error in (await self.begin(START_TIMEOUT_S)).values():
            raise error

    async def begin(self, limit_s: float) -> dict[int, Exception]:
        """Start those that do not run; returns why some take no clients in `limit_s`, by numbers from 1.

        One that takes longer since it recovers its store is not ended.
        """
        begun = (_begin(server, limit_s) for server in self.each)
        found = await asyncio.gather(*begun, return_exceptions=True)
        return {number: error for number, error in enumerate(found, 1) if isinstance(error, Exception)}

    def take_accounts(self) -> None:
        for server in self.each:
            server.take_accounts()

    def why_not_taken(self) -> str | None:
        """Why a server goes on with the accounts before; empty: none does; None: one has not said yet."""
        found = [server.why_not_taken() for server in self.each]
        return next(filter(None, found), None if None in found else "")

    async def stop(self) -> None:
        await asyncio.gather(*(server.stop() for server in self.each))

    def kill(self) -> None:
        for server in self.each:
            server.kill()


async def _begin(server: NatsServer, limit_s: float) -> None:
    if not server.running():
        server.launch()
    if not server.ready():
        await server.until_ready(limit_s)


def servers_begun(folder: Path) -> int:
    """How many servers a store was begun with; 0: there is none yet.

    A server of a cluster deletes streams that the cluster does not know, so the store of one server cannot
    become that of three.
    """
    if not (folder / "jetstream").exists():
        return 0
    return 1 + len(list(folder.parent.glob(f"{folder.name}-[0-9]")))


def nats_servers(
    folder: Path, count: int, make: Callable[[Path, int, Peers | None], NatsServer]
) -> NatsServers:
    """`make`: a server by its folder, its number from 0 and its peers. The first has the folder itself."""
    if count == 1:
        return NatsServers([make(folder, 0, None)])
    held = HeldPorts(LOOPBACK, count)
    password = secrets.token_urlsafe(32)
    return NatsServers(
        [
            make(
                folder if number == 0 else folder.with_name(f"{folder.name}-{number + 1}"),
                number,
                Peers(cluster=CLUSTER, number=number, ports=tuple(held.ports), password=password),
            )
            for number in range(count)
        ],
        held,
    )
