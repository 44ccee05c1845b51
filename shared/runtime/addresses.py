"""Addresses on which a server listens."""


def loopback(host: str) -> bool:
    """Whether the address can be reached from this machine alone."""
    return host in {"localhost", "::1"} or host.startswith("127.")


def authority(host: str, port: int) -> str:
    """Host and port as a URL has them: an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
