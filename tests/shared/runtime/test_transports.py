"""A connection that is closed stays closed."""

import asyncio
from asyncio.sslproto import _SSLProtocolTransport
from unittest.mock import Mock

from shared.runtime.transports import abort


def test_one_with_tls_that_was_closed_twice_is_closed() -> None:
    protocol = Mock()
    transport = _SSLProtocolTransport(Mock(), protocol)
    transport.close()
    transport.close()
    abort(transport)
    assert transport.is_closing()
    assert not protocol._abort.called


class OfEarlyPythons(asyncio.Transport):
    """As the one above is in Python 3.11.2, once closed twice."""

    def abort(self) -> None:
        raise AttributeError("'NoneType' object has no attribute '_abort'")


def test_one_of_an_early_python_is_closed_all_the_same() -> None:
    abort(OfEarlyPythons())
