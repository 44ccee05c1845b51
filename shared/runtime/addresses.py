"""Addresses on which a server listens, and those of NATS."""

from urllib.parse import urlsplit


def loopback(host: str) -> bool:
    """Whether the address can be reached from this machine alone."""
    return host in {"localhost", "::1"} or host.startswith("127.")


def authority(host: str, port: int) -> str:
    """Host and port as a URL has them: an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def servers_of(nats_url: str) -> list[str]:
    """The URL of each NATS server that the setting names. Raises ValueError."""
    servers = [url.strip() for url in nats_url.split(",")]
    for url in servers:
        if not _of_nats(url):
            raise ValueError(f"nats_url: not the address of a NATS server: {url!r}")
    return servers


def _of_nats(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in {"nats", "tls", "ws", "wss"} and bool(parts.hostname) and parts.port != 0
    except ValueError:  # brackets without an end, or a port that is none
        return False
