"""The messages between agent and ranks: JSON lines on a socket, one object with one key each. Pure.

A rank is a user's process: the types say what it may claim, so that facts and samples made of it are valid.
"""

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from schemas.numbers import Amount, Fraction, WholeNumber

LINE_MAX_BYTES = 4_000_000
"""a longer line ends the connection"""

Term = Annotated[float, Meta(ge=0, le=1e12)]
"""so small that sums and products of some are an `Amount`, too"""
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
    """as the rank knows it, which in a container is another than ours"""
    attached: bool = False
    """it saves when it is ordered to, and goes on from there on any number of GPUs"""
    samples: Amount = 0.0
    holds: WholeNumber | None = None
    """the round for which it has the turn of its GPU"""


class Up(msgspec.Struct, frozen=True):
    """The rank has imported its script and restored the checkpoint."""

    port: Port | None = None
    """where rank 0 has its store"""
    samples: Amount | None = None
    """samples of the checkpoint that was restored"""
    elastic: bool = False


class ProfiledMessage(msgspec.Struct, frozen=True):
    """What iterations of a measurement took, seconds."""

    data_s: Iterations
    forward_s: Iterations
    backward_s: Iterations
    update_s: Iterations
    iteration_s: Iterations
    parameters: Amount
    memory_share: Fraction | None = None
    """share of the GPU's memory that was taken"""
    modes: Annotated[tuple[str, ...], Meta(max_length=16)] = ()
    """modes in which the script can train; empty: any"""

    def __post_init__(self) -> None:
        columns = (self.data_s, self.forward_s, self.backward_s, self.update_s, self.iteration_s)
        if len(set(map(len, columns))) > 1:
            raise ValueError("not one number of each kind an iteration")


class ObservedMessage(msgspec.Struct, frozen=True):
    """How the gang ran since rank 0 said so last."""

    samples: Amount
    """done so far, all runs together"""
    seconds: Term
    iterations: Term
    batch: Term
    """samples of one iteration, over the whole gang"""
    data_s: tuple[tuple[Amount, ...], ...] = ()
    """T_d of the last iterations, by rank"""
    wait_s: tuple[tuple[Amount, ...], ...] = ()


class ReadyMessage(msgspec.Struct, frozen=True):
    """It wants the turn of its GPU for the tasks of a round; bytes of the GPU's memory, 0: not known."""

    round: WholeNumber
    kept: Amount = 0.0
    """bytes that it keeps between its turns"""
    peak: Amount = 0.0
    """bytes that it takes at most while it computes"""
    whole: Amount = 0.0
    """bytes that the GPU has"""


class DoneMessage(msgspec.Struct, frozen=True):
    """It gives the turn back."""

    round: WholeNumber


class SavedMessage(msgspec.Struct, frozen=True):
    """A checkpoint is written."""

    samples: Amount
    seconds: Term = 0.0
    why: str = "interval"


class DamagedMessage(msgspec.Struct, frozen=True):
    """A checkpoint that cannot be read; an older one is."""

    file: str
    reason: str = ""


class UnsavedMessage(msgspec.Struct, frozen=True):
    """A checkpoint that could not be written; training goes on."""

    reason: str


class StoppedMessage(msgspec.Struct, frozen=True):
    samples: Amount | None = None


class CompletedMessage(msgspec.Struct, frozen=True):
    samples: Amount | None = None


class FailedMessage(msgspec.Struct, frozen=True):
    """An exception of the script's own."""

    reason: str = ""


class LostMessage(msgspec.Struct, frozen=True):
    """A peer is gone."""

    reason: str = ""


class EndedMessage(LostMessage, frozen=True):
    """No message of a rank's: it was made to end, which is no fault of the job's."""


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
    """None: a message of a later version. Raises NotAMessage."""
    try:
        said: dict[str, Any] = msgspec.json.decode(line, type=dict[str, Any])
        known = [(BY_KEY[key], value) for key, value in said.items() if key in BY_KEY]
        return msgspec.convert(known[0][1], known[0][0], strict=False) if known else None
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise NotAMessage(f"no message of a rank: {error}") from None


def message_in_file(text: bytes) -> RankMessage | None:
    """What a rank wrote down before it said it; None: nothing, or nothing that can be read."""
    try:
        return message_in(text)
    except NotAMessage:
        return None


def go(meeting: str) -> bytes:
    """`meeting`: host:port where the ranks meet; empty: there is nobody to meet."""
    host, _, port = meeting.rpartition(":")
    return _line(go={"host": host, "port": int(port or 0)})


def turn(number: int) -> bytes:
    """The GPU is its own until it has said done. `number`: of the round that it said it was ready for."""
    return _line(turn={"round": number})


def stop() -> bytes:
    return _line(stop={})


def _line(**said: object) -> bytes:
    return msgspec.json.encode(said) + b"\n"
