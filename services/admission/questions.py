"""The questions of the HTTP API to the core. They never leave this process."""

from typing import ClassVar

from schemas.base import Question
from schemas.ids import JobId, NodeId
from schemas.jobs import JobFile
from schemas.tokens import ITSELF, Identity


class OwnQuestion(Question, frozen=True, kw_only=True):
    subject: ClassVar[str] = "hopyard.ask.admission"

    caller: Identity = ITSELF


class Submit(OwnQuestion, frozen=True, kw_only=True, tag="submit"):
    """Answered with `Submitted`, or with the problem there is."""

    job: JobFile
    key: str
    """idempotency key: the same key is the same job, and another job under it is refused"""


class Cancel(OwnQuestion, frozen=True, kw_only=True, tag="cancel"):
    """Answered with `Cancelled`."""

    job_id: JobId


class SetDrain(OwnQuestion, frozen=True, kw_only=True, tag="drain"):
    """Answered with `NodeDrain`."""

    node_id: NodeId
    draining: bool


class SetPolicy(OwnQuestion, frozen=True, kw_only=True, tag="set-policy"):
    """Answered with `PolicyChoice`."""

    policy: str


class ShowPolicy(OwnQuestion, frozen=True, kw_only=True, tag="policy"):
    """Answered with `PolicyChoice`."""


class ShowPolicies(OwnQuestion, frozen=True, kw_only=True, tag="policies"):
    """Answered with `PolicyPage`."""


class ShowFresh(OwnQuestion, frozen=True, kw_only=True, tag="fresh"):
    """A job too new for the monitor. Answered with `JobView`."""

    job_id: JobId
