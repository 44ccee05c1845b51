"""The messages between agent and ranks: JSON lines on a socket, each an object with one key. Pure.

A rank is a user's process and may send anything. The types bound it, so that facts and samples made of it are
valid.
"""

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from schemas.numbers import Amount, Fraction, WholeNumber

LINE_MAX_BYTES = 4_000_000
"""a longer line ends the connection"""

Term = Annotated[float, Meta(ge=0, le=1e12)]
"""a time or a number, bounded so that sums and products of a few are still an `Amount`"""
Port = Annotated[int, Meta(ge=0, le=65_535)]
Iterations = Annotated[tuple[Amount, ...], Meta(min_length=1, max_length=1_000)]
"""a time for each iteration, seconds"""


class NotAMessage(ValueError):
    """A line that is no message of a rank."""


class Hello(msgspec.Struct, frozen=True):
    """The first message on every connection."""

    placement: str
    rank: WholeNumber
    pid: WholeNumber
    """as the rank sees it; in a container it differs from the pid outside"""
    attached: bool = False
    """its script called `attach`: it saves when ordered to, and can go on with any number of GPUs"""
    samples: Amount = 0.0
    holds: WholeNumber | None = None
    """the round for which it has the turn of its GPU"""


class Up(msgspec.Struct, frozen=True):
    """The rank has imported its script and restored the checkpoint."""

    port: Port | None = None
    """port of rank 0's store, at which the ranks meet"""
    samples: Amount | None = None
    """samples of the checkpoint that was restored"""
    elastic: bool = False


class ProfiledMessage(msgspec.Struct, frozen=True):
    """Times of the iterations of a measurement, seconds."""

    data_s: Iterations
    forward_s: Iterations
    backward_s: Iterations
    update_s: Iterations
    iteration_s: Iterations
    parameters: Amount
    memory_share: Fraction | None = None
    """share of the GPU's memory that was in use at most"""
    modes: Annotated[tuple[str, ...], Meta(max_length=16)] = ()
    """modes in which the script can train; empty: any"""

    def __post_init__(self) -> None:
        columns = (self.data_s, self.forward_s, self.backward_s, self.update_s, self.iteration_s)
        if len(set(map(len, columns))) > 1:
            raise ValueError("the lists of times differ in length")


class ObservedMessage(msgspec.Struct, frozen=True):
    """How the gang ran since the last such message of rank 0."""

    samples: Amount
    """done by the job so far, in all its runs"""
    seconds: Term
    iterations: Term
    batch: Term
    """samples of one iteration, over the whole gang"""
    data_s: tuple[tuple[Amount, ...], ...] = ()
    """T_d of the last iterations, by rank"""
    wait_s: tuple[tuple[Amount, ...], ...] = ()
    """T_w of the same iterations, by rank"""


class ReadyMessage(msgspec.Struct, frozen=True):
    """The rank wants its turn on the GPU, for the tasks of a round. Memory in bytes; 0: not known."""

    round: WholeNumber
    kept: Amount = 0.0
    """GPU memory that it keeps between its turns"""
    peak: Amount = 0.0
    """GPU memory that it takes at most while it computes"""
    whole: Amount = 0.0
    """all memory of the GPU"""
    due: WholeNumber = 0
    """when its turn is due, ticks (`turns.order`), as the ranks have agreed; 0: they have not"""


class DoneMessage(msgspec.Struct, frozen=True):
    """The rank gives its turn back."""

    round: WholeNumber


class SavedMessage(msgspec.Struct, frozen=True):
    """A checkpoint is written."""

    samples: Amount
    seconds: Term = 0.0
    why: str = "interval"
    """`interval`: a periodic checkpoint, which is reported to the core"""


class DamagedMessage(msgspec.Struct, frozen=True):
    """A checkpoint cannot be read, so an older one is restored."""

    file: str
    reason: str = ""


class UnsavedMessage(msgspec.Struct, frozen=True):
    """A checkpoint could not be written; training goes on."""

    reason: str


class StoppedMessage(msgspec.Struct, frozen=True):
    """The rank ends as ordered. `samples`: in the checkpoint that it wrote; None: it wrote none."""

    samples: Amount | None = None


class CompletedMessage(msgspec.Struct, frozen=True):
    """The rank has done all its samples."""

    samples: Amount | None = None


class FailedMessage(msgspec.Struct, frozen=True):
    """The script raised an exception that is no lost peer."""

    reason: str = ""


class LostMessage(msgspec.Struct, frozen=True):
    """The script ended by no fault of its own: a rank of its gang, its checkpoints or its GPUs are gone."""

    reason: str = ""


class EndedMessage(LostMessage, frozen=True):
    """Made by the agent, not by a rank: the agent ended the rank, which is no fault of the job."""


LastMessage = StoppedMessage | CompletedMessage | FailedMessage | LostMessage
RankMessage = (
    Hello
    | Up
    | ProfiledMessage
    | ObservedMessage
    | ReadyMessage
    | DoneMessage
    | SavedMessage
    | DamagedMessage
    | UnsavedMessage
    | LastMessage
)

BY_KEY: Mapping[str, type[RankMessage]] = {
    "hello": Hello,
    "up": Up,
    "profiled": ProfiledMessage,
    "observed": ObservedMessage,
    "ready": ReadyMessage,
    "done": DoneMessage,
    "saved": SavedMessage,
    "damaged": DamagedMessage,
    "unsaved": UnsavedMessage,
    "stopped": StoppedMessage,
    "completed": CompletedMessage,
    "failed": FailedMessage,
    "lost": LostMessage,
}


def message_in(line: bytes) -> RankMessage | None:
    """The message in a line; None: a kind that only a later version knows. Raises NotAMessage."""
    try:
        said: dict[str, Any] = msgspec.json.decode(line, type=dict[str, Any])
        known = [(BY_KEY[key], value) for key, value in said.items() if key in BY_KEY]
        return msgspec.convert(known[0][1], known[0][0], strict=False) if known else None
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise NotAMessage(f"not a message of a rank: {error}") from None


def message_in_file(text: bytes) -> RankMessage | None:
    """The last message that a rank wrote to its file before it sent it; None: none that can be read."""
    try:
        return message_in(text)
    except NotAMessage:
        return None


def go(meeting: str) -> bytes:
    """Order to train. `meeting`: host:port at which the ranks meet; empty: they need not."""
    host, _, port = meeting.rpartition(":")
    return _line(go={"host": host, "port": int(port or 0)})


def turn(number: int, due: int) -> bytes:
    """Grant of the turn: the GPU is the rank's until it sends done.

    `number`: the round of its ready message. `due`: when the job's next turn is due on this GPU, ticks.
    """
    return _line(turn={"round": number, "next": due})


def stop() -> bytes:
    return _line(stop={})


def _line(**said: object) -> bytes:
    return msgspec.json.encode(said) + b"\n"
