"""The bus as a service sees it: four small ports, each with a JetStream and an in-memory implementation.

Nothing here acts. `shared.runtime.bus.jetstream` and `shared.runtime.bus.memory` implement it; one contract
suite holds both.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from typing import Protocol

import msgspec

from schemas.base import Event, Message, Question, Sample
from shared.runtime.bus.counts import Counts


class Record(msgspec.Struct, frozen=True):
    """A fact as the stream holds it."""

    seq: int
    event: Event


class Batch(list[Record]):
    """Facts of a stretch of the stream that ends at `last`; what cannot be read there is left out.

    `lacking`: sequences that the stream ought to have there and has lost, where the reader can tell.
    """

    def __init__(self, records: Iterable[Record], last: int, lacking: Sequence[range] = ()) -> None:
        super().__init__(records)
        self.last = last
        self.lacking = lacking


class Unavailable(ConnectionError):
    """The bus, or the service that should answer, does not respond within the time limit."""


class DamagedBlob(Exception):
    """What is stored under a name is not what was saved, or not all of it."""


class Conflict(Exception):
    """A compare-and-set found another revision than expected."""


class Fenced(Exception):
    """Another instance of the service leads: the stream takes no more facts from this one."""


class Facts(Protocol):
    """The stream of facts. Its order is the same for every reader."""

    async def publish(self, events: Sequence[Event]) -> None:
        """Store the facts, in this order, and return when all are stored.

        A fact whose id the stream knows is dropped. Retries with backoff for as long as the bus is
        gone; cancelling is the way out. Raises ValueError for a fact above the size limit, and Fenced.
        """
        ...

    def read(self, after: int, subjects: Sequence[str]) -> AsyncIterator[Batch]:
        """Facts with a sequence above `after`, in stream order, in batches, as they come, without end.

        What the stream has dropped comes from the archive, where one is kept.
        A batch is empty where nothing of its stretch can be read. Survives reconnects without a gap; in
        rare cases a batch comes twice, so skip what is not above the last sequence. A malformed or an
        impossible message goes to the dead letters. Raises Unavailable once the bus is closed, and Damaged
        where the archive is, unless facts may lack.
        """
        ...

    async def fetch(self, seqs: Sequence[int]) -> list[Record]:
        """The facts of these sequences, in their order, but those that are gone or cannot be read.

        Raises Unavailable.
        """
        ...

    async def last_seq(self) -> int:
        """Sequence of the newest fact; 0 for an empty stream. Raises Unavailable."""
        ...

    def why_not_stored(self) -> str:
        """Why facts are not stored at the moment, as far as this client knows; empty if they are."""
        ...

    async def dropped(self) -> int:
        """Sequence of the newest fact that the stream has dropped; 0: none. Raises Unavailable."""
        ...

    async def newest(self, subjects: Sequence[str]) -> int:
        """Sequence of the newest fact on these subjects. Raises Unavailable."""
        ...


class Samples(Protocol):
    """Measurements: many and lossy."""

    async def send(self, sample: Sample) -> None:
        """Emit; lost silently when the bus is gone."""
        ...

    def listen(self, kinds: Sequence[type[Sample]]) -> AsyncIterator[Sample]:
        """Samples of some kinds from now on. A slow listener loses the oldest."""
        ...


Answer = Callable[[Question], Awaitable[Message]]


class Questions(Protocol):
    """Request and reply."""

    async def ask(self, question: Question, timeout_s: float) -> Message:
        """The reply. Raises Unavailable when none came within `timeout_s` real seconds, or could be given."""
        ...

    async def serve(self, service: str, subject: str, answer: Answer) -> None:
        """Answer questions on a subject, many at once, until the bus closes. Returns once they can come.

        An `answer` that raises is logged and replied to as `Refused`; one that raises Unavailable gives none.
        Of several that serve a subject, one gets the question.
        """
        ...


class State(Protocol):
    """Small named values with revisions: cursors, leases; and blobs: snapshots."""

    async def get(self, key: str) -> tuple[bytes, int] | None:
        """Value and revision, or None. Raises Unavailable."""
        ...

    async def put(
        self, key: str, value: bytes, expected: int | None = None, ttl_s: float | None = None
    ) -> int:
        """Write; the new revision.

        `expected` 0: only if the key is absent; n: only at that revision; else raises Conflict. Revisions
        grow with every write of any key, so a later holder of a key has a larger one. `ttl_s` (real
        seconds; a server makes it at least 1): the value goes away that long after this write, so a
        lease is renewed by writing it again, at its revision, with its `ttl_s`. Raises Unavailable;
        the write may have happened all the same.
        """
        ...

    async def delete(self, key: str) -> None: ...

    async def save(self, name: str, blob: bytes) -> None:
        """Write a blob of any size."""
        ...

    async def load(self, name: str) -> bytes | None:
        """The blob, or None. Raises Unavailable, DamagedBlob."""
        ...


class Stored(msgspec.Struct, frozen=True):
    """A message as a stream holds it, whether it can be read or not."""

    seq: int
    at: float
    """when it was stored, Unix time by the server's clock"""
    subject: str
    id: str
    data: bytes


class Extent(msgspec.Struct, frozen=True):
    """How far a stream reaches."""

    first: int
    """sequence of its oldest message; of an empty one, that of the message to come"""
    last: int
    bytes: int


class Streams(Protocol):
    """The streams themselves, for the service that archives them."""

    async def extent(self, stream: str) -> Extent:
        """Raises Unavailable."""
        ...

    async def stored(self, stream: str, after: int, upto: int, bytes_max: int) -> list[Stored]:
        """Messages above `after` up to `upto`, in order, and no more once they are of `bytes_max`.

        What the stream has lost is left out. Raises Unavailable.
        """
        ...

    async def drop(self, stream: str, upto: int) -> None:
        """Remove all messages up to this one. Raises Unavailable."""
        ...

    async def led_last(self, service: str) -> int:
        """Sequence of the fact by which a service's leader leads; 0: none has. Raises Unavailable."""
        ...


class Bus(Facts, Samples, Questions, State, Protocol):
    """All four ports, and the connection behind them."""

    @property
    def counts(self) -> Counts: ...

    async def close(self) -> None: ...

    def connected(self) -> bool: ...
