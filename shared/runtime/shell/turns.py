"""The order in which services act that have something to do at the same instant.

On virtual time everything that follows from one turn settles before the next one begins:

    1. Messages to a service queue up in the order in which they were sent: the facts of one turn in the order
       in which they were stored, then its samples, then what its answers and its outside work lead to.
    2. At each instant all timers that are due ring first, in the order of their times, then of their setting.
    3. Of the services that have a message or are due to wake, the first in the stack's order takes a turn:
       it handles what is in its queue, wakes if it is due, and its effects go out.
    4. When no service has anything to do, time moves on to the next timer.

So the order of events follows a rule and not the scheduling of coroutines, and a run on the virtual
loop has the same facts as one without any loop (`shared.runtime.conductor`).
"""

from typing import Protocol


class Turns(Protocol):
    """The turns of one service."""

    async def mine(self) -> None:
        """Return when it is this service's turn."""
        ...

    async def settled(self) -> None:
        """Return when all that follows from the messages sent so far is in the queues of services."""
        ...


class AtOnce:
    """For the wall clock: every service acts as soon as it can."""

    async def mine(self) -> None:
        pass

    async def settled(self) -> None:
        pass


AT_ONCE = AtOnce()
