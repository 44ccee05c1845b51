"""When the system's certificates are read: not for a stack of this machine, which is asked in plain HTTP."""

from contextlib import AbstractContextManager, nullcontext
from urllib.parse import urlsplit

from hopyard.local.certificates import unread

HERE = frozenset({"127.0.0.1", "::1", "localhost"})


def needed_for(url: str) -> AbstractContextManager[None]:
    """A context to import aiohttp in, which reads certificates only if requests to `url` may need them."""
    address = urlsplit(url)
    here = address.scheme == "http" and address.hostname in HERE
    return unread() if here else nullcontext()
