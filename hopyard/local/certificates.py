"""Keeps processes that use no HTTPS from reading the system's certificates.

aiohttp reads them as it is imported, twice, which takes longer than all else that a short command does.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

NOWHERE: Mapping[str, str] = {"SSL_CERT_FILE": os.devnull, "SSL_CERT_DIR": os.devnull}
"""a path without certificates, for OpenSSL to look in"""


@contextmanager
def unread() -> Iterator[None]:
    """A context to import aiohttp in, which then reads no certificates."""
    before = {name: os.environ.get(name) for name in NOWHERE}
    os.environ.update(NOWHERE)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
