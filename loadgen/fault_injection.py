"""Faults that a test can inject into a running stack: kill, cut off or stall services, store facts twice."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from schemas.base import Event, Question


class Stack(Protocol):
    """All services and agents of a simulation, by name, whatever drives them."""

    @property
    def names(self) -> Sequence[str]: ...

    async def sleep(self, seconds: float) -> None: ...

    async def facts(self, count: int) -> None:
        """Return once `count` more facts have been stored."""
        ...

    async def steps(self, count: int) -> None:
        """Return after `count` steps of the engine, which decides how much a step is."""
        ...

    def is_up(self, name: str) -> bool:
        """Whether the service has ended its replay. Raises Unavailable while it is dead."""
        ...

    def start(self, name: str) -> None:
        """Start a service, from what the bus has stored of its earlier lives."""
        ...

    async def kill(self, name: str) -> None:
        """End a service at once: what it had not published is lost."""
        ...

    def cut(self, name: str) -> None:
        """Disconnect a service from the others until `mend`, or until its next life."""
        ...

    def mend(self, name: str) -> None: ...

    def stall(self, name: str) -> None:
        """Stop a service's core until `go_on`, or until its next life; what runs beside the core goes on.

        The service renews its lease and sends heartbeats, but handles no message.
        """
        ...

    def go_on(self, name: str) -> None: ...

    def stored(self, after: int) -> Sequence[Event]:
        """The facts in the stream after this sequence, with repetitions."""
        ...

    def store(self, fact: Event) -> None:
        """Store a fact without its id, so that it may be in the stream twice."""
        ...

    async def put_to(self, name: str, question: Question) -> object:
        """The answer of a service's core, as its own HTTP API gets it. Raises Unavailable."""
        ...


Disturbance = Callable[[Stack], Awaitable[None]]
"""disturbs a stack while it runs"""
