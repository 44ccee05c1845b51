"""Requests that change a cluster, which print its name."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from hopyard.api.client import Client
from hopyard.api.connect import call, on
from hopyard.show.terminal import say

T = TypeVar("T")


def change(api: str | None, action: Callable[[Client], Awaitable[T]]) -> T:
    """The result of `call`; prints the cluster's name on stderr when it is done."""
    return call(api, action, afterwards=lambda client: say(on(client)))
