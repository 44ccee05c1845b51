"""How the ranks of a job connect: rank 0 runs the store, and the agent sends its address to all."""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from hopjob.agent.connection import Connection
from hopjob.agent.order import Order

JOIN_TIMEOUT = timedelta(seconds=120)
"""how long a rank waits for the others once the agent has said that all are up"""
LOCALHOST = "127.0.0.1"


class Rendezvous:
    """One rank's part: report that it is up, wait for the address, join. Without an agent torch does this."""

    def __init__(self, order: Order, connection: Connection, *, port: int = 0) -> None:
        """`port`: at which all know rank 0 by now; 0: rank 0 takes any and reports it."""
        self._order, self._connection, self._port = order, connection, port
        self._reported: dict[str, object] = {}
        """what this rank reported as it came up; empty: nothing yet"""
        self.store: Any = None

    def wait_until_all_up(self, samples: float, *, elastic: bool, joins: bool = True) -> bool:
        """Report that this rank is up, and wait for the address. False: the process is to stop.

        A rank that is up and turns out to be elastic reports again, and goes on. `joins`: whether it will
        connect to the others, or has nothing to train.
        """
        if not self._order.socket:
            return True
        if self._reported:
            if elastic and not self._reported["elastic"]:
                self._report({**self._reported, "samples": samples, "elastic": True})
            return True
        alone = self._order.profile is not None
        if joins and self._order.ranks > 1 and self._order.rank == 0 and not alone:
            self.store = dist.TCPStore(
                LOCALHOST, self._port, self._order.ranks, True, timeout=JOIN_TIMEOUT, wait_for_workers=False
            )
        port = self.store.port if self.store is not None else None
        self._report({"port": port, "samples": samples, "elastic": elastic})
        if not alone and not self._connection.wait_for_meeting():
            return False
        if joins:
            self._set_environment()
        return True

    def _report(self, up: dict[str, object]) -> None:
        self._reported = up
        self._connection.send(up=up)

    def join(self, backend: str, timeout: timedelta) -> None:
        """Connect to the other ranks. Raises torch's errors if that fails."""
        if dist.is_initialized():
            return
        where = {"store": self.store} if self.store is not None else {}
        size = {"rank": self._order.rank, "world_size": self._order.ranks}
        dist.init_process_group(backend, timeout=timeout, **where, **size)

    def _set_environment(self) -> None:
        """Set torch's environment variables for the rendezvous. A rank that is alone gets 0: any port."""
        host, port = LOCALHOST, 0
        if self._order.ranks > 1 and self._connection.meeting is not None:
            host, port = self._connection.meeting
            os.environ["TORCHELASTIC_USE_AGENT_STORE"] = "True"
            os.environ["TORCHELASTIC_RESTART_COUNT"] = "0"  # torch 1.13 reads it
            os.environ["TORCHELASTIC_RUN_ID"] = self._order.placement  # trainers look for it
            if self.store is None:
                self.store = dist.TCPStore(host, port, self._order.ranks, False, timeout=JOIN_TIMEOUT)
        os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = (
            LOCALHOST if self._order.rank == 0 else host,
            str(port),
        )
