"""The containers' health check: exits with 0 if the service on this host is ready.

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
    """The connection, with TLS if the service has it; not verified, since the service asks itself."""
    if not os.environ.get("HOPYARD_WEB_CERTIFICATE"):
        return connection
    import ssl  # noqa: PLC0415 - as above

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context.wrap_socket(connection)


if __name__ == "__main__":
    sys.exit(main())
