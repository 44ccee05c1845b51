"""When the certificates of the system are read: not for a stack of this machine.

aiohttp reads them as it is imported, twice, which takes longer than all else that a short command does. A
stack of one's own is asked in plain HTTP.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from urllib.parse import urlsplit

HERE = frozenset({"127.0.0.1", "::1", "localhost"})
NOWHERE: Mapping[str, str] = {"SSL_CERT_FILE": os.devnull, "SSL_CERT_DIR": os.devnull}
"""where OpenSSL looks for them, if it is asked to"""


@contextmanager
def needed_for(url: str) -> Iterator[None]:
    """To import aiohttp in, for requests to `url` and to where they are redirected."""
    address = urlsplit(url)
    if address.scheme != "http" or address.hostname not in HERE:
        yield
        return
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
