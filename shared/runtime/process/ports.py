"""Ports of this machine, chosen before the processes start that listen there."""

import contextlib
import os
import socket
import sys
import weakref


class HeldPorts:
    """Ports on which no process listens, all different.

    On Linux they stay bound for as long as this object lives. So the system gives them to no other process,
    as a server's port or as the end of a connection, and a server that sets SO_REUSEADDR can still listen on
    them.
    """

    def __init__(self, host: str, count: int = 1, *, port: int = 0) -> None:
        """`port`: the only one, if the system is not to choose. Raises OSError if it is taken."""
        with contextlib.ExitStack() as open_here:
            sockets = [open_here.enter_context(socket.socket()) for _ in range(count)]
            for each in sockets:
                each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                each.bind((host, port))
                if sys.platform == "linux":
                    weakref.finalize(self, os.close, os.dup(each.fileno()))
            self.ports = [int(each.getsockname()[1]) for each in sockets]
