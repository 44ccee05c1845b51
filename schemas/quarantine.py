"""The quarantine of a service: facts whose handling ended it (state bucket, `quarantine/SERVICE`)."""

from schemas.base import Message
from schemas.numbers import WholeNumber

DEATHS_MAX = 2
"""failures on one fact after which the service skips it"""
KEPT = 100
"""newest facts that are kept for each service"""


class Death(Message, frozen=True, kw_only=True):
    """A fact that a service could not handle."""

    seq: WholeNumber
    """its sequence in the stream"""
    subject: str
    fact: str
    """its tag"""
    error: str
    """type and message of the exception"""
    deaths: WholeNumber = 1
    """how often it ended the service"""
    own: bool = False
    """the service published the fact itself, so it must not skip it, and stays down"""

    @property
    def passed_over(self) -> bool:
        return self.deaths >= DEATHS_MAX and not self.own

    @property
    def text(self) -> str:
        what = "stays down by its own fact" if self.own else "passed over"
        return f"{what} {self.seq} {self.subject}: {self.error}"


class Quarantine(Message, frozen=True, kw_only=True):
    """The facts that ended a service, and those of them that an operator has released."""

    deaths: tuple[Death, ...] = ()
    """in ascending order of their sequences"""
    released: tuple[WholeNumber, ...] = ()
    """sequences of facts to handle after all; the next start replays the stream without a snapshot for it"""

    @property
    def in_force(self) -> tuple[Death, ...]:
        """The facts that the service skips, or that keep it down."""
        return tuple([one for one in self.deaths if one.deaths >= DEATHS_MAX])


def key_of(service: str) -> str:
    """The service's key in the state bucket."""
    return f"quarantine/{service}"
