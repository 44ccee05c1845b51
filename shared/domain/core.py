"""The contract between a service's core and the shell that drives it.

A core is a synchronous state machine. It changes `state` only when it handles a fact, its own facts
included: they come back through the stream like those of other services. So a replay of the stream, its
effects dropped, gives the same state. A fact that is published twice changes nothing, because its id is the
same. Anything else that a core remembers (an outstanding question, a timer) is lost when the process ends:
`resume` begins it again.
"""

from typing import Any, Protocol

import msgspec

from schemas.base import Event, Message, Question, Sample


class Publish(msgspec.Struct, frozen=True):
    """Publish a fact. Published again, it has the same id and is dropped."""

    event: Event


class Send(msgspec.Struct, frozen=True):
    """Emit a sample: may be lost."""

    sample: Sample


class Work(msgspec.Struct, frozen=True):
    """Have work done outside the core (ask, solve, write, start a process). Its answer comes as an input."""

    task: msgspec.Struct


class Reply(msgspec.Struct, frozen=True):
    """Answer a question. The answer is sent once the facts of the same batch are stored."""

    ticket: int
    message: Message


class Asked(msgspec.Struct, frozen=True):
    """An input: a question, whose sender waits for `Reply(ticket, …)`.

    As an effect: the core gets it again, as an input of its own. So it comes back to a question that it kept.
    """

    ticket: int
    question: Question


Effect = Publish | Send | Work | Reply | Asked
Effects = list[Effect]


class WorkFailed(msgspec.Struct, frozen=True):
    """An input: work outside the core raised an operating error, or passed its time limit."""

    task: msgspec.Struct
    reason: str


Input = Event | Sample | Asked | WorkFailed | msgspec.Struct
"""a fact, a sample, a question, or the answer to some work"""


class Behind(msgspec.Struct, frozen=True):
    """An input: facts do not reach the service as they come, so what is not known may have happened.

    The bus does not answer, or there is a backlog.
    """


class MustEnd(Exception):
    """Raised by a core whose service has to end, through no fault of the fact being handled."""


class Core(Protocol):
    """One service's decisions. `now` is cluster time, float seconds."""

    state: Any
    """a msgspec struct: all that the core has learnt from facts, ready to be written as a snapshot"""

    def handle(self, message: Input, now: float) -> Effects: ...

    def next_wakeup(self) -> float | None: ...

    def wake(self, now: float) -> Effects: ...

    def resume(self, now: float) -> Effects:
        """Called once, after the replay and before anything else."""
        ...
