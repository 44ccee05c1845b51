"""Exit 0 when the service on this host says that it is ready: the health check of the containers.

It runs every few seconds in every container, so it imports next to nothing.
"""

import os
import socket
import sys

TIMEOUT_S = 3.0


def main() -> int:
    address = ("127.0.0.1", int(os.environ.get("HOPYARD_WEB_PORT", "8080")))
    try:
        with _secured(socket.create_connection(address, timeout=TIMEOUT_S)) as connection:
            connection.sendall(b"GET /readyz HTTP/1.0\r\n\r\n")
            return 0 if b" 200 " in connection.recv(64) else 1
    except OSError:
        return 1


def _secured(connection: socket.socket) -> socket.socket:
    """To itself it need not prove who it is."""
    if not os.environ.get("HOPYARD_WEB_CERTIFICATE"):
        return connection
    import ssl  # noqa: PLC0415 - as above

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context.wrap_socket(connection)


if __name__ == "__main__":
    sys.exit(main())
