"""Addresses on which a server listens."""


def loopback(host: str) -> bool:
    """Whether only this machine reaches it."""
    return host in {"localhost", "::1"} or host.startswith("127.")
