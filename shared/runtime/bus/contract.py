"""The bus as a service sees it: the ports for facts, samples, questions, state and whole streams.

`shared.runtime.bus.jetstream` and `shared.runtime.bus.memory` implement it, and the same tests run over both;
the conductor of a simulation has its own (`shared.runtime.conductor.ports`).
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
    """The facts on a reader's subjects up to the sequence `last`, without those that cannot be read.

    `lacking`: sequences that the stream has lost, as far as the reader can tell. `forgotten`: sequences that
    were trimmed and are in no archive.
    """

    def __init__(
        self,
        records: Iterable[Record],
        last: int,
        lacking: Sequence[range] = (),
        forgotten: range = range(0),
    ) -> None:
        super().__init__(records)
        self.last = last
        self.lacking = lacking
        self.forgotten = forgotten


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

        What the stream has dropped comes from the archive, where one is kept. A batch may be empty. Reading
        goes on after a reconnect without a gap, but a batch may come twice: skip facts that are not above the
        last sequence. A malformed or an impossible message goes to the dead letters. Raises Unavailable once
        the bus is closed, and Damaged where the archive has lost facts, or the stream those before `after`,
        unless `allow_lost_facts` is set.
        """
        ...

    async def fetch(self, seqs: Sequence[int], *, archived: bool = True) -> list[Record]:
        """The facts of these sequences, in their order, without those that are gone or cannot be read.

        `archived`: what the stream does not have is asked of the archive, which the monitor answers. Raises
        Unavailable, also while no monitor answers.
        """
        ...

    async def last_seq(self) -> int:
        """Sequence of the newest fact; 0 for an empty stream. Raises Unavailable."""
        ...

    def why_not_stored(self) -> str:
        """Why the bus stores nothing at the moment, as far as this client knows; empty: it does."""
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
        """Send a sample, which is lost without an error where the bus is gone."""
        ...

    def listen(self, kinds: Sequence[type[Sample]]) -> AsyncIterator[Sample]:
        """Samples of some kinds from now on. A slow listener loses the oldest."""
        ...


Answer = Callable[[Question], Awaitable[Message]]


class Questions(Protocol):
    """Request and reply."""

    async def ask(self, question: Question, timeout_s: float) -> Message:
        """The reply. Raises Unavailable where none comes within `timeout_s` real seconds, or can be given.

        Raises Malformed for a reply that cannot be read.
        """
        ...

    async def serve(self, service: str, subject: str, answer: Answer) -> None:
        """Answer the questions on a subject, many at once, until the bus closes. Returns once they can come.

        Where `answer` raises, the error is logged and the asker gets `Refused`; where it raises Unavailable,
        `ask` raises it too. Of several processes that serve a subject, one gets each question.
        """
        ...


class State(Protocol):
    """Small named values with revisions (cursors, leases), and blobs (snapshots)."""

    async def get(self, key: str) -> tuple[bytes, int] | None:
        """Value and revision, or None. Raises Unavailable."""
        ...

    async def put(
        self, key: str, value: bytes, expected: int | None = None, ttl_s: float | None = None
    ) -> int:
        """Write a value; returns its new revision.

        `expected`: 0 writes only if the key is absent, n only at that revision; raises Conflict otherwise. A
        revision is larger than that of every earlier write of any key. `ttl_s`: the value is removed so many
        real seconds after this write (a server takes at least 1); a lease is renewed by writing it again.
        Raises Unavailable; the value may be written all the same.
        """
        ...

    async def delete(self, key: str) -> None: ...

    async def save(self, name: str, blob: bytes) -> None:
        """Write a blob of any size. Raises Unavailable, also if another instance saves one meanwhile.

        Raises Fenced where another instance leads.
        """
        ...

    async def load(self, name: str) -> bytes | None:
        """The blob, or None. Raises Unavailable, DamagedBlob."""
        ...


class Stored(msgspec.Struct, frozen=True):
    """A message as a stream holds it, not decoded."""

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
        """The messages above `after` and up to `upto`, in order, until they have `bytes_max` together.

        Those that the stream has lost are left out. Raises Unavailable.
        """
        ...

    async def drop(self, stream: str, upto: int) -> None:
        """Remove all messages up to this one. Raises Unavailable."""
        ...

    async def led_last(self, service: str) -> int:
        """Sequence of the fact by which a service's newest leader leads; 0: none has. Raises Unavailable."""
        ...


class Bus(Facts, Samples, Questions, State, Protocol):
    """The ports of every service, and the connection behind them."""

    @property
    def counts(self) -> Counts: ...

    async def close(self) -> None: ...

    def connected(self) -> bool: ...
