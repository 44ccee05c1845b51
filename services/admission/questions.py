"""The questions of the HTTP API to the core; from one admission to another they travel in a `HandedOn`."""

from typing import ClassVar

import msgspec

from schemas.base import Message, Question
from schemas.ids import JobId, NodeId
from schemas.jobs import JobFile, Priority
from schemas.questions import ADMISSION, HandedBack, HandedOn
from schemas.tokens import ITSELF, Identity
from schemas.views import Problem


class OwnQuestion(Question, frozen=True, kw_only=True):
    subject: ClassVar[str] = ADMISSION

    caller: Identity = ITSELF


class Submit(OwnQuestion, frozen=True, kw_only=True, tag="submit"):
    """Answered with `Submitted`, or with a `Problem`."""

    job: JobFile
    key: str
    """idempotency key: the same job under the same key is created once, another job under it is refused"""


class SubmitHeld(Submit, frozen=True, kw_only=True, tag="submit-held"):
    """A job that is on hold from the start.

    A question of its own: an admission of an earlier version, which ignores fields that it does not know,
    refuses it, and the hold is not lost.
    """


class Cancel(OwnQuestion, frozen=True, kw_only=True, tag="cancel"):
    """Answered with `Cancelled`."""

    job_id: JobId


class SetPriority(OwnQuestion, frozen=True, kw_only=True, tag="set-priority"):
    """Answered with `JobPriority`."""

    job_id: JobId
    priority: Priority


class SetHold(OwnQuestion, frozen=True, kw_only=True, tag="set-hold"):
    """Answered with `JobHold`."""

    job_id: JobId
    held: bool


class SetDrain(OwnQuestion, frozen=True, kw_only=True, tag="drain"):
    """Answered with `NodeDrain`."""

    node_id: NodeId
    draining: bool


class RemoveNode(OwnQuestion, frozen=True, kw_only=True, tag="remove-node"):
    """Answered with `NodeRemoval`."""

    node_id: NodeId


class SetPolicy(OwnQuestion, frozen=True, kw_only=True, tag="set-policy"):
    """Answered with `PolicyChoice`."""

    policy: str


class ShowPolicy(OwnQuestion, frozen=True, kw_only=True, tag="policy"):
    """Answered with `PolicyChoice`."""


class ShowPolicies(OwnQuestion, frozen=True, kw_only=True, tag="policies"):
    """Answered with `PolicyPage`."""


class ShowFresh(OwnQuestion, frozen=True, kw_only=True, tag="fresh"):
    """A job that the monitor does not know: it is too new, or ended too long ago. Answered with `JobView`."""

    job_id: JobId
    monitor_seq: int = 0
    """stream sequence up to which the monitor has read; 0: not known"""


_ANY = msgspec.msgpack.Decoder(
    Submit
    | SubmitHeld
    | Cancel
    | SetPriority
    | SetHold
    | SetDrain
    | RemoveNode
    | SetPolicy
    | ShowPolicy
    | ShowPolicies
    | ShowFresh
)


def handed_on(question: OwnQuestion) -> HandedOn:
    """The question as it travels to the admission that leads."""
    return HandedOn(asked=msgspec.msgpack.encode(question))


def taken_over(handed: HandedOn) -> OwnQuestion:
    """The question that another admission handed on. Raises msgspec.DecodeError."""
    own: OwnQuestion = _ANY.decode(handed.asked)
    return own


def handed_back(reply: Message) -> HandedBack:
    """The reply as it travels to the admission that asked."""
    return HandedBack(said=msgspec.msgpack.encode(reply), problem=isinstance(reply, Problem))
