"""Addresses on which a server listens."""


def loopback(host: str) -> bool:
    """Whether the address can be reached from this machine alone."""
    return host in {"localhost", "::1"} or host.startswith("127.")
