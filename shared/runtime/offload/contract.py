"""What a service may ask of its offload port."""

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

A = TypeVar("A")


class Crashed(OSError):
    """A helper process ended, or did not answer in time, and is replaced."""


class Lane(Protocol):
    """Runs functions one at a time, in the order of the calls of `do`."""

    async def do(self, work: Callable[..., A], *arguments: object) -> A:
        """Run `work(*arguments)`; returns or raises what it does."""
        ...

    def close(self) -> None:
        """Returns when all calls are done."""
        ...


class Server(Protocol):
    """The object that answers in a helper process. It is made there, from arguments that can be pickled."""

    def warm(self) -> None:
        """Import and load what the first request needs."""
        ...

    def answer(self, request: Any) -> Any:  # noqa: ANN401 - its own protocol's
        ...

    def after_answer(self) -> None:
        """Work that can wait until the answer is sent."""
        ...


class HelperProcess(Protocol):
    """Answers requests, one at a time; it can be ended."""

    async def warm(self) -> None:
        """Be ready for the first request."""
        ...

    async def call(self, request: Any, deadline_s: float) -> Any:  # noqa: ANN401 - as above
        """The server's answer. Raises Crashed; `deadline_s` in real seconds, where they count."""
        ...

    def end(self) -> None:
        """End it at once; the next call begins another."""
        ...


class Offload(Protocol):
    def lane(self, name: str) -> Lane: ...

    def process(
        self, name: str, serve: Callable[..., Server], *arguments: object, memory_bytes: int | None = None
    ) -> HelperProcess:
        """A process in which `serve(*arguments)` answers; both must be picklable.

        `memory_bytes`: of address space, at most, where it is a process of its own; None: no limit.
        """
        ...
