"""Ports of this machine, chosen before the processes start that listen there."""

import contextlib
import os
import socket
import sys
import weakref


class HeldPorts:
    """Ports nobody listens on, all different.

    On Linux no other process is given one of them, for a server or as its end of a connection, for as long as
    this lives: they are bound, and a server that sets SO_REUSEADDR may listen on what is only bound.
    """

    def __init__(self, host: str, count: int = 1) -> None:
        with contextlib.ExitStack() as open_here:
            sockets = [open_here.enter_context(socket.socket()) for _ in range(count)]
            for each in sockets:
                each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                each.bind((host, 0))
                if sys.platform == "linux":
                    weakref.finalize(self, os.close, os.dup(each.fileno()))
            self.ports = [int(each.getsockname()[1]) for each in sockets]
