"""Work done at once, within the call."""

from collections.abc import Callable
from typing import Any, TypeVar

from shared.runtime.offload.contract import Server

A = TypeVar("A")


class InlineLane:
    async def do(self, work: Callable[..., A], *arguments: object) -> A:
        return work(*arguments)

    def close(self) -> None:
        """Nothing to do."""


class InlineServer:
    """A server made when it is first asked; no deadline ends it."""

    def __init__(self, serve: Callable[..., Server], *arguments: object) -> None:
        self._make: Callable[[], Server] = lambda: serve(*arguments)
        self._server: Server | None = None

    async def warm(self) -> None:
        """Nothing to do: the server is made at the first call."""

    async def call(self, request: Any, deadline_s: float) -> Any:  # noqa: ANN401, ARG002 - the contract's
        if self._server is None:
            self._server = self._make()
        answer = self._server.answer(request)
        self._server.after_answer()
        return answer

    def end(self) -> None:
        self._server = None


class InlineOffload:
    """Implements `Offload`."""

    def lane(self, name: str) -> InlineLane:  # noqa: ARG002 - the contract's
        return InlineLane()

    def process(
        self,
        name: str,  # noqa: ARG002 - the contract's
        serve: Callable[..., Server],
        *arguments: object,
        memory_bytes: int | None = None,  # noqa: ARG002 - the contract's
    ) -> InlineServer:
        return InlineServer(serve, *arguments)


INLINE = InlineOffload()
